// The C interface: exceptions become return values, and nothing else happens here.

#include "../include/carya.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "../store/model.hpp"

struct carya_model {
    carya::Model model;
};

namespace {

thread_local std::string last_error;

// Runs body; if it throws, keeps the message and returns `failed`.
template <class Result, class Body>
Result guarded(Result failed, const Body& body) noexcept {
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
    return failed;
}

void require(bool holds, const char* otherwise) {
    if (!holds) throw std::invalid_argument(otherwise);
}

}  // namespace

extern "C" {

carya_model* carya_open(const char* folder) {
    return guarded<carya_model*>(nullptr, [&] {
        require(folder != nullptr, "folder is NULL");
        return new carya_model{carya::Model(folder)};
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
    return guarded<int64_t>(-1, [&]() -> int64_t {
        require(model != nullptr, "model is NULL");
        require(count >= 0, "count is negative");
        require(count == 0 || (features && values), "features or values are NULL but count is not 0");
        require(top_k >= 1, "top_k must be at least 1");
        require(best != nullptr, "best is NULL");
        const carya::BeamSearch& search = model->model.search();
        require(search.dense_cols() == 0 || dense, "dense is NULL but the model has dense features");
        const carya_options how = options ? *options : carya_defaults(model);
        require(how.beam_width >= 1, "beam_width must be at least 1");
        require(!std::isnan(how.min_score), "min_score is not a number");
        const auto size = static_cast<std::size_t>(count);
        const carya::Query query{{features, size}, {values, size}, dense};
        require(search.takes(query),
                "features must be strictly ascending and below carya_sparse_features, values and dense finite");
        return search.with_work([&](carya::BeamSearch::Work& work) {
            const auto found = search.rank(query, {top_k, how.beam_width, how.min_score}, work);
            for (std::size_t i = 0; i < found.size(); ++i) best[i] = {found[i].node, found[i].score};
            return static_cast<int64_t>(found.size());
        });
    });
}

}  // extern "C"
