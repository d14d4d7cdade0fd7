#include "xr_linear_model.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "../core/parse_float.hpp"
#include "model_parts.hpp"

namespace carya {

namespace {

WeightDtype parse_dtype(const std::string& name) {
    if (name == "float32") return WeightDtype::float32;
    if (name == "float16") return WeightDtype::float16;
    if (name == "int8") return WeightDtype::int8;
    fail_inconsistent("unknown weight data type '" + name + "'");
}

Transform parse_transform(const std::string& name) {
    if (name == "noop") return {Transform::noop};
    if (name == "sigmoid") return {Transform::sigmoid};
    if (name == "log-sigmoid") return {Transform::log_sigmoid};
    const bool is_logarithm = name.starts_with("log-");
    const std::string_view rest = std::string_view(name).substr(is_logarithm ? 4 : 0);
    constexpr float max_power = 1000.0F;  // as in Python; from_chars also accepts "inf"
    float power = 0.0F;
    if (rest.starts_with("l") && rest.ends_with("-hinge")) {
        const char* end = rest.data() + rest.size() - 6;
        const auto [last, error] = parse_float(rest.data() + 1, end, power);
        if (error == std::errc() && last == end && power > 0.0F && power < max_power)
            return {is_logarithm ? Transform::log_hinge : Transform::hinge, power};
    }
    fail_inconsistent("unknown transform '" + name + "'");
}

constexpr std::int64_t kEarlierBitLimit = 1024;

std::int64_t bit_limit(const Json& value) {
    const std::int64_t limit = value.integer().value_or(-1);
    if (limit < 0 || limit > PackedFormat::kMaxBitChunks) fail_inconsistent("max_bit_chunks is not valid");
    return limit;
}

}  // namespace

XRLinearModel::XRLinearModel(const ModelFolder& folder, const Json& parameters) {
    const Json& shape = member(folder.manifest(), "shape");
    const std::int64_t dense_cols = size_of(shape, "dense_features");
    const std::vector<Json>& transforms = member(shape, "transforms").items();
    const std::vector<Json>& dtypes = member(shape, "precisions").items();
    if (transforms.size() != dtypes.size()) fail_inconsistent("the numbers of transforms and weight data types differ");
    const Json* bit_limits = shape.find("max_bit_chunks");  // missing in models saved by earlier versions
    if (bit_limits && bit_limits->items().size() != transforms.size())
        fail_inconsistent("max_bit_chunks must have one item per layer");
    const ArrayReader arrays(folder);
    std::vector<SearchLayer> layers;
    levels_.reserve(transforms.size());  // layers reference the elements, so they must not be moved
    std::int64_t parents = 1;
    for (std::size_t t = 0; t < transforms.size(); ++t) {
        const std::string level = std::to_string(t + 1);
        const auto parents_of_nodes = arrays.read<std::int32_t>(level + ".parents", "int32");
        levels_.push_back(group_by_parent(parents_of_nodes, parents));
        parents = static_cast<std::int64_t>(parents_of_nodes.size());
        SearchLayer layer;
        const auto starts = arrays.read<std::uint16_t>(level + ".weights.starts", "uint16");
        layer.weights.starts = {start_lines(starts.data(), starts.size()), size_of(shape, "sparse_features")};
        layer.weights.data = arrays.read<std::uint8_t>(level + ".weights.data", "uint8", false);
        layer.weights.scales = arrays.read<float>(level + ".weights.scales", "float32");
        layer.weights.format = PackedFormat::of(levels_.back().chunks, parse_dtype(dtypes[t].text().value_or("")),
                                                bit_limits ? bit_limit(bit_limits->items()[t]) : kEarlierBitLimit);
        const auto dense = arrays.read<float>(level + ".dense", "float32", false);
        if (arrays.find(level + ".dense").shape != std::vector<std::int64_t>{parents, dense_cols})
            fail_inconsistent("the dense weights have the wrong shape");
        layer.dense = {dense.data(), parents, dense_cols};
        layer.biases = arrays.read<float>(level + ".offsets", "float32");
        if (!std::all_of(layer.biases.begin(), layer.biases.end(), [](float x) { return std::isfinite(x); }))
            fail_inconsistent("a bias is NaN or infinite");
        layer.chunks = levels_.back().chunks;
        layer.order = levels_.back().order;
        layer.transform = parse_transform(transforms[t].text().value_or(""));
        layer.checksums = &folder.checksums();
        layers.push_back(layer);
    }
    beam_width_ = std::max<std::int64_t>(size_of(parameters, "beam_width"), 1);
    std::span<const std::int32_t> leaf_labels;
    if (arrays.has("leaf_labels")) leaf_labels = arrays.read<std::int32_t>("leaf_labels", "int32");
    search_ = std::make_unique<BeamSearch>(std::move(layers), std::vector<std::string>{"packed"}, leaf_labels);
}

}  // namespace carya
