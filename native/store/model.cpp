#include "model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace carya {

namespace {

[[noreturn]] void misfit(const std::string& what) {
    throw std::invalid_argument("the parts of the model do not fit together: " + what);
}

const Json& member(const Json& object, const char* name) {
    const Json* found = object.find(name);
    if (!found) misfit(std::string("there is no ") + name);
    return *found;
}

std::int64_t size_of(const Json& object, const char* name) {
    const std::int64_t size = member(object, name).integer().value_or(-1);
    if (size < 0 || size > std::numeric_limits<std::int32_t>::max()) misfit(std::string(name) + " is no size");
    return size;
}

Precision precision_named(const std::string& name) {
    if (name == "float32") return Precision::float32;
    if (name == "float16") return Precision::float16;
    if (name == "int8") return Precision::int8;
    misfit("there is no precision '" + name + "'");
}

Transform transform_named(const std::string& name) {
    if (name == "noop") return {Transform::noop};
    if (name == "sigmoid") return {Transform::sigmoid};
    if (name == "log-sigmoid") return {Transform::log_sigmoid};
    const bool logarithm = name.starts_with("log-");
    const std::string_view rest = std::string_view(name).substr(logarithm ? 4 : 0);
    float power = 0.0F;
    if (rest.starts_with("l") && rest.ends_with("-hinge")) {
        const char* end = rest.data() + rest.size() - 6;
        const auto [last, error] = std::from_chars(rest.data() + 1, end, power);
        if (error == std::errc() && last == end && power > 0.0F)
            return {logarithm ? Transform::log_hinge : Transform::hinge, power};
    }
    misfit("there is no transform '" + name + "'");
}

// The arrays of a folder by name and type, each verified unless it is to be verified as it is used.
class Arrays {
public:
    explicit Arrays(const Folder& folder) : folder_(folder) {}

    template <class T>
    std::span<const T> of(const std::string& name, const char* dtype, bool verify = true) const {
        const StoredArray& array = find(name);
        if (array.dtype != dtype) misfit("array " + name + " has type " + array.dtype);
        if (verify) folder_.seal().need(array.bytes.data(), array.bytes.size());
        return {reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)};
    }

    bool has(const std::string& name) const {
        return std::any_of(folder_.arrays().begin(), folder_.arrays().end(),
                           [&](const StoredArray& array) { return array.name == name; });
    }

    const StoredArray& find(const std::string& name) const {
        for (const StoredArray& array : folder_.arrays())
            if (array.name == name) return array;
        misfit("there is no array " + name);
    }

private:
    const Folder& folder_;
};

}  // namespace

Model::Model(const std::string& path) : folder_(path) {
    const Json& manifest = folder_.manifest();
    if (manifest.find("kind")->text() != "xr-linear")
        throw FormatError(path + " holds a model of a kind that this version of Carya does not know");
    try {
        const Json& shape = *manifest.find("shape");
        const std::int64_t dense_cols = size_of(shape, "dense_features");
        const std::vector<Json>& transforms = member(shape, "transforms").items();
        const std::vector<Json>& precisions = member(shape, "precisions").items();
        if (transforms.size() != precisions.size()) misfit("there are more transforms than precisions, or fewer");
        const Arrays arrays(folder_);
        std::vector<SearchLayer> layers;
        levels_.reserve(transforms.size());  // layers keep views of them
        std::int64_t parents = 1;
        for (std::size_t t = 0; t < transforms.size(); ++t) {
            const std::string level = std::to_string(t + 1);
            const auto parent_of = arrays.of<std::int32_t>(level + ".parents", "int32");
            levels_.push_back(group_by_parent(parent_of, parents));
            parents = static_cast<std::int64_t>(parent_of.size());
            SearchLayer layer;
            const auto starts = arrays.of<std::uint16_t>(level + ".weights.starts", "uint16");
            layer.weights.starts = {start_lines(starts.data(), starts.size()), size_of(shape, "sparse_features")};
            layer.weights.data = arrays.of<std::uint8_t>(level + ".weights.data", "uint8", false);
            layer.weights.scales = arrays.of<float>(level + ".weights.scales", "float32");
            layer.weights.form =
                PackedForm::of(levels_.back().chunks, precision_named(precisions[t].text().value_or("")));
            const auto dense = arrays.of<float>(level + ".dense", "float32", false);
            if (arrays.find(level + ".dense").shape != std::vector<std::int64_t>{parents, dense_cols})
                misfit("there are dense weights of another shape");
            layer.dense = {dense.data(), parents, dense_cols};
            layer.offsets = arrays.of<float>(level + ".offsets", "float32");
            if (!std::all_of(layer.offsets.begin(), layer.offsets.end(), [](float x) { return std::isfinite(x); }))
                misfit("there are offsets that are not finite");
            layer.chunks = levels_.back().chunks;
            layer.order = levels_.back().order;
            layer.transform = transform_named(transforms[t].text().value_or(""));
            layer.seal = &folder_.seal();
            layers.push_back(layer);
        }
        beam_width_ = std::max<std::int64_t>(size_of(member(manifest, "parameters"), "beam_width"), 1);
        std::span<const std::int32_t> leaf_labels;
        if (arrays.has("leaf_labels")) leaf_labels = arrays.of<std::int32_t>("leaf_labels", "int32");
        search_ = std::make_unique<BeamSearch>(std::move(layers), std::vector<std::string>{"packed"}, leaf_labels);
    } catch (const std::invalid_argument& error) {
        throw FormatError(path + ": " + error.what());
    }
}

}  // namespace carya
