// Fuzz target: packed weights with arbitrary blocks, unpacked and searched in every layout.

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../native/layouts/layout.hpp"
#include "../../native/layouts/packed_weights.hpp"
#include "../../native/search/beam_search.hpp"

namespace {

using namespace carya;

// One level of a tree whose blocks come from the fuzzer.
struct Level {
    std::vector<std::int64_t> chunks{0};
    std::vector<std::int32_t> order;
    std::vector<StartLine> lines;
    std::vector<float> scales;
    std::vector<std::uint8_t> data;
    std::vector<float> biases;
    PackedFormat format;
    std::int64_t features = 0;

    // Assigns consecutive blocks of the given sizes to the features. `flags` marks large blocks and bitmaps.
    void set_blocks(const std::vector<std::int64_t>& sizes, const std::vector<std::uint16_t>& flags) {
        features = static_cast<std::int64_t>(sizes.size());
        lines.assign(sizes.size() / StartLine::kFeatures + 1, StartLine{});
        std::int64_t end = 0;
        for (std::size_t f = 0; f <= sizes.size(); ++f) {
            StartLine& line = lines[f / StartLine::kFeatures];
            const std::size_t slot = f % StartLine::kFeatures;
            if (slot == 0) line.base = end;
            line.offsets[slot] = static_cast<std::uint16_t>(end - line.base);
            if (f < sizes.size()) {
                line.offsets[slot] |= flags[f];
                end += sizes[f];
            }
        }
    }

    SearchLayer layer(Transform transform) const {
        SearchLayer out;
        out.weights = {{lines, features}, data, scales, format};
        out.dense = {nullptr, static_cast<std::int64_t>(biases.size()), 0};
        out.biases = biases;
        out.chunks = chunks;
        out.order = order;
        out.transform = transform;
        return out;
    }

    void set_nodes(std::int64_t count) {
        order.resize(count);
        std::iota(order.begin(), order.end(), 0);
        biases.assign(count, 0.0F);
    }
};

void check(const Csr& rankings) {
    for (const float score : rankings.values)
        if (std::isnan(score)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    FuzzedDataProvider input(bytes, size);
    const auto dtype = static_cast<WeightDtype>(input.ConsumeIntegralInRange(0, 2));
    const auto n_chunks = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int64_t>(1, 40)
                                              : input.ConsumeIntegralInRange<std::int64_t>(200, 300);
    const auto chunk_size = input.ConsumeIntegralInRange<std::int64_t>(1, n_chunks > 40 ? 3 : 300);
    const auto n_features = input.ConsumeIntegralInRange<std::size_t>(1, 60);

    Level clusters;  // has no weights, so that all chunks of the second level are visited
    clusters.chunks.push_back(n_chunks);
    clusters.set_nodes(n_chunks);
    clusters.format = PackedFormat::of(clusters.chunks, WeightDtype::float32);
    clusters.set_blocks(std::vector<std::int64_t>(n_features), std::vector<std::uint16_t>(n_features));

    Level leaves;
    for (std::int64_t c = 1; c <= n_chunks; ++c) leaves.chunks.push_back(c * chunk_size);
    leaves.set_nodes(n_chunks * chunk_size);
    leaves.format = PackedFormat::of(leaves.chunks, dtype);
    if (dtype == WeightDtype::int8) leaves.scales.assign(n_chunks, 0.01F);
    std::vector<std::int64_t> sizes;
    std::vector<std::uint16_t> flags;
    for (std::size_t f = 0; f < n_features; ++f) {
        sizes.push_back(input.ConsumeIntegralInRange<std::int64_t>(0, BlockStarts::kMaxInlineBytes));
        flags.push_back(static_cast<std::uint16_t>(input.ConsumeIntegralInRange(0, 3) << 14));
    }
    leaves.set_blocks(sizes, flags);
    leaves.data = input.ConsumeRemainingBytes<std::uint8_t>();

    const PackedView packed = leaves.layer({}).weights;
    bool is_valid = false;
    try {
        packed.check(n_chunks, "weights");
        const Csr unpacked = unpack(packed, leaves.chunks);
        const std::vector<std::int32_t> positions{0};
        unpack(packed, leaves.chunks, positions);
        chunk_weight_counts(packed, leaves.chunks);
        is_valid =
            std::all_of(unpacked.values.begin(), unpacked.values.end(), [](float x) { return std::isfinite(x); });
    } catch (const std::invalid_argument&) {
    }

    std::vector<std::int32_t> indices(n_features);
    std::iota(indices.begin(), indices.end(), 0);
    const std::vector<float> values(n_features, 0.5F);
    const std::vector<std::int64_t> indptr{0, static_cast<std::int64_t>(n_features)};
    const Features queries{{indptr, indices, values, static_cast<std::int64_t>(n_features)}, {nullptr, 1, 0}};
    for (const char* layout : {"packed", "by-label", "by-feature", "hash", "search"}) try {
            const Transform transform{Transform::hinge, 3.0F};
            const BeamSearch search({clusters.layer(transform), leaves.layer(transform)}, {layout});
            for (const std::int64_t beam_width : {std::int64_t{3}, n_chunks}) {
                const Csr rankings = search.predict(queries, {10, beam_width}, 1, nullptr);
                if (is_valid) check(rankings);
            }
        } catch (const std::invalid_argument&) {
        }
    return 0;
}
