/* Calls the C interface with all kinds of invalid arguments, then ranks in several threads. Exits with 0 on success. */
#include <carya.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char *what) {
    if (condition) return;
    printf("FAILED: %s (last error: %s)\n", what, carya_error());
    ++failures;
}

static const int32_t features[] = {1, 4, 9};
static const float values[] = {0.5F, 0.25F, 1.0F};
static const float dense[] = {0.1F, 0.2F, 0.3F};

/* Checks that a call returned -1 and that the error message contains `argument`. */
static void expect_error(int64_t result, const char *argument, const char *what) {
    expect(result == -1, what);
    expect(strstr(carya_error(), argument) != NULL, what);
}

static void *rank_repeatedly(void *argument) {
    const carya_model *model = argument;
    carya_label first[5];
    const int64_t n_labels = carya_rank(model, features, values, 3, dense, 3, NULL, first, 5);
    for (int i = 0; i < 2000; ++i) {
        carya_label again[5];
        if (carya_rank(model, features, values, 3, dense, 3, NULL, again, 5) != n_labels ||
            memcmp(first, again, (size_t)n_labels * sizeof *first) != 0)
            return "a repeated query returns a different ranking";
    }
    return n_labels == 5 ? NULL : "a query returns too few labels";
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    expect(carya_open(NULL) == NULL && strstr(carya_error(), "NULL"), "folder is NULL");
    expect(carya_open("/nowhere/at/all") == NULL && strstr(carya_error(), "not a Carya model"), "folder is missing");
    carya_close(NULL);
    carya_model *model = carya_open(argv[1]);
    expect(model != NULL, "a saved model can be opened");
    if (!model) return 1;
    expect(carya_labels(model) > 0 && carya_labels(NULL) == 0, "number of labels");
    expect(carya_sparse_features(model) > 9 && carya_dense_features(model) == 3, "number of features");
    carya_label best[5];
    expect(carya_rank(model, features, values, 3, dense, 3, NULL, best, 5) == 5, "a valid query returns top_k labels");
    expect(best[0].score >= best[1].score, "labels are sorted by score");
    expect(carya_rank(model, NULL, NULL, 0, dense, 3, NULL, best, 5) == 5, "a query can contain only dense features");
    const float zeros[] = {0, 0, 0};
    expect(carya_rank(model, NULL, NULL, 0, zeros, 3, NULL, best, 5) == 0,
           "a query without features returns no labels");
    expect(!carya_accepts_texts(model) && !carya_accepts_texts(NULL), "the model does not accept texts");
    expect(carya_label_id(model, 0).size == 0 && carya_label_name(NULL, 0).size == 0, "the model has no label names");
    expect(isnan(carya_probability(model, 0.5F)) && isnan(carya_probability(NULL, 0.5F)),
           "the model is not calibrated");
    expect_error(carya_rank_text(model, "a", -1, NULL, best, 5), "trained on features",
                 "the model accepts only features");
    expect_error(carya_rank_text(NULL, "a", -1, NULL, best, 5), "model", "model is NULL");
    expect_error(carya_rank(NULL, features, values, 3, dense, 3, NULL, best, 5), "model", "model is NULL");
    expect_error(carya_rank(model, NULL, values, 3, dense, 3, NULL, best, 5), "features", "features is NULL");
    expect_error(carya_rank(model, features, NULL, 3, dense, 3, NULL, best, 5), "values", "values is NULL");
    expect_error(carya_rank(model, features, values, -1, dense, 3, NULL, best, 5), "count", "count is negative");
    expect_error(carya_rank(model, features, values, 3, NULL, 3, NULL, best, 5), "dense", "dense is NULL");
    expect_error(carya_rank(model, features, values, 3, dense, 2, NULL, best, 5), "dense_count",
                 "dense_count is too small");
    expect_error(carya_rank(model, features, values, 3, dense, 0, NULL, best, 5), "dense_count", "dense_count is 0");
    union {
        float aligned[5];
        char bytes[20];
    } shifted = {{0}};
    const float *misaligned = (const float *)(const void *)(shifted.bytes + 1);
    expect_error(carya_rank(model, features, values, 3, misaligned, 3, NULL, best, 5), "aligned",
                 "dense is misaligned");
    expect_error(carya_rank(model, features, misaligned, 3, dense, 3, NULL, best, 5), "aligned",
                 "values is misaligned");
    expect_error(carya_rank(model, features, values, 3, dense, 3, NULL, NULL, 5), "best", "best is NULL");
    expect_error(carya_rank(model, features, values, 3, dense, 3, NULL, best, 0), "top_k", "top_k is 0");
    const float with_nan[] = {0.5F, NAN, 1.0F};
    expect_error(carya_rank(model, features, with_nan, 3, dense, 3, NULL, best, 5), "finite", "a value is NaN");
    expect_error(carya_rank(model, features, values, 3, with_nan, 3, NULL, best, 5), "finite", "a dense value is NaN");
    const int32_t negative[] = {-1, 4, 9};
    expect_error(carya_rank(model, negative, values, 3, dense, 3, NULL, best, 5), "features",
                 "a feature index is negative");
    carya_options options = carya_defaults(model);
    expect(options.beam_width == 10 && options.min_score == -INFINITY, "carya_defaults returns the model's defaults");
    options.min_score = 2.0F;
    expect(carya_rank(model, features, values, 3, dense, 3, &options, best, 5) == 0, "no score reaches min_score");
    options.min_score = NAN;
    expect_error(carya_rank(model, features, values, 3, dense, 3, &options, best, 5), "min_score", "min_score is NaN");
    options = carya_defaults(model);
    options.beam_width = INT64_MAX;
    expect(carya_rank(model, features, values, 3, dense, 3, &options, best, 5) == 5,
           "the beam can cover the whole tree");
    options.beam_width = 0;
    expect_error(carya_rank(model, features, values, 3, dense, 3, &options, best, 5), "beam_width", "beam_width is 0");

    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, rank_repeatedly, model);
    for (int i = 0; i < 4; ++i) {
        void *problem = NULL;
        pthread_join(threads[i], &problem);
        expect(problem == NULL, problem ? problem : "");
    }
    carya_close(model);
    return failures != 0;
}
