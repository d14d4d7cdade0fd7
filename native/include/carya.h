/* Carya from C, and from whatever speaks C: open a saved model and rank labels, without Python.
 *
 *     carya_model *model = carya_open("model/");
 *     if (!model) { fprintf(stderr, "%s\n", carya_error()); return 1; }
 *     carya_label best[10];
 *     int64_t found = carya_rank(model, features, values, count, NULL, NULL, best, 10);
 *     for (int64_t i = 0; i < found; ++i) printf("%d %f\n", best[i].label, best[i].score);
 *     carya_close(model);
 *
 * The file is mapped, not read: opening takes milliseconds whatever the size, and processes share one copy. Any number of
 * threads may rank with one model at once. No function throws, prints or ends the process.
 *
 * Compile with `cc service.c $(carya c-flags)`, or build the library alone: docs/c.md.
 */
#ifndef CARYA_H
#define CARYA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CARYA_API __attribute__((visibility("default")))

typedef struct carya_model carya_model;

typedef struct carya_label {
    int32_t label;
    float score;
} carya_label;

/* How to search. Begin with carya_defaults(model) and change what you like. */
typedef struct carya_options {
    int64_t beam_width; /* nodes kept at each level of the tree, at least 1 */
    float min_score;    /* labels below it are left out; -INFINITY for none */
} carya_options;

/* Opens the folder of a saved model; NULL if it is not a whole, unaltered one, and carya_error() says why. */
CARYA_API carya_model *carya_open(const char *folder);

/* Ends the use of a model; no thread may be ranking with it. NULL is allowed. */
CARYA_API void carya_close(carya_model *model);

/* What went wrong in the calling thread's last call that failed. Never NULL; good until the thread's next call. */
CARYA_API const char *carya_error(void);

CARYA_API int64_t carya_labels(const carya_model *model);
CARYA_API int64_t carya_sparse_features(const carya_model *model);
CARYA_API int64_t carya_dense_features(const carya_model *model);

/* The options the model was trained with. */
CARYA_API carya_options carya_defaults(const carya_model *model);

/* The best labels of one query, best first, ties to the lower label.
 *
 * features, values   the sparse features that are not 0, numbered from 0, strictly ascending; `count` of them
 * dense              as many dense features as the model has; NULL if it has none
 * options            NULL for the defaults
 * best               room for `top_k` labels
 *
 * Returns how many labels were found, at most `top_k`: none for a query without features. Returns -1 for arguments that
 * are wrong or a file that turns out damaged, and carya_error() says which.
 */
CARYA_API int64_t carya_rank(const carya_model *model, const int32_t *features, const float *values, int64_t count,
                   const float *dense, const carya_options *options, carya_label *best, int64_t top_k);

#ifdef __cplusplus
}
#endif
#endif
