#include "xr_linear_model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace carya {

namespace {

[[noreturn]] void fail_inconsistent(const std::string& problem) {
    throw std::invalid_argument("The parts of the model are inconsistent: " + problem + ".");
}

const Json& member(const Json& object, const char* name) {
    const Json* value = object.find(name);
    if (!value) fail_inconsistent(std::string(name) + " is missing");
    return *value;
}

std::int64_t size_of(const Json& object, const char* name) {
    const std::int64_t size = member(object, name).integer().value_or(-1);
    if (size < 0 || size > std::numeric_limits<std::int32_t>::max())
        fail_inconsistent(std::string(name) + " is not a valid size");
    return size;
}

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
    float power = 0.0F;
    if (rest.starts_with("l") && rest.ends_with("-hinge")) {
        const char* end = rest.data() + rest.size() - 6;
        const auto [last, error] = std::from_chars(rest.data() + 1, end, power);
        if (error == std::errc() && last == end && power > 0.0F)
            return {is_logarithm ? Transform::log_hinge : Transform::hinge, power};
    }
    fail_inconsistent("unknown transform '" + name + "'");
}

// Typed access to the arrays in a folder. `verify` is false for arrays that are verified on first use.
class ArrayReader {
public:
    explicit ArrayReader(const ModelFolder& folder) : folder_(folder) {}

    template <class T>
    std::span<const T> read(const std::string& name, const char* dtype, bool verify = true) const {
        const StoredArray& array = find(name);
        if (array.dtype != dtype) fail_inconsistent("array " + name + " has the unexpected data type " + array.dtype);
        if (verify) folder_.checksums().verify(array.bytes.data(), array.bytes.size());
        return {reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)};
    }

    bool has(const std::string& name) const {
        return std::any_of(folder_.arrays().begin(), folder_.arrays().end(),
                           [&](const StoredArray& array) { return array.name == name; });
    }

    const StoredArray& find(const std::string& name) const {
        for (const StoredArray& array : folder_.arrays())
            if (array.name == name) return array;
        fail_inconsistent("array " + name + " is missing");
    }

private:
    const ModelFolder& folder_;
};

}  // namespace

XRLinearModel::XRLinearModel(const std::string& path) : folder_(path) {
    const Json& manifest = folder_.manifest();
    if (manifest.find("kind")->text() != "xr-linear")
        throw FormatError(path +
                          " is not an XR-Linear model. The C interface supports only models of kind 'xr-linear'.");
    try {
        const Json& shape = *manifest.find("shape");
        const std::int64_t dense_cols = size_of(shape, "dense_features");
        const std::vector<Json>& transforms = member(shape, "transforms").items();
        const std::vector<Json>& dtypes = member(shape, "precisions").items();
        if (transforms.size() != dtypes.size())
            fail_inconsistent("the numbers of transforms and weight data types differ");
        const ArrayReader arrays(folder_);
        std::vector<SearchLayer> layers;
        levels_.reserve(transforms.size());  // because layers reference its elements
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
            layer.weights.format = PackedFormat::of(levels_.back().chunks, parse_dtype(dtypes[t].text().value_or("")));
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
            layer.checksums = &folder_.checksums();
            layers.push_back(layer);
        }
        beam_width_ = std::max<std::int64_t>(size_of(member(manifest, "parameters"), "beam_width"), 1);
        std::span<const std::int32_t> leaf_labels;
        if (arrays.has("leaf_labels")) leaf_labels = arrays.read<std::int32_t>("leaf_labels", "int32");
        search_ = std::make_unique<BeamSearch>(std::move(layers), std::vector<std::string>{"packed"}, leaf_labels);
    } catch (const std::invalid_argument& error) {
        throw FormatError(path + ": " + error.what());
    }
}

}  // namespace carya
