// The inner product of a sparse and a dense vector.
//
// Single loads are up to 1.5 times as fast as gather instructions, which take several operations per element, so
// CMakeLists.txt disables vectorization for this file.

#include "kernels.hpp"

namespace carya::CARYA_ISA {

float sparse_dot(const std::uint32_t* columns, const float* values, std::int64_t count, const float* x) {
    constexpr int kSums = 8;  // independent accumulators, which hide the latency of additions
    float sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + kSums <= count; i += kSums)
        for (int k = 0; k < kSums; ++k) sums[k] += x[columns[i + k]] * values[i + k];
    for (; i < count; ++i) sums[0] += x[columns[i]] * values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace carya::CARYA_ISA
