// Combination of several rankings of the same labels.
#pragma once

#include <span>
#include <vector>

#include "beam_search.hpp"

namespace carya {

// Methods for combining the members' scores for a label. A member that did not return the label contributes 0.
//
// mean      the mean score
// rank      the mean of 1 - i / n over members, where i is the label's rank (0, 1, …) among the member's n labels
// count     the number of members that returned the label; ties are broken by the mean score
// softmax   the mean of exp(score), normalized so that the values of each member sum to 1
// sigmoid   the mean of 1 / (1 + exp(-score))
// round_robin   1 / (1 + p), where p is the position of the label in the sequence of the members' first labels, then
//               their second labels, and so on; the member with the largest weight comes first, and members with
//               weight 0 are omitted
enum class CombineMethod : int { mean, rank, count, softmax, sigmoid, round_robin };

// Combines rankings for one query at a time; memory is reused between queries.
class Combiner {
public:
    Combiner(CombineMethod method, std::span<const float> weights);

    void clear() { votes_.clear(); }
    // Adds the ranking of one member, best label first.
    void add(std::size_t member, std::span<const ScoredNode> ranking);
    // Returns the top `top_k` labels, best first; ties are broken in favor of the lower label index.
    std::span<const ScoredNode> top(std::int64_t top_k);

private:
    struct Vote {
        std::int32_t label;
        float value;
        float score;
    };

    CombineMethod method_;
    std::span<const float> weights_;
    std::vector<std::size_t> turns_;  // position of each member in a round, for round_robin
    std::vector<Vote> votes_;
    std::vector<ScoredNode> ranking_;
};

// Combines rankings given as CSR matrices of the same shape, in which each row is sorted by rank.
Csr combine(std::span<const CsrView> rankings, CombineMethod method, std::span<const float> weights, std::int64_t top_k,
            int threads);

// Retrieves the `pool_size` best labels from each member and combines them.
Csr predict_combined(std::span<const BeamSearch* const> members, const Features& queries, const SearchOptions& options,
                     std::int64_t pool_size, CombineMethod method, std::span<const float> weights, int threads,
                     Monitor* monitor);

}  // namespace carya
