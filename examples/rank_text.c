/* Ranks labels for texts from standard input. Each line contains one text.
 *
 *     cc examples/rank_text.c $(carya c-flags) -o rank_text
 *     echo "a fast web server" | ./rank_text model/
 */
#include <carya.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOP_K = 5 };

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s MODEL < texts\n", argv[0]);
        return 2;
    }
    carya_model *model = carya_open(argv[1]);
    if (!model) {
        fprintf(stderr, "%s\n", carya_error());
        return 1;
    }
    static char line[1 << 20];
    int status = 0;
    while (fgets(line, sizeof line, stdin)) {
        carya_label best[TOP_K];
        const int64_t size = (int64_t)strcspn(line, "\n");
        const int64_t n_labels = carya_rank_text(model, line, size, NULL, best, TOP_K);
        if (n_labels < 0) {
            fprintf(stderr, "%s\n", carya_error());
            status = 1;
            break;
        }
        for (int64_t i = 0; i < n_labels; ++i) {
            const carya_string id = carya_label_id(model, best[i].label);
            const double probability = carya_probability(model, best[i].score);
            printf("%s%.*s:%.6g", i ? "\t" : "", (int)id.size, id.data, best[i].score);
            if (!isnan(probability)) printf(":%.6g", probability);
        }
        printf("\n");
    }
    carya_close(model);
    return status;
}
