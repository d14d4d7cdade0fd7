#include "packed.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "../parallel.hpp"
#include "blocks.hpp"
#include "dispatch.hpp"
#include "runs.hpp"

namespace carya {

namespace {

constexpr std::int64_t kFeaturesPerTask = 4096;

template <class T>
std::uint8_t* put(std::uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof(T));
    return to + sizeof(T);
}

// What brings the largest weight of each chunk to 127 squared.
std::vector<float> chunk_scales(const CsrView& weights, const std::vector<std::int32_t>& chunk_of, std::size_t chunks) {
    std::vector<float> largest(chunks, 0.0F);
    for (std::size_t e = 0; e < weights.indices.size(); ++e) {
        float& most = largest[chunk_of[weights.indices[e]]];
        most = std::max(most, std::fabs(weights.values[e]));
    }
    for (float& most : largest)
        most = most > 0.0F ? std::max(most / (127.0F * 127.0F), std::numeric_limits<float>::min()) : 1.0F;
    return largest;
}

template <class Weight>
Weight encode(float value, [[maybe_unused]] float scale) {
    if constexpr (std::is_same_v<Weight, Root>) {
        const auto root = static_cast<std::int8_t>(std::min(std::lround(std::sqrt(std::fabs(value) / scale)), 127L));
        return Root{value < 0.0F ? static_cast<std::int8_t>(-root) : root};
    } else if constexpr (std::is_same_v<Weight, Half>)
        return Half{to_half(value)};
    else
        return value;
}

// In how many chunks a feature has weights.
std::int64_t count_chunks(const CsrView& weights, std::int64_t feature, const std::vector<std::int32_t>& chunk_of) {
    std::int64_t n = 0;
    each_run(weights, feature, chunk_of, [&](std::int32_t, std::int64_t, std::int64_t) { ++n; });
    return n;
}

template <class Id, class Child, class Weight>
void write_block(const CsrView& weights, std::int64_t feature, const std::vector<std::int32_t>& chunk_of,
                 std::span<const std::int64_t> chunks, std::span<const float> scales, std::uint8_t* to) {
    const std::int64_t n = count_chunks(weights, feature, chunk_of);
    std::uint8_t* ids = put(to, static_cast<Id>(n - 1));
    std::uint8_t* counts = ids + n * static_cast<std::int64_t>(sizeof(Id));
    std::uint8_t* children = counts + n * static_cast<std::int64_t>(sizeof(Child));
    std::uint8_t* values = children + weights.length(feature) * static_cast<std::int64_t>(sizeof(Child));
    each_run(weights, feature, chunk_of, [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
        const float scale = scales.empty() ? 1.0F : scales[chunk];
        ids = put(ids, static_cast<Id>(chunk));
        counts = put(counts, static_cast<Child>(end - begin - 1));
        for (std::int64_t e = begin; e < end; ++e) {
            children = put(children, static_cast<Child>(weights.indices[e] - chunks[chunk]));
            values = put(values, encode<Weight>(weights.values[e], scale));
        }
    });
}

template <class Id, class Child, class Weight>
void read_block(const PackedView& packed, std::int64_t feature, std::span<const std::int64_t> chunks, Csr& out) {
    const auto bad = [&] {
        throw std::invalid_argument("the packed weights of feature " + std::to_string(feature) + " are damaged");
    };
    const std::int64_t first = packed.starts[feature];
    const std::int64_t size = packed.starts[feature + 1] - first;
    if (size == 0) return;
    const Block<Id, Child, Weight> block(packed.data.data() + first, size);
    if (block.n == 0) bad();
    std::int64_t at = 0;
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < block.n; ++i) {
        const std::int64_t chunk = block.chunk(i);
        if (chunk >= static_cast<std::int64_t>(chunks.size()) - 1 || block.count(i) > block.m - at) bad();
        const float scale = packed.scales.empty() ? 1.0F : packed.scales[chunk];
        for (std::int64_t end = at + block.count(i); at < end; ++at) {
            const std::int64_t position = chunks[chunk] + block.child(at);
            if (position <= before || position >= chunks[chunk + 1]) bad();
            before = position;
            out.indices.push_back(static_cast<std::int32_t>(position));
            out.values.push_back(block.weight(at) * scale);
        }
    }
    if (at != block.m) bad();
}

}  // namespace

int bytes_of(Precision precision) {
    return precision == Precision::float32 ? 4 : precision == Precision::float16 ? 2 : 1;
}

PackedForm PackedForm::of(std::span<const std::int64_t> chunks, Precision precision) {
    PackedForm form;
    form.precision = precision;
    form.id_bytes = chunks.size() - 1 <= 0x10000 ? 2 : 4;
    std::int64_t largest = 0;
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) largest = std::max(largest, chunks[c + 1] - chunks[c]);
    form.child_bytes = largest <= 0x100 ? 1 : largest <= 0x10000 ? 2 : 4;
    return form;
}

void PackedView::check(std::int64_t chunks, const char* name) const {
    const auto refuse = [&](const char* what) { throw std::invalid_argument(std::string(name) + " " + what); };
    if (starts.count() == 0 || starts[0] != 0) refuse("has no first block");
    const auto grow = [](const auto& offsets) { return std::is_sorted(offsets.begin(), offsets.end()); };
    if (!grow(starts.narrow) || !grow(starts.wide)) refuse("has blocks that overlap");
    if (starts[features()] != static_cast<std::int64_t>(data.size())) refuse("has blocks of another size in all");
    const std::int64_t wanted = form.precision == Precision::int8 ? chunks : 0;
    if (static_cast<std::int64_t>(scales.size()) != wanted) refuse("has another number of scales than chunks");
    if (!std::all_of(scales.begin(), scales.end(), [](float x) { return std::isfinite(x); }))
        refuse("has a scale that is not finite");
}

Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, Precision precision, int threads) {
    const std::vector<std::int32_t> chunk_of = chunk_of_position(chunks);
    Packed out;
    out.form = PackedForm::of(chunks, precision);
    if (precision == Precision::int8) out.scales = chunk_scales(weights, chunk_of, chunks.size() - 1);
    const std::int64_t features = weights.rows();
    const PackedForm& form = out.form;
    // Arrays as long as the number of features are few: of two million features most have no weights in a layer.
    out.narrow.assign(features + 1, 0);
    std::atomic<std::int64_t> total{0};
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
        if (weights.length(f) == 0) return;
        const std::int64_t n = count_chunks(weights, f, chunk_of);
        const std::int64_t size = form.id_bytes + n * (form.id_bytes + form.child_bytes) +
                                  weights.length(f) * (form.child_bytes + bytes_of(precision));
        out.narrow[f + 1] = static_cast<std::uint32_t>(size);
        total.fetch_add(size, std::memory_order_relaxed);
    });
    if (total <= std::numeric_limits<std::uint32_t>::max()) {
        std::partial_sum(out.narrow.begin(), out.narrow.end(), out.narrow.begin());
    } else {
        out.wide.assign(out.narrow.begin(), out.narrow.end());
        std::partial_sum(out.wide.begin(), out.wide.end(), out.wide.begin());
        out.narrow = {};
    }
    out.data.resize(static_cast<std::size_t>(total));
    const BlockStarts starts{out.narrow, out.wide};
    for_form(form, [&]<class Id, class Child, class Weight>() {
        parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
            if (weights.length(f) > 0)
                write_block<Id, Child, Weight>(weights, f, chunk_of, chunks, out.scales, out.data.data() + starts[f]);
        });
    });
    return out;
}

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks) {
    Csr out;
    out.cols = chunks.back();
    for_form(packed.form, [&]<class Id, class Child, class Weight>() {
        for (std::int64_t f = 0; f < packed.features(); ++f) {
            read_block<Id, Child, Weight>(packed, f, chunks, out);
            out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
        }
    });
    return out;
}

}  // namespace carya
