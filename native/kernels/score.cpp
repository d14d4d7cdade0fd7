// Scores of the children of the nodes in a beam: weights are gathered from packed blocks, then joined with the
// parents'.

#include "../layouts/dispatch.hpp"
#include "kernels.hpp"
#include "lanes.hpp"

namespace carya::CARYA_ISA {

namespace {

// Blocks are read at random from memory far larger than the caches: they are asked for this many features ahead.
constexpr std::int64_t kStartsAhead = 12;
constexpr std::int64_t kBlocksAhead = 6;

template <class Id, class Child, class Weight, class Start>
void add_blocks(const PackedWeights& w, const Start* starts, const std::int32_t* features, const float* values,
                std::int64_t count, const std::uint32_t* base, float* sums, [[maybe_unused]] std::int64_t room) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (i + kStartsAhead < count) __builtin_prefetch(starts + features[i + kStartsAhead]);
        if (i + kBlocksAhead < count) {
            const std::uint8_t* ahead = w.data + starts[features[i + kBlocksAhead]];
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        const std::int64_t first = starts[features[i]];
        const Block<Id, Child, Weight> block(w.data + first,
                                             static_cast<std::int64_t>(starts[features[i] + 1]) - first);
        const float x = values[i];
        std::int64_t at = 0;
        for (std::int64_t c = 0; c < block.n; ++c) {
            std::int64_t end = at + block.count(c);
            const std::int64_t chunk = block.chunk(c);
            if (sizeof(Id) > 2 && chunk >= w.chunks) break;  // the table of narrow ids has room for all of them
            const std::uint32_t to = base[chunk];
            if (to != 0) {
                if (end > block.m) end = block.m;
                float* out = sums + to;
                for (std::int64_t e = at; e < end; ++e) {
                    const std::int64_t child = block.child(e);
                    if (sizeof(Child) > 2 && to + child >= room) continue;  // sums have room for any narrow child
                    out[child] += x * block.weight(e);
                }
            }
            at = end;
        }
    }
}

// max(0, 1 - h)^p. Whole powers are by far the most used.
template <int N>
typename Lanes<N>::Float shortfall(typename Lanes<N>::Float h, float power) {
    using L = Lanes<N>;
    using Float = typename L::Float;
    const Float below = L::max(1.0F - h, L::same(0.0F));
    const int whole = static_cast<int>(power);
    if (static_cast<float>(whole) == power && whole <= 8) {
        Float out = below;
        for (int i = 1; i < whole; ++i) out *= below;
        return out;
    }
    Float out;
    for (int l = 0; l < N; ++l) out[l] = __builtin_powf(below[l], power);
    return out;
}

template <int N>
typename Lanes<N>::Float log_sigmoid(typename Lanes<N>::Float h) {
    typename Lanes<N>::Float out;
    for (int l = 0; l < N; ++l)
        out[l] = (h[l] < 0.0F ? h[l] : 0.0F) - __builtin_log1pf(__builtin_expf(-__builtin_fabsf(h[l])));
    return out;
}

}  // namespace

void add_packed(const PackedWeights& w, const std::int32_t* features, const float* values, std::int64_t count,
                const std::uint32_t* base, float* sums, std::int64_t room) {
    for_form(w.form, [&]<class Id, class Child, class Weight>() {
        if (w.narrow)
            add_blocks<Id, Child, Weight>(w, w.narrow, features, values, count, base, sums, room);
        else
            add_blocks<Id, Child, Weight>(w, w.wide, features, values, count, base, sums, room);
    });
}

void join_scores(const Transform& transform, bool in_logs, float parent, float scale, const float* offsets,
                 std::int64_t count, float* sums) {
    using L = Lanes<16>;
    using Float = L::Float;
    const Float least = L::same(-3.0e38F);
    const Float most = L::same(3.0e38F);
    for (std::int64_t i = 0; i < count; i += 16) {
        alignas(64) float offset[16] = {};
        const std::int64_t here = count - i < 16 ? count - i : 16;
        __builtin_memcpy(offset, offsets + i, static_cast<std::size_t>(here) * sizeof(float));
        Float h = L::at(sums + i) * scale + L::at(offset);
        switch (transform.kind) {
            case Transform::noop: break;
            case Transform::sigmoid: h = parent * (1.0F / (1.0F + L::exp(-h))); break;
            case Transform::log_sigmoid: h = parent + log_sigmoid<16>(h); break;
            case Transform::log_hinge: h = parent - shortfall<16>(h, transform.power); break;
            case Transform::hinge:
                h = in_logs ? parent - shortfall<16>(h, transform.power)
                            : parent * L::exp(-shortfall<16>(h, transform.power));
                break;
        }
        h = L::min(h, most);
        L::at(sums + i) = h > least ? h : least;  // infinite, or no number at all: last, and no trouble to sorting
    }
}

}  // namespace carya::CARYA_ISA
