/* Ranks labels for queries from standard input. Each line contains one query as a list of feature:value pairs.
 *
 *     cc examples/rank.c $(carya c-flags) -o rank
 *     echo "3:0.5 17:0.2" | ./rank model/
 */
#include <carya.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_K = 5, MAX_FEATURES = 10000 };

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL < queries\n", argv[0]);
        return 2;
    }
    carya_model *model = carya_open(argv[1]);
    if (!model) {
        fprintf(stderr, "%s\n", carya_error());
        return 1;
    }
    static char line[1 << 20];
    static int32_t features[MAX_FEATURES];
    static float values[MAX_FEATURES];
    int status = 0;
    while (fgets(line, sizeof line, stdin)) {
        int64_t count = 0;
        char *cursor = line;
        for (; count < MAX_FEATURES; ++count) {
            char *colon, *end;
            const long long feature = strtoll(cursor, &colon, 10);
            if (colon == cursor || *colon != ':' || feature < 0 || feature > INT32_MAX) break;
            values[count] = strtof(colon + 1, &end);
            if (end == colon + 1) break;
            features[count] = (int32_t)feature;
            cursor = end;
        }
        cursor += strspn(cursor, " \t\r\n");
        if (*cursor) {
            fprintf(stderr, "Cannot parse the query starting at: %.40s\n", cursor);
            status = 1;
            break;
        }
        carya_label best[TOP_K];
        const int64_t n_labels = carya_rank(model, features, values, count, NULL, 0, NULL, best, TOP_K);
        if (n_labels < 0) {
            fprintf(stderr, "%s\n", carya_error());
            status = 1;
            break;
        }
        for (int64_t i = 0; i < n_labels; ++i) printf("%s%d:%.6g", i ? " " : "", best[i].label, best[i].score);
        printf("\n");
    }
    carya_close(model);
    return status;
}
