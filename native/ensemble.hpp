// Several rankings of the same labels made one.
#pragma once

#include <span>
#include <vector>

#include "beam.hpp"

namespace carya {

// What a member says of a label it has found; of one it has not found it says 0.
//
// mean      its score
// rank      1 for its best label, and evenly less down to 1 / n for the last of its n
// count     1: labels are ranked by how many members have found them, those found alike by their mean score
// softmax   exp(score), divided so that all it has found add up to 1
// sigmoid   1 / (1 + exp(-score))
enum class Combine : int { mean, rank, count, softmax, sigmoid };

// Combines the rankings of one query after another; its memory is used again.
class Combiner {
public:
    Combiner(Combine how, std::span<const float> weights) : how_(how), weights_(weights) {}

    void clear() { found_.clear(); }
    // A member's labels, best first.
    void add(std::size_t member, std::span<const Scored> ranking);
    // The best `top_k` of all that was added, best first, ties to the lower label.
    std::span<const Scored> best(std::int64_t top_k);

private:
    struct Vote {
        std::int32_t label;
        float said;
        float score;
    };

    Combine how_;
    std::span<const float> weights_;
    std::vector<Vote> found_;
    std::vector<Scored> best_;
};

// Rankings as rows of CSR matrices, each row best first, made one. They have equally many rows and columns.
Csr combine(std::span<const CsrView> rankings, Combine how, std::span<const float> weights, std::int64_t top_k,
            int threads);

// The same with members asked for `pool` labels each.
Csr predict_combined(std::span<const BeamSearch* const> members, const Features& queries, const Question& question,
                     std::int64_t pool, Combine how, std::span<const float> weights, int threads, Monitor* monitor);

}  // namespace carya
