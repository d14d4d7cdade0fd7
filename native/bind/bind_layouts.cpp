#include <nanobind/stl/vector.h>

#include "../layouts/packing.hpp"
#include "arrays.hpp"
#include "chunked_weights.hpp"
#include "packed_arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_layouts(nb::module_& m) {
    nb::enum_<WeightDtype>(m, "WeightDtype")
        .value("float32", WeightDtype::float32)
        .value("float16", WeightDtype::float16)
        .value("int8", WeightDtype::int8);

    m.def(
        "pack",
        [](const CheckedCsr& weights, Array<std::int64_t> chunks, WeightDtype dtype, int threads, Array<float> scales) {
            Packed out;
            {
                const ReleasedGil released;
                if (chunks.size() < 1 || span(chunks).back() != weights.view.cols)
                    throw std::invalid_argument("chunks must cover all columns of weights.");
                out = pack(weights.view, span(chunks), dtype, threads, span(scales));
            }
            return packed_to_numpy(std::move(out));
        },
        "weights"_a, "chunks"_a.noconvert(), "dtype"_a, "threads"_a, "scales"_a,
        "Pack a weight matrix of shape (features, positions) for searching and return (starts, data, scales, "
        "n_weights, n_used). If scales is empty, the scales of int8 weights are computed.");

    nb::class_<PyChunkedWeights>(m, "ChunkedWeights", "The weights of consecutive chunks of a layer.")
        .def(nb::init<Array<std::int64_t>, std::int64_t, WeightDtype, Array<std::int64_t>, Array<std::int64_t>,
                      Array<std::int32_t>, Array<std::uint8_t>, Array<std::uint8_t>, Array<std::uint8_t>,
                      Array<float>>(),
             "chunks"_a.noconvert(), "n_features"_a, "dtype"_a, "run_counts"_a.noconvert(),
             "weight_counts"_a.noconvert(), "features"_a.noconvert(), "counts"_a.noconvert(), "children"_a.noconvert(),
             "values"_a.noconvert(), "scales"_a.noconvert())
        .def("arrays", &PyChunkedWeights::arrays, "Return copies of the arrays from which the object can be restored.");

    m.attr("MAX_BIT_CHUNKS") = PackedFormat::kMaxBitChunks;
    m.def(
        "pack_chunks",
        [](const std::vector<PyChunkedWeights*>& parts, Array<std::int64_t> chunks, std::int64_t n_features,
           WeightDtype dtype, int threads) {
            std::vector<ChunkWeightsView> weights;
            // The memory of small layers is not discarded, because the system calls would take longer than the packing.
            std::size_t min_discarded_bytes = std::size_t{1} << 28;
            for (const PyChunkedWeights* part : parts) {
                weights.insert(weights.end(), part->chunks().begin(), part->chunks().end());
                if (!part->owns_weights()) min_discarded_bytes = std::numeric_limits<std::size_t>::max();
            }
            Packed out;
            {
                const ReleasedGil released;
                out = pack(weights, span(chunks), n_features, dtype, threads, min_discarded_bytes);
                for (PyChunkedWeights* part : parts) part->clear();
            }
            return packed_to_numpy(std::move(out));
        },
        "parts"_a, "chunks"_a.noconvert(), "n_features"_a, "dtype"_a, "threads"_a,
        "Pack the weights of all chunks of a layer and return (starts, data, scales, n_weights, n_used). The parts are "
        "empty afterward, because their memory is released while they are packed.");
}

}  // namespace carya::bind
