/* Calls the C interface with everything that is wrong, then from several threads at once. Exits with 0 if all is well. */
#include <carya.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int holds, const char *what) {
    if (holds) return;
    printf("not so: %s (last error: %s)\n", what, carya_error());
    ++failures;
}

static const int32_t features[] = {1, 4, 9};
static const float values[] = {0.5F, 0.25F, 1.0F};
static const float dense[] = {0.1F, 0.2F, 0.3F};

static void *ask_often(void *given) {
    const carya_model *model = given;
    carya_label first[5];
    const int64_t found = carya_rank(model, features, values, 3, dense, NULL, first, 5);
    for (int i = 0; i < 2000; ++i) {
        carya_label again[5];
        if (carya_rank(model, features, values, 3, dense, NULL, again, 5) != found ||
            memcmp(first, again, (size_t)found * sizeof *first) != 0)
            return "another answer";
    }
    return found == 5 ? NULL : "too few labels";
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    expect(carya_open(NULL) == NULL && strstr(carya_error(), "NULL"), "no folder");
    expect(carya_open("/nowhere/at/all") == NULL && strstr(carya_error(), "not a Carya model"), "no model");
    carya_close(NULL);
    carya_model *model = carya_open(argv[1]);
    expect(model != NULL, "a model opens");
    if (!model) return 1;
    expect(carya_labels(model) > 0 && carya_labels(NULL) == 0, "labels are counted");
    expect(carya_sparse_features(model) > 9 && carya_dense_features(model) == 3, "features are counted");
    carya_label best[5];
    expect(carya_rank(model, features, values, 3, dense, NULL, best, 5) == 5, "labels are found");
    expect(best[0].score >= best[1].score, "best first");
    expect(carya_rank(model, NULL, NULL, 0, dense, NULL, best, 5) == 5, "dense features alone");
    const float nothing[] = {0, 0, 0};
    expect(carya_rank(model, NULL, NULL, 0, nothing, NULL, best, 5) == 0, "no features, no labels");
    expect(carya_rank(NULL, features, values, 3, dense, NULL, best, 5) == -1, "no model");
    expect(carya_rank(model, NULL, values, 3, dense, NULL, best, 5) == -1, "no features but a count");
    expect(carya_rank(model, features, NULL, 3, dense, NULL, best, 5) == -1, "no values");
    expect(carya_rank(model, features, values, -1, dense, NULL, best, 5) == -1, "a negative count");
    expect(carya_rank(model, features, values, 3, NULL, NULL, best, 5) == -1, "no dense features");
    expect(carya_rank(model, features, values, 3, dense, NULL, NULL, 5) == -1, "no room");
    expect(carya_rank(model, features, values, 3, dense, NULL, best, 0) == -1, "no labels wanted");
    const float odd[] = {0.5F, NAN, 1.0F};
    expect(carya_rank(model, features, odd, 3, dense, NULL, best, 5) == -1, "a value that is no number");
    expect(carya_rank(model, features, values, 3, odd, NULL, best, 5) == -1, "a dense value that is no number");
    const int32_t negative[] = {-1, 4, 9};
    expect(carya_rank(model, negative, values, 3, dense, NULL, best, 5) == -1, "a negative feature");
    carya_options options = carya_defaults(model);
    expect(options.beam_width == 10 && options.min_score == -INFINITY, "defaults are the model's");
    options.min_score = 2.0F;
    expect(carya_rank(model, features, values, 3, dense, &options, best, 5) == 0, "no label scores that high");
    options.min_score = NAN;
    expect(carya_rank(model, features, values, 3, dense, &options, best, 5) == -1, "a least score that is no number");
    options = carya_defaults(model);
    options.beam_width = INT64_MAX;
    expect(carya_rank(model, features, values, 3, dense, &options, best, 5) == 5, "a beam over everything");
    options.beam_width = 0;
    expect(carya_rank(model, features, values, 3, dense, &options, best, 5) == -1, "no beam");

    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, ask_often, model);
    for (int i = 0; i < 4; ++i) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        expect(wrong == NULL, wrong ? wrong : "");
    }
    carya_close(model);
    return failures != 0;
}
