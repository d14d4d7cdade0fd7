/* C interface to Carya: open a saved model and rank labels for texts or features without Python.
 *
 *     carya_model *model = carya_open("model/");
 *     if (!model) { fprintf(stderr, "%s\n", carya_error()); return 1; }
 *     carya_label best[10];
 *     int64_t n = carya_rank_text(model, "a fast web server", -1, NULL, best, 10);
 *     for (int64_t i = 0; i < n; ++i) {
 *         carya_string name = carya_label_name(model, best[i].label);
 *         printf("%.*s %f\n", (int)name.size, name.data, best[i].score);
 *     }
 *     carya_close(model);
 *
 * XRLinear models and TextRanker models that contain an XRLinear are supported, except for models with a stemmer or
 * the ICU segmenter.
 *
 * Models are memory-mapped: opening a model takes milliseconds regardless of its size, and all processes share one copy
 * in memory. Any number of threads can use the same model concurrently. No function throws an exception, prints
 * anything or terminates the process.
 *
 * Compile with `cc service.c $(carya c-flags)`, or build the library separately (see docs/c.md).
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

/* A UTF-8 string that is not null-terminated. It belongs to the model and is valid until the model is closed. */
typedef struct carya_string {
    const char *data;
    int64_t size; /* in bytes */
} carya_string;

/* Search options. Start with carya_defaults(model) and change individual fields. */
typedef struct carya_options {
    int64_t beam_width; /* number of nodes to keep at each level of the tree, >= 1 */
    float min_score;    /* labels with a lower score are omitted; -INFINITY keeps all labels */
} carya_options;

/* Opens a saved model. Returns NULL if the folder does not contain a complete, undamaged model of a supported kind;
 * carya_error() then returns the reason. */
CARYA_API carya_model *carya_open(const char *folder);

/* Closes a model. No thread may use the model during or after this call. NULL is ignored. */
CARYA_API void carya_close(carya_model *model);

/* Returns the last error message of the calling thread. It is never NULL and remains valid until the thread's next
 * call. */
CARYA_API const char *carya_error(void);

/* Return the number of labels, sparse features and dense features. */
CARYA_API int64_t carya_labels(const carya_model *model);
CARYA_API int64_t carya_sparse_features(const carya_model *model);
CARYA_API int64_t carya_dense_features(const carya_model *model);

/* Returns 1 if the model was trained on texts, otherwise 0. */
CARYA_API int carya_accepts_texts(const carya_model *model);

/* Return the id and the name of a label. The string is empty if the label does not exist or if the model was trained on
 * features. */
CARYA_API carya_string carya_label_id(const carya_model *model, int32_t label);
CARYA_API carya_string carya_label_name(const carya_model *model, int32_t label);

/* Returns the probability that a suggestion with this score is correct, or NaN if the model is not calibrated. */
CARYA_API double carya_probability(const carya_model *model, float score);

/* Returns the default search options of a model. */
CARYA_API carya_options carya_defaults(const carya_model *model);

/* Ranks labels for one query, best first. Ties are broken in favor of the lower label index.
 *
 * - features, values: indices and values of the `count` nonzero sparse features. Indices start at 0 and must be
 *   strictly increasing.
 * - dense, dense_count: values of all dense features and their number, which must be carya_dense_features(model). Pass
 *   NULL and 0 if the model has none.
 * - options: search options, or NULL for the defaults.
 * - best: output array for up to `top_k` labels.
 *
 * All arrays must be aligned to 4 bytes, which is the default alignment of these types.
 *
 * Returns the number of labels written to `best`, which is at most `top_k` and is 0 for a query without features.
 * Returns -1 if an argument is invalid or the model is damaged; carya_error() then returns the reason.
 */
CARYA_API int64_t carya_rank(const carya_model *model, const int32_t *features, const float *values, int64_t count,
                             const float *dense, int64_t dense_count, const carya_options *options, carya_label *best,
                             int64_t top_k);

/* Ranks labels for one text, as carya_rank does for features.
 *
 * - text, size: the text in UTF-8, and its size in bytes. A size of -1 means that the text is null-terminated. Invalid
 *   sequences are replaced with U+FFFD.
 * - options, best, top_k: as in carya_rank.
 *
 * Returns the number of labels written to `best`, which is 0 if the text contains no known terms. Returns -1 if an
 * error occurred; carya_error() then returns the reason.
 */
CARYA_API int64_t carya_rank_text(const carya_model *model, const char *text, int64_t size,
                                  const carya_options *options, carya_label *best, int64_t top_k);

#ifdef __cplusplus
}
#endif
#endif
