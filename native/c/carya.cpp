// Implementation of the C interface, which converts exceptions to return values.

#include "../include/carya.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "../storage/xr_linear_model.hpp"

struct carya_model {
    carya::XRLinearModel model;
};

namespace {

thread_local std::string last_error;

// Calls body() and returns its result. If it throws, stores the message and returns `error_value`.
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

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

}  // namespace

extern "C" {

carya_model* carya_open(const char* folder) {
    return catch_errors<carya_model*>(nullptr, [&] {
        require(folder != nullptr, "folder must not be NULL.");
        return new carya_model{carya::XRLinearModel(folder)};
    });
}

void carya_close(carya_model* model) { delete model; }

const char* carya_error(void) { return last_error.c_str(); }

int64_t carya_labels(const carya_model* model) { return model ? model->model.search().n_labels() : 0; }
int64_t carya_sparse_features(const carya_model* model) { return model ? model->model.search().sparse_cols() : 0; }
int64_t carya_dense_features(const carya_model* model) { return model ? model->model.search().dense_cols() : 0; }

carya_options carya_defaults(const carya_model* model) { return {model ? model->model.beam_width() : 1, -INFINITY}; }

int64_t carya_rank(const carya_model* model, const int32_t* features, const float* values, int64_t count,
                   const float* dense, const carya_options* options, carya_label* best, int64_t top_k) {
    return catch_errors<int64_t>(-1, [&]() -> int64_t {
        require(model != nullptr, "model must not be NULL.");
        require(count >= 0, "count must be >= 0.");
        require(count == 0 || (features && values), "features and values must not be NULL unless count is 0.");
        require(top_k >= 1, "top_k must be >= 1.");
        require(best != nullptr, "best must not be NULL.");
        const carya::BeamSearch& search = model->model.search();
        require(search.dense_cols() == 0 || dense, "dense must not be NULL because the model has dense features.");
        const carya_options settings = options ? *options : carya_defaults(model);
        require(settings.beam_width >= 1, "beam_width must be >= 1.");
        require(!std::isnan(settings.min_score), "min_score must not be NaN.");
        const auto size = static_cast<std::size_t>(count);
        const carya::Query query{{features, size}, {values, size}, dense};
        require(search.is_valid_query(query),
                "features must be strictly increasing and less than carya_sparse_features(model); values and dense "
                "must be finite.");
        return search.with_workspace([&](carya::BeamSearch::Workspace& workspace) {
            const auto ranking = search.rank(query, {top_k, settings.beam_width, settings.min_score}, workspace);
            for (std::size_t i = 0; i < ranking.size(); ++i) best[i] = {ranking[i].node, ranking[i].score};
            return static_cast<int64_t>(ranking.size());
        });
    });
}

}  // extern "C"
