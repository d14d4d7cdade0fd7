#include "beam.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/kernels.hpp"

namespace carya {

namespace {

constexpr std::int64_t kRowsPerTask = 32;
constexpr std::int64_t kLine = 16;             // floats in a cache line, and in a vector of the kernels
constexpr std::size_t kNarrowIds = 0x10000;    // chunks that a damaged id of two bytes could name
constexpr std::int64_t kMostSums = 1LL << 31;  // floats; a beam that needs more is refused

std::int64_t whole_lines(std::int64_t count) { return (count + kLine - 1) / kLine * kLine; }

// The best of what is offered. A few are kept in order. Of many, twice as many as wanted are kept and now and then cut
// in half, which costs next to nothing for each of those that are worse than the worst kept.
class Best {
public:
    Best(std::vector<Scored>& kept, std::int64_t count)
        : kept_(kept), count_(static_cast<std::size_t>(count)), few_(count <= kFew) {
        kept_.clear();
    }

    // The scores are those of a part: aligned, with room for whole vectors.
    void offer(const std::int32_t* nodes, const float* scores, std::int64_t count) {
        std::int32_t which[kPiece];
        for (std::int64_t i = 0; i < count; i += kPiece) {
            const std::int64_t found = kernels().above(scores + i, std::min(kPiece, count - i), least_, which);
            for (std::int64_t k = 0; k < found; ++k) {
                const Scored one{nodes[i + which[k]], scores[i + which[k]]};
                if (few_) {
                    insert(one);
                } else {
                    kept_.push_back(one);
                    if (kept_.size() >= 2 * count_ + kLine) cut();
                }
            }
        }
    }

    void sort() {
        if (few_) return;
        if (kept_.size() > count_) cut();
        std::sort(kept_.begin(), kept_.end(), better);
    }

private:
    static constexpr std::int64_t kPiece = 128;
    static constexpr std::int64_t kFew = 32;

    void insert(const Scored& one) {
        if (kept_.size() < count_)
            kept_.push_back(one);
        else if (!better(one, kept_.back()))
            return;
        std::size_t at = kept_.size() - 1;
        for (; at > 0 && better(one, kept_[at - 1]); --at) kept_[at] = kept_[at - 1];
        kept_[at] = one;
        if (kept_.size() == count_) least_ = kept_.back().score;
    }

    void cut() {
        const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(count_);
        std::nth_element(kept_.begin(), last - 1, kept_.end(), better);
        kept_.erase(last, kept_.end());
        least_ = kept_.back().score;
    }

    std::vector<Scored>& kept_;
    const std::size_t count_;
    const bool few_;
    float least_ = -std::numeric_limits<float>::infinity();
};

bool has_features(const Query& query, std::int64_t dense_cols) {
    const auto set = [](float x) { return x != 0.0F; };
    return std::any_of(query.values.begin(), query.values.end(), set) ||
           std::any_of(query.dense, query.dense + dense_cols, set);
}

template <class Body>
void each_row(std::int64_t rows, int threads, Monitor* monitor, const Body& body) {
    if (monitor) monitor->total = static_cast<std::uint64_t>(rows);
    std::vector<BeamSearch::Work> works(threads);
    parallel_each(rows, kRowsPerTask, threads, monitor,
                  [&](int worker, std::int64_t row) { body(row, works[worker]); });
}

}  // namespace

Query query_of(const Features& queries, std::int64_t row) {
    const auto begin = static_cast<std::size_t>(queries.sparse.begin(row));
    const auto length = static_cast<std::size_t>(queries.sparse.length(row));
    return {queries.sparse.indices.subspan(begin, length), queries.sparse.values.subspan(begin, length),
            queries.dense.row(row)};
}

BeamSearch::BeamSearch(std::vector<SearchLayer> layers, const std::vector<std::string>& layouts,
                       std::span<const std::int32_t> leaf_labels)
    : layers_(std::move(layers)), leaf_labels_(leaf_labels) {
    if (layers_.empty()) throw std::invalid_argument("a model needs at least one layer");
    if (layouts.size() != 1 && layouts.size() != layers_.size())
        throw std::invalid_argument("there must be one layout, or one for each layer");
    in_logs_ = std::all_of(layers_.begin(), layers_.end(),
                           [](const SearchLayer& layer) { return layer.transform.kind == Transform::hinge; });
    std::int64_t parents = 1;
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        check_layer(t, parents);
        const std::string& layout = layouts[layouts.size() == 1 ? 0 : t];
        if (layer.seal && layout != "packed") layer.seal->need(layer.weights.data.data(), layer.weights.data.size());
        layouts_.push_back(make_layout(layout, layer.weights, layer.chunks));
        parents = static_cast<std::int64_t>(layer.order.size());
    }
    check_leaf_labels();
    // A child scores no higher than its parent if a logarithm of at most 0 is added, or if a score that cannot be
    // negative, as a product of such forms is, is multiplied by at most 1.
    std::vector<bool> falls_into(layers_.size());
    bool product = true;
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const Transform& transform = layers_[t].transform;
        falls_into[t] = transform.adds() || (transform.multiplies() && product);
        product = product && transform.multiplies();
    }
    falls_.assign(layers_.size(), true);
    for (std::size_t t = layers_.size() - 1; t-- > 0;) falls_[t] = falls_[t + 1] && falls_into[t + 1];
}

void BeamSearch::check_layer(std::size_t t, std::int64_t parents) const {
    const SearchLayer& layer = layers_[t];
    const std::string name = "layer " + std::to_string(t);
    const auto refuse = [&](const char* what) { throw std::invalid_argument(name + " " + what); };
    const auto nodes = static_cast<std::int64_t>(layer.order.size());
    if (static_cast<std::int64_t>(layer.chunks.size()) != parents + 1 || layer.chunks.front() != 0 ||
        layer.chunks.back() != nodes || !std::is_sorted(layer.chunks.begin(), layer.chunks.end()))
        refuse("has chunks that do not cover its nodes once for each parent");
    std::vector<bool> placed(layer.order.size());
    for (const std::int32_t node : layer.order) {
        if (node < 0 || node >= nodes || placed[node]) refuse("has an order that is no permutation");
        placed[node] = true;
    }
    layer.weights.check(parents, name.c_str());
    if (layer.weights.features() != sparse_cols()) refuse("has weights for another number of sparse features");
    if (layer.dense.cols != dense_cols() || (dense_cols() > 0 && layer.dense.rows != nodes))
        refuse("has dense weights of another shape");
    if (static_cast<std::int64_t>(layer.offsets.size()) != nodes) refuse("has another number of offsets than nodes");
}

void BeamSearch::check_leaf_labels() {
    if (leaf_labels_.empty()) return;
    if (static_cast<std::int64_t>(leaf_labels_.size()) != n_leaves())
        throw std::invalid_argument("there must be one label for each leaf");
    std::int32_t before = -1;
    std::int64_t same = 0;
    for (const std::int32_t label : leaf_labels_) {
        if (label < 0 || (label != before && label != before + 1))
            throw std::invalid_argument("the labels of the leaves must ascend without gaps, from 0");
        same = label == before ? same + 1 : 1;
        most_leaves_ = std::max(most_leaves_, same);
        before = label;
    }
}

bool BeamSearch::takes(const Query& query) const {
    if (query.indices.size() != query.values.size()) return false;
    std::int64_t before = -1;
    for (std::size_t i = 0; i < query.indices.size(); ++i) {
        if (query.indices[i] <= before || !std::isfinite(query.values[i])) return false;
        before = query.indices[i];
    }
    return before < sparse_cols() &&
           std::all_of(query.dense, query.dense + dense_cols(), [](float x) { return std::isfinite(x); });
}

// That what the query is about to touch is as it was saved.
void BeamSearch::verify(const SearchLayer& layer, const Query& query, const Work& work) const {
    const PackedView& weights = layer.weights;
    for (const std::int32_t feature : query.indices) {
        const BlockPlace place = weights.starts[feature];
        layer.seal->need(weights.data.data() + place.begin, static_cast<std::size_t>(place.end - place.begin));
        if (!place.large) continue;
        const std::span<const std::uint8_t> block = weights.block(place);
        layer.seal->need(block.data(), block.size());
    }
    if (layer.dense.cols == 0) return;
    for (const Part& part : work.parts)
        layer.seal->need(layer.dense.row(part.begin),
                         static_cast<std::size_t>(part.size() * layer.dense.cols) * sizeof(float));
}

// Path scores of all children of work.parts, whose parent and score are set, at each part's base in the sums.
void BeamSearch::score(std::size_t t, const Query& query, Work& work) const {
    const SearchLayer& layer = layers_[t];
    const Layout& layout = *layouts_[t];
    std::int64_t used = kLine;  // a base is never 0
    for (Part& part : work.parts) {
        part.begin = layer.chunks[part.parent];
        part.end = layer.chunks[part.parent + 1];
        part.base = static_cast<std::uint32_t>(used);
        used += whole_lines(part.size());
        if (used > kMostSums) throw std::invalid_argument("the beam is too wide for so many labels");
    }
    if (layer.seal && !layer.seal->whole()) verify(layer, query, work);
    Scratch& scratch = work.scratch;
    const std::size_t chunks = std::max(kNarrowIds, layer.chunks.size());
    if (scratch.base.size() < chunks) scratch.base.resize(chunks, 0);
    scratch.room = used + padding(layer.weights.form);
    float* sums = scratch.sums.reserve(static_cast<std::size_t>(scratch.room));
    std::fill_n(sums, used + kTouched, 0.0F);
    layout.add(query, work.parts, scratch);
    for (const Part& part : work.parts) {
        float* out = sums + part.base;
        float scale = layout.scale(part.parent);
        if (layer.dense.cols > 0) {
            for (std::int64_t i = 0; i < part.size(); ++i)
                out[i] = out[i] * scale + kernels().dot(query.dense, layer.dense.row(part.begin + i), layer.dense.cols);
            scale = 1.0F;
        }
        kernels().join_scores(layer.transform, in_logs_, part.score, scale, layer.offsets.data() + part.begin,
                              part.size(), out);
    }
}

float BeamSearch::shown(float score) const { return in_logs_ ? std::exp(score) : score; }

std::span<const Scored> BeamSearch::rank(const Query& query, const Question& question, Work& work) const {
    work.beam.clear();
    if (!has_features(query, dense_cols())) return work.beam;
    work.beam.push_back({0, neutral()});
    // A hair below what is asked for, so that rounding never cuts a path whose label would just pass.
    const float least = in_logs_ ? (question.min_score > 0.0F ? std::log(question.min_score) - 1e-3F
                                                              : -std::numeric_limits<float>::infinity())
                                 : question.min_score - 1e-3F * std::fabs(question.min_score);
    for (std::size_t t = 0; t < layers_.size(); ++t) {
        const SearchLayer& layer = layers_[t];
        const bool last = t + 1 == layers_.size();
        work.parts.clear();
        for (const Scored& node : work.beam)
            if (t == 0 || !falls_[t - 1] || !(node.score < least))
                work.parts.push_back({node.node, node.score, 0, 0, 0});
        std::sort(work.parts.begin(), work.parts.end(),
                  [](const Part& a, const Part& b) { return a.parent < b.parent; });
        score(t, query, work);
        // No more than there are nodes: a caller may ask for as many as a number can say.
        const auto nodes = std::max<std::int64_t>(static_cast<std::int64_t>(layer.order.size()), 1);
        // A label is as good as the best of its leaves; so many leaves hold top_k labels for sure.
        const std::int64_t labels = std::min(question.top_k, nodes) * most_leaves_;
        Best best(work.found, std::min(last ? labels : question.beam_width, nodes));
        // The best parents first: few children of the others are then good enough to be looked at.
        std::sort(work.parts.begin(), work.parts.end(), [](const Part& a, const Part& b) { return a.score > b.score; });
        for (const Part& part : work.parts)
            best.offer(layer.order.data() + part.begin, work.scratch.sums.data() + part.base, part.size());
        best.sort();
        std::swap(work.beam, work.found);
    }
    if (!leaf_labels_.empty()) leaves_to_labels(work.beam, question.top_k);
    for (Scored& label : work.beam) label.score = shown(label.score);
    while (!work.beam.empty() && work.beam.back().score < question.min_score) work.beam.pop_back();
    return work.beam;
}

// The labels of some leaves, each once with its best score.
void BeamSearch::leaves_to_labels(std::vector<Scored>& found, std::int64_t top_k) const {
    for (Scored& one : found) one.node = leaf_labels_[one.node];
    std::sort(found.begin(), found.end(),
              [](const Scored& a, const Scored& b) { return a.node != b.node ? a.node < b.node : a.score > b.score; });
    const auto same = [](const Scored& a, const Scored& b) { return a.node == b.node; };
    found.erase(std::unique(found.begin(), found.end(), same), found.end());
    std::sort(found.begin(), found.end(), better);
    if (std::ssize(found) > top_k) found.resize(static_cast<std::size_t>(top_k));
}

BeamSearch::Borrowed::Borrowed(const BeamSearch& owner) : search(owner) {
    {
        const std::lock_guard held(search.lock_);
        if (!search.pool_.empty()) {
            work = std::move(search.pool_.back());
            search.pool_.pop_back();
        }
    }
    if (work) return;
    work = std::make_unique<Work>();
    const std::lock_guard held(search.lock_);
    search.pool_.reserve(++search.made_);  // giving it back must not fail
}

BeamSearch::Borrowed::~Borrowed() {
    const std::lock_guard held(search.lock_);
    search.pool_.push_back(std::move(work));
}

// More labels than this no query can get: what is set aside for answers is that much for each.
std::int64_t BeamSearch::most_labels(std::int64_t beam_width) const {
    const std::span<const std::int64_t> chunks = layers_.back().chunks;
    std::int64_t widest = 0;
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) widest = std::max(widest, chunks[c + 1] - chunks[c]);
    return beam_width < n_leaves() ? std::min(n_labels(), beam_width * widest) : n_labels();
}

Csr BeamSearch::predict(const Features& queries, Question question, int threads, Monitor* monitor) const {
    const std::int64_t rows = queries.rows();
    question.top_k = std::min(question.top_k, most_labels(question.beam_width));
    RankedRows out(rows, n_labels(), question.top_k);
    each_row(rows, threads, monitor,
             [&](std::int64_t row, Work& work) { out.put(row, rank(query_of(queries, row), question, work)); });
    return out.take();
}

const std::vector<BeamSearch::Places>& BeamSearch::places() const {
    std::call_once(places_known_, [&] {
        std::vector<Places> all;
        for (const SearchLayer& layer : layers_) {
            Places places{std::vector<std::int32_t>(layer.order.size()), std::vector<std::int64_t>(layer.order.size())};
            for (std::size_t p = 0; p + 1 < layer.chunks.size(); ++p)
                for (std::int64_t at = layer.chunks[p]; at < layer.chunks[p + 1]; ++at) {
                    places.parent[layer.order[at]] = static_cast<std::int32_t>(p);
                    places.position[layer.order[at]] = at;
                }
            all.push_back(std::move(places));
        }
        places_ = std::move(all);
    });
    return places_;
}

void BeamSearch::score_selected(const Query& query, std::span<const std::int32_t> labels, float* out,
                                Work& work) const {
    work.nodes.resize(layers_.size());
    std::vector<std::int32_t>& leaves = work.nodes.back();
    if (leaf_labels_.empty()) {
        leaves.assign(labels.begin(), labels.end());
        score_leaves(query, work);
        for (std::size_t i = 0; i < labels.size(); ++i) out[i] = shown(work.scores[i]);
        return;
    }
    leaves.clear();
    for (const std::int32_t label : labels) {
        const auto [first, last] = std::equal_range(leaf_labels_.begin(), leaf_labels_.end(), label);
        for (auto leaf = first; leaf != last; ++leaf)
            leaves.push_back(static_cast<std::int32_t>(leaf - leaf_labels_.begin()));
    }
    score_leaves(query, work);
    for (std::size_t i = 0, leaf = 0; i < labels.size(); ++i) {
        float best = work.scores[leaf];
        for (; leaf < leaves.size() && leaf_labels_[leaves[leaf]] == labels[i]; ++leaf)
            best = std::max(best, work.scores[leaf]);
        out[i] = shown(best);
    }
}

// Scores, for the leaves in work.nodes.back(), the chunks on the way from the root to each, and nothing else.
void BeamSearch::score_leaves(const Query& query, Work& work) const {
    const std::size_t depth = layers_.size();
    const std::vector<Places>& at = places();
    for (std::size_t t = depth - 1; t > 0; --t) {  // the parents of what is wanted below
        std::vector<std::int32_t>& above = work.nodes[t - 1];
        above.clear();
        for (const std::int32_t node : work.nodes[t]) above.push_back(at[t].parent[node]);
        std::sort(above.begin(), above.end());
        above.erase(std::unique(above.begin(), above.end()), above.end());
    }
    work.scores.assign(1, neutral());
    for (std::size_t t = 0; t < depth; ++t) {
        work.parts.clear();
        if (t == 0)
            work.parts.push_back({0, neutral(), 0, 0, 0});
        else
            for (std::size_t i = 0; i < work.nodes[t - 1].size(); ++i)
                work.parts.push_back({work.nodes[t - 1][i], work.scores[i], 0, 0, 0});
        score(t, query, work);
        work.scores.clear();
        for (const std::int32_t node : work.nodes[t]) {
            const auto part = std::lower_bound(work.parts.begin(), work.parts.end(), at[t].parent[node],
                                               [](const Part& p, std::int32_t parent) { return p.parent < parent; });
            work.scores.push_back(work.scratch.sums.data()[part->base + (at[t].position[node] - part->begin)]);
        }
    }
}

std::vector<float> BeamSearch::selected(const Features& queries, const CsrView& candidates, int threads,
                                        Monitor* monitor) const {
    std::vector<float> scores(candidates.indices.size());
    each_row(queries.rows(), threads, monitor, [&](std::int64_t row, Work& work) {
        const auto begin = static_cast<std::size_t>(candidates.begin(row));
        const auto length = static_cast<std::size_t>(candidates.length(row));
        if (length > 0)
            score_selected(query_of(queries, row), candidates.indices.subspan(begin, length), scores.data() + begin,
                           work);
    });
    return scores;
}

}  // namespace carya
