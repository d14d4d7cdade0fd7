#include "ensemble.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace carya {

namespace {

constexpr std::int64_t kMaxRowsPerMember = 1024;
constexpr std::int64_t kMaxBufferedLabels = 1 << 20;  // per thread

float place_score(std::size_t place) { return 1.0F / (1.0F + static_cast<float>(place)); }

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

void check_weights(std::size_t members, std::span<const float> weights) {
    if (members == 0) throw std::invalid_argument("An ensemble must have at least one member.");
    if (weights.size() != members)
        throw std::invalid_argument("weights must have one entry for each of the " + std::to_string(members) +
                                    " members, got " + std::to_string(weights.size()) + ".");
    float sum = 0.0F;
    for (const float weight : weights) {
        if (!(weight >= 0.0F) || !std::isfinite(weight))
            throw std::invalid_argument("weights must be finite and >= 0.");
        sum += weight;
    }
    if (!(sum > 0.0F)) throw std::invalid_argument("weights must contain at least one positive value.");
}

}  // namespace

Combiner::Combiner(CombineMethod method, std::span<const float> weights) : method_(method), weights_(weights) {
    if (method != CombineMethod::round_robin) return;
    std::vector<std::size_t> members(weights.size());
    std::iota(members.begin(), members.end(), std::size_t{0});
    std::stable_sort(members.begin(), members.end(),
                     [&](std::size_t a, std::size_t b) { return weights_[a] > weights_[b]; });
    turns_.resize(members.size());
    for (std::size_t turn = 0; turn < members.size(); ++turn) turns_[members[turn]] = turn;
}

void Combiner::add(std::size_t member, std::span<const ScoredNode> ranking) {
    const float weight = weights_[member];
    float total = 0.0F;
    if (method_ == CombineMethod::softmax)
        for (const ScoredNode& entry : ranking) total += std::exp(entry.score - ranking.front().score);
    const auto count = static_cast<float>(ranking.size());
    for (std::size_t i = 0; i < ranking.size(); ++i) {
        const float score = ranking[i].score;
        float value = 0.0F;
        switch (method_) {
            case CombineMethod::mean: value = score; break;
            case CombineMethod::rank: value = (count - static_cast<float>(i)) / count; break;
            case CombineMethod::count: value = 1.0F; break;
            case CombineMethod::softmax: value = std::exp(score - ranking.front().score) / total; break;
            case CombineMethod::sigmoid: value = sigmoid(score); break;
            case CombineMethod::round_robin:
                if (!(weight > 0.0F)) return;
                votes_.push_back({ranking[i].node, place_score(i * turns_.size() + turns_[member]), score});
                continue;
        }
        votes_.push_back({ranking[i].node, weight * value, weight * score});
    }
}

std::span<const ScoredNode> Combiner::top(std::int64_t top_k) {
    std::stable_sort(votes_.begin(), votes_.end(), [](const Vote& a, const Vote& b) { return a.label < b.label; });
    const float sum = std::accumulate(weights_.begin(), weights_.end(), 0.0F);
    // Smaller than one vote, so that the mean score only breaks ties between labels with the same number of votes.
    const float tie =
        method_ == CombineMethod::count ? 0.5F * *std::min_element(weights_.begin(), weights_.end()) : 0.0F;
    ranking_.clear();
    for (std::size_t i = 0; i < votes_.size();) {
        const std::int32_t label = votes_[i].label;
        float value = 0.0F;
        float score = 0.0F;
        for (; i < votes_.size() && votes_[i].label == label; ++i) {
            value = method_ == CombineMethod::round_robin ? std::max(value, votes_[i].value) : value + votes_[i].value;
            score += votes_[i].score;
        }
        if (tie > 0.0F) value += tie * sigmoid(score / sum);
        ranking_.push_back({label, method_ == CombineMethod::round_robin ? value : value / sum});
    }
    const auto kept = std::min<std::int64_t>(top_k, std::ssize(ranking_));
    std::partial_sort(ranking_.begin(), ranking_.begin() + kept, ranking_.end(), ranks_before);
    ranking_.resize(static_cast<std::size_t>(kept));
    return ranking_;
}

Csr combine(std::span<const CsrView> rankings, CombineMethod method, std::span<const float> weights, std::int64_t top_k,
            int threads) {
    SearchOptions{.top_k = top_k}.check();
    check_weights(rankings.size(), weights);
    const std::int64_t rows = rankings.front().rows();
    std::int64_t max_labels = 0;
    for (const CsrView& matrix : rankings) {
        if (matrix.rows() != rows || matrix.cols != rankings.front().cols)
            throw std::invalid_argument("The rankings must have the same shape.");
        std::int64_t longest = 0;
        for (std::int64_t row = 0; row < rows; ++row) longest = std::max(longest, matrix.length(row));
        max_labels += longest;
    }
    top_k = std::min(top_k, max_labels);
    RankedRows out(rows, rankings.front().cols, top_k);
    struct Workspace {
        Combiner combiner;
        std::vector<ScoredNode> ranking;
    };
    std::vector<Workspace> workspaces(static_cast<std::size_t>(threads), Workspace{Combiner(method, weights), {}});
    parallel_each(rows, kSearchRowsPerTask, threads, nullptr, [&](int w, std::int64_t row) {
        Workspace& workspace = workspaces[w];
        workspace.combiner.clear();
        for (std::size_t m = 0; m < rankings.size(); ++m) {
            workspace.ranking.clear();
            for (std::int64_t e = rankings[m].begin(row); e < rankings[m].end(row); ++e)
                workspace.ranking.push_back({rankings[m].indices[e], rankings[m].values[e]});
            workspace.combiner.add(m, workspace.ranking);
        }
        out.set_row(row, workspace.combiner.top(top_k));
    });
    return out.to_csr();
}

Csr predict_combined(std::span<const BeamSearch* const> members, const Features& queries, const SearchOptions& options,
                     std::int64_t pool_size, CombineMethod method, std::span<const float> weights, int threads,
                     Monitor* monitor) {
    options.check();
    if (pool_size < 1) throw std::invalid_argument("pool_size must be >= 1, got " + std::to_string(pool_size) + ".");
    check_weights(members.size(), weights);
    const std::int64_t rows = queries.rows();
    const std::int64_t labels = members.front()->n_labels();
    const auto count = static_cast<std::int64_t>(members.size());
    const std::int64_t top_k = std::min({options.top_k, labels, pool_size * count});
    SearchOptions member_options = options;
    member_options.top_k = std::clamp<std::int64_t>(labels, 1, pool_size);  // a damaged model may have no labels
    RankedRows out(rows, labels, top_k);
    struct Workspace {
        Combiner combiner;
        BeamSearch::Workspace search;
        std::vector<ScoredNode> labels_found;  // by member, then by row
        std::vector<std::size_t> ends;
    };
    std::vector<Workspace> workspaces;
    for (int w = 0; w < threads; ++w) workspaces.push_back({Combiner(method, weights), {}, {}, {}});
    const std::int64_t labels_per_row = count * member_options.top_k;
    // Search many rows with one member before searching them with the next member, so that weights that are used by
    // several rows remain in the cache.
    const std::int64_t max_rows = std::min(kMaxRowsPerMember, kMaxBufferedLabels / labels_per_row + 1);
    const std::int64_t rows_per_task = std::clamp<std::int64_t>(rows / (4 * threads), 1, max_rows);
    if (monitor) monitor->total = static_cast<std::uint64_t>(rows);
    parallel_for((rows + rows_per_task - 1) / rows_per_task, threads, monitor, [&](int w, std::int64_t task) {
        Workspace& workspace = workspaces[w];
        const std::int64_t first = task * rows_per_task;
        const std::int64_t last = std::min(rows, first + rows_per_task);
        workspace.labels_found.clear();
        workspace.ends.assign(1, 0);
        for (const BeamSearch* member : members)
            for (std::int64_t row = first; row < last; ++row) {
                if (monitor && monitor->stop.load(std::memory_order_relaxed)) return;
                const std::span<const ScoredNode> ranking =
                    member->rank(query_of_row(queries, row), member_options, workspace.search);
                workspace.labels_found.insert(workspace.labels_found.end(), ranking.begin(), ranking.end());
                workspace.ends.push_back(workspace.labels_found.size());
            }
        for (std::int64_t row = first; row < last; ++row) {
            workspace.combiner.clear();
            for (std::int64_t m = 0; m < count; ++m) {
                const auto index = static_cast<std::size_t>(m * (last - first) + row - first);
                const std::size_t begin = workspace.ends[index];
                workspace.combiner.add(
                    static_cast<std::size_t>(m),
                    std::span(workspace.labels_found).subspan(begin, workspace.ends[index + 1] - begin));
            }
            out.set_row(row, workspace.combiner.top(top_k));
        }
        if (monitor) monitor->done += static_cast<std::uint64_t>(last - first);
    });
    return out.to_csr();
}

}  // namespace carya
