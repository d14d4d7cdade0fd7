// Implements the C interface; exceptions are converted to return values.

#include "../include/carya.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "../kernels/kernels.hpp"
#include "../storage/model_parts.hpp"
#include "../storage/text_model.hpp"
#include "../storage/xr_linear_model.hpp"

struct carya_model {
    carya::ModelFolder folder;
    std::unique_ptr<carya::XRLinearModel> tree;
    std::unique_ptr<carya::TextModel> text;  // null if the model was trained on features
};

namespace {

thread_local std::string last_error;

// Calls body() and returns its result. If body() throws, stores the message and returns `error_value`.
template <class Result, class Body>
Result catch_errors(Result error_value, const Body& body) noexcept {
    try {
        return body();
    } catch (const std::exception& error) {
        try {
            last_error = error.what();
        } catch (...) {
            last_error.clear();
        }
    } catch (...) {
        last_error.clear();
    }
    return error_value;
}

template <class T>
bool is_aligned(const T* array) {
    return reinterpret_cast<std::uintptr_t>(array) % alignof(T) == 0;
}

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

[[noreturn]] void fail_kind(const std::string& path, const std::string& kind) {
    throw carya::FormatError(path + " is a model of kind '" + kind +
                             "'. The C interface supports XRLinear models, and TextRanker models that contain one.");
}

// Opens an 'xr-linear' model, or a 'text-ranker' model that contains one.
std::unique_ptr<carya_model> open_model(const char* path) {
    auto model = std::make_unique<carya_model>(carya_model{carya::ModelFolder(path), nullptr, nullptr});
    const carya::Json& manifest = model->folder.manifest();
    const std::string kind = carya::member(manifest, "kind").text().value_or("");
    try {
        const carya::Json* parameters = &carya::member(manifest, "parameters");
        if (kind == "text-ranker") {
            const carya::Json* model_kind = parameters->find("model_kind");
            if (model_kind && model_kind->text() != "xr-linear")
                fail_kind(path, kind + "' with '" + model_kind->text().value_or(""));
            model->text = std::make_unique<carya::TextModel>(model->folder);
            parameters = &carya::member(*parameters, "model");
        } else if (kind != "xr-linear") {
            fail_kind(path, kind);
        }
        model->tree = std::make_unique<carya::XRLinearModel>(model->folder, *parameters);
        if (model->text) {
            const carya::BeamSearch& search = model->tree->search();
            if (search.dense_cols() != 0 || search.sparse_cols() != model->text->vectorizer().n_features() ||
                search.n_labels() != model->text->n_labels())
                carya::fail_inconsistent("the text model and the tree have different numbers of features or labels");
        }
    } catch (const std::invalid_argument& error) {
        throw carya::FormatError(std::string(path) + ": " + error.what());
    }
    return model;
}

int64_t rank(const carya_model& model, const carya::Query& query, const carya_options* options, carya_label* best,
             int64_t top_k) {
    require(top_k >= 1, "top_k must be >= 1.");
    require(best != nullptr, "best must not be NULL.");
    const carya_options settings = options ? *options : carya_defaults(&model);
    require(settings.beam_width >= 1, "beam_width must be >= 1.");
    require(!std::isnan(settings.min_score), "min_score must not be NaN.");
    const carya::BeamSearch& search = model.tree->search();
    require(search.is_valid_query(query),
            "features must be strictly increasing and less than carya_sparse_features(model); values and dense must be "
            "finite.");
    return search.with_workspace([&](carya::BeamSearch::Workspace& workspace) {
        const auto ranking = search.rank(query, {top_k, settings.beam_width, settings.min_score}, workspace);
        for (std::size_t i = 0; i < ranking.size(); ++i) best[i] = {ranking[i].node, ranking[i].score};
        return static_cast<int64_t>(ranking.size());
    });
}

// Returns the id or the name of a label, or an empty string if the label does not exist.
template <class Getter>
carya_string label_string(const carya_model* model, int32_t label, const Getter& getter) {
    if (!model || !model->text || label < 0 || label >= model->text->n_labels()) return {"", 0};
    const std::string_view text = getter(*model->text, label);
    return {text.data(), static_cast<int64_t>(text.size())};
}

}  // namespace

extern "C" {

carya_model* carya_open(const char* folder) {
    return catch_errors<carya_model*>(nullptr, [&] {
        require(folder != nullptr, "folder must not be NULL.");
        carya::kernels();  // throws if CARYA_ISA is invalid
        return open_model(folder).release();
    });
}

void carya_close(carya_model* model) { delete model; }

const char* carya_error(void) { return last_error.c_str(); }

int64_t carya_labels(const carya_model* model) { return model ? model->tree->search().n_labels() : 0; }
int64_t carya_sparse_features(const carya_model* model) { return model ? model->tree->search().sparse_cols() : 0; }
int64_t carya_dense_features(const carya_model* model) { return model ? model->tree->search().dense_cols() : 0; }

carya_options carya_defaults(const carya_model* model) { return {model ? model->tree->beam_width() : 1, -INFINITY}; }

int carya_accepts_texts(const carya_model* model) { return model && model->text ? 1 : 0; }

carya_string carya_label_id(const carya_model* model, int32_t label) {
    return label_string(model, label, [](const carya::TextModel& text, int32_t i) { return text.label_id(i); });
}

carya_string carya_label_name(const carya_model* model, int32_t label) {
    return label_string(model, label, [](const carya::TextModel& text, int32_t i) { return text.label_name(i); });
}

double carya_probability(const carya_model* model, float score) {
    return model && model->text ? model->text->probability(score) : NAN;
}

int64_t carya_rank(const carya_model* model, const int32_t* features, const float* values, int64_t count,
                   const float* dense, int64_t dense_count, const carya_options* options, carya_label* best,
                   int64_t top_k) {
    return catch_errors<int64_t>(-1, [&]() -> int64_t {
        require(model != nullptr, "model must not be NULL.");
        require(count >= 0, "count must be >= 0.");
        require(count == 0 || (features && values), "features and values must not be NULL unless count is 0.");
        require(dense_count == model->tree->search().dense_cols(),
                "dense_count must be equal to carya_dense_features(model).");
        require(dense_count == 0 || dense, "dense must not be NULL if dense_count is greater than 0.");
        require(is_aligned(features) && is_aligned(values) && is_aligned(dense) && is_aligned(best),
                "features, values, dense and best must be aligned to 4 bytes.");
        const auto size = static_cast<std::size_t>(count);
        return rank(*model, {{features, size}, {values, size}, dense}, options, best, top_k);
    });
}

int64_t carya_rank_text(const carya_model* model, const char* text, int64_t size, const carya_options* options,
                        carya_label* best, int64_t top_k) {
    return catch_errors<int64_t>(-1, [&]() -> int64_t {
        require(model != nullptr, "model must not be NULL.");
        require(model->text != nullptr, "The model was trained on features. Use carya_rank.");
        require(text != nullptr || size == 0, "text must not be NULL unless size is 0.");
        require(size >= -1, "size must be >= 0, or -1 for a null-terminated text.");
        const std::string_view view = !text      ? std::string_view()
                                      : size < 0 ? std::string_view(text)
                                                 : std::string_view(text, static_cast<std::size_t>(size));
        const carya::Csr row = model->text->vectorizer().transform({&view, 1}, 1, nullptr);
        return rank(*model, {row.indices, row.values, nullptr}, options, best, top_k);
    });
}

}  // extern "C"
