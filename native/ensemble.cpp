#include "ensemble.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace carya {

namespace {

constexpr std::int64_t kRowsPerTask = 32;
constexpr std::int64_t kRowsOfMember = 1024;
constexpr std::int64_t kMostFound = 1 << 20;  // labels that wait to be combined, a thread

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

void check_weights(std::size_t members, std::span<const float> weights) {
    if (members == 0) throw std::invalid_argument("an ensemble needs at least one member");
    if (weights.size() != members) throw std::invalid_argument("there must be a weight for each member");
    float sum = 0.0F;
    for (const float weight : weights) {
        if (!(weight >= 0.0F) || !std::isfinite(weight)) throw std::invalid_argument("a weight is not 0 or more");
        sum += weight;
    }
    if (!(sum > 0.0F)) throw std::invalid_argument("all weights are 0");
}

}  // namespace

void Combiner::add(std::size_t member, std::span<const Scored> ranking) {
    const float weight = weights_[member];
    float total = 0.0F;
    if (how_ == Combine::softmax)
        for (const Scored& one : ranking) total += std::exp(one.score - ranking.front().score);
    const auto count = static_cast<float>(ranking.size());
    for (std::size_t i = 0; i < ranking.size(); ++i) {
        const float score = ranking[i].score;
        float said = 0.0F;
        switch (how_) {
            case Combine::mean: said = score; break;
            case Combine::rank: said = (count - static_cast<float>(i)) / count; break;
            case Combine::count: said = 1.0F; break;
            case Combine::softmax: said = std::exp(score - ranking.front().score) / total; break;
            case Combine::sigmoid: said = sigmoid(score); break;
        }
        found_.push_back({ranking[i].node, weight * said, weight * score});
    }
}

std::span<const Scored> Combiner::best(std::int64_t top_k) {
    std::stable_sort(found_.begin(), found_.end(), [](const Vote& a, const Vote& b) { return a.label < b.label; });
    const float sum = std::accumulate(weights_.begin(), weights_.end(), 0.0F);
    // Below one vote, so that the mean score decides only among labels with equally many.
    const float tie = how_ == Combine::count ? 0.5F * *std::min_element(weights_.begin(), weights_.end()) : 0.0F;
    best_.clear();
    for (std::size_t i = 0; i < found_.size();) {
        const std::int32_t label = found_[i].label;
        float said = 0.0F;
        float score = 0.0F;
        for (; i < found_.size() && found_[i].label == label; ++i) {
            said += found_[i].said;
            score += found_[i].score;
        }
        if (tie > 0.0F) said += tie * sigmoid(score / sum);
        best_.push_back({label, said / sum});
    }
    const auto kept = std::min<std::int64_t>(top_k, std::ssize(best_));
    std::partial_sort(best_.begin(), best_.begin() + kept, best_.end(), better);
    best_.resize(static_cast<std::size_t>(kept));
    return best_;
}

Csr combine(std::span<const CsrView> rankings, Combine how, std::span<const float> weights, std::int64_t top_k,
            int threads) {
    check_weights(rankings.size(), weights);
    const std::int64_t rows = rankings.front().rows();
    std::int64_t most = 0;
    for (const CsrView& one : rankings) {
        if (one.rows() != rows || one.cols != rankings.front().cols)
            throw std::invalid_argument("the rankings are of different shapes");
        std::int64_t longest = 0;
        for (std::int64_t row = 0; row < rows; ++row) longest = std::max(longest, one.length(row));
        most += longest;
    }
    top_k = std::min(top_k, most);
    RankedRows out(rows, rankings.front().cols, top_k);
    struct Work {
        Combiner combiner;
        std::vector<Scored> ranking;
    };
    std::vector<Work> works(static_cast<std::size_t>(threads), Work{Combiner(how, weights), {}});
    parallel_each(rows, kRowsPerTask, threads, nullptr, [&](int w, std::int64_t row) {
        Work& work = works[w];
        work.combiner.clear();
        for (std::size_t m = 0; m < rankings.size(); ++m) {
            work.ranking.clear();
            for (std::int64_t e = rankings[m].begin(row); e < rankings[m].end(row); ++e)
                work.ranking.push_back({rankings[m].indices[e], rankings[m].values[e]});
            work.combiner.add(m, work.ranking);
        }
        out.put(row, work.combiner.best(top_k));
    });
    return out.take();
}

Csr predict_combined(std::span<const BeamSearch* const> members, const Features& queries, const Question& question,
                     std::int64_t pool, Combine how, std::span<const float> weights, int threads, Monitor* monitor) {
    check_weights(members.size(), weights);
    const std::int64_t rows = queries.rows();
    const std::int64_t labels = members.front()->n_labels();
    const auto count = static_cast<std::int64_t>(members.size());
    const std::int64_t top_k = std::min({question.top_k, labels, pool * count});
    Question asked = question;
    asked.top_k = std::min(pool, labels);
    RankedRows out(rows, labels, top_k);
    struct Work {
        Combiner combiner;
        BeamSearch::Work search;
        std::vector<Scored> found;  // by the members one after the other, by each for one row after the other
        std::vector<std::size_t> ends;
    };
    std::vector<Work> works;
    for (int w = 0; w < threads; ++w) works.push_back({Combiner(how, weights), {}, {}, {}});
    // Many rows of one member after the other: what they touch of its weights is still near when the next row comes.
    const std::int64_t wanted = std::max<std::int64_t>(count * asked.top_k, 1);  // a row; a damaged model has no labels
    const std::int64_t most = std::min(kRowsOfMember, kMostFound / wanted + 1);
    const std::int64_t piece = std::clamp<std::int64_t>(rows / (4 * threads), 1, most);
    if (monitor) monitor->total = static_cast<std::uint64_t>(rows);
    parallel_for((rows + piece - 1) / piece, threads, monitor, [&](int w, std::int64_t at) {
        Work& work = works[w];
        const std::int64_t first = at * piece;
        const std::int64_t last = std::min(rows, first + piece);
        work.found.clear();
        work.ends.assign(1, 0);
        for (const BeamSearch* member : members)
            for (std::int64_t row = first; row < last; ++row) {
                if (monitor && monitor->stop.load(std::memory_order_relaxed)) return;
                const std::span<const Scored> best = member->rank(query_of(queries, row), asked, work.search);
                work.found.insert(work.found.end(), best.begin(), best.end());
                work.ends.push_back(work.found.size());
            }
        for (std::int64_t row = first; row < last; ++row) {
            work.combiner.clear();
            for (std::int64_t m = 0; m < count; ++m) {
                const auto which = static_cast<std::size_t>(m * (last - first) + row - first);
                const std::size_t begin = work.ends[which];
                work.combiner.add(static_cast<std::size_t>(m),
                                  std::span(work.found).subspan(begin, work.ends[which + 1] - begin));
            }
            out.put(row, work.combiner.best(top_k));
        }
        if (monitor) monitor->done += static_cast<std::uint64_t>(last - first);
    });
    return out.take();
}

}  // namespace carya
