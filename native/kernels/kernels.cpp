#include "kernels.hpp"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(CARYA_X86) && defined(_WIN32)
#include <immintrin.h>
#include <intrin.h>
#endif

namespace carya {

#define CARYA_DECLARE(isa)                                                                                  \
    namespace isa {                                                                                         \
    void dual_start(int, const DualProblem&, SolverState&, std::int64_t);                                   \
    void dual_pass(int, const DualProblem&, SolverState&, const std::uint32_t*, std::int64_t, std::int64_t, \
                   std::int64_t);                                                                           \
    void l1_pass(int, const L1Problem&, SolverState&, const std::uint32_t*, std::int64_t, std::int64_t);    \
    void l1_update_bias(int, const L1Problem&, SolverState&);                                               \
    void mark_large_weights(int, const float*, std::int64_t, const float*, std::uint16_t*);                 \
    void mark_features(const std::int32_t*, std::int64_t, const FeatureBits&);                              \
    void split_row(const std::int32_t*, const float*, std::int64_t, const FeatureBits&, SplitRow&);         \
    float dot(const float*, const float*, std::int64_t);                                                    \
    float sparse_dot(const std::uint32_t*, const float*, std::int64_t, const float*);                       \
    void sparse_dots(int, const std::uint32_t*, const float*, std::int64_t, const float*, float*);          \
    std::int64_t count_at_least(const float*, std::int64_t, float);                                         \
    void add_scaled(float*, const float*, float, std::int64_t);                                             \
    void encode_signed_roots(const float*, std::int64_t, float, std::int8_t*);                              \
    void add_packed_scores(const PackedView&, const PackedQuery&, float*, std::int64_t);                    \
    void combine_scores(const Transform&, bool, float, float, const float*, std::int64_t, float*);          \
    std::int64_t select_above(const float*, std::int64_t, float, std::int32_t*);                            \
    }                                                                                                       \
    constexpr Kernels kernels_##isa{#isa,                                                                   \
                                    isa::dual_start,                                                        \
                                    isa::dual_pass,                                                         \
                                    isa::l1_pass,                                                           \
                                    isa::l1_update_bias,                                                    \
                                    isa::mark_large_weights,                                                \
                                    isa::mark_features,                                                     \
                                    isa::split_row,                                                         \
                                    isa::dot,                                                               \
                                    isa::sparse_dot,                                                        \
                                    isa::sparse_dots,                                                       \
                                    isa::count_at_least,                                                    \
                                    isa::add_scaled,                                                        \
                                    isa::encode_signed_roots,                                               \
                                    isa::add_packed_scores,                                                 \
                                    isa::combine_scores,                                                    \
                                    isa::select_above};

CARYA_DECLARE(baseline)
#ifdef CARYA_X86
CARYA_DECLARE(avx2)
CARYA_DECLARE(avx512)
#endif

namespace {

constexpr const Kernels* kInstructionSets[] = {
// In descending order of speed.
#ifdef CARYA_X86
    &kernels_avx512,
    &kernels_avx2,
#endif
    &kernels_baseline,
};

#if defined(CARYA_X86) && defined(_WIN32)
// Returns whether the processor and the operating system support the given x86-64 level (3 or 4). On Windows,
// __builtin_cpu_supports requires a library that is not linked by default.
__attribute__((target("xsave"))) bool supports_level(int level) {
    int leaf[4];  // EAX, EBX, ECX, EDX
    __cpuidex(leaf, 0, 0);
    if (leaf[0] < 7) return false;
    constexpr int v2_v3 =
        1 << 0 | 1 << 9 | 1 << 12 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 | 1 << 27 | 1 << 28 | 1 << 29;
    __cpuidex(leaf, 1, 0);  // SSE3, SSSE3, FMA, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C
    if ((leaf[2] & v2_v3) != v2_v3) return false;
    constexpr int extended = 1 << 0 | 1 << 5;
    __cpuidex(leaf, static_cast<int>(0x80000001), 0);  // LAHF, LZCNT
    if ((leaf[2] & extended) != extended) return false;
    constexpr int v3 = 1 << 3 | 1 << 5 | 1 << 8;  // BMI1, AVX2, BMI2
    constexpr int v4 =
        v3 | 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | static_cast<int>(1U << 31);  // AVX512F, DQ, CD, BW, VL
    const int features = level == 4 ? v4 : v3;
    __cpuidex(leaf, 7, 0);
    if ((leaf[1] & features) != features) return false;
    const unsigned long long saved_registers = level == 4 ? 0xE6 : 0x6;
    return (_xgetbv(0) & saved_registers) == saved_registers;
}
#endif

bool is_supported([[maybe_unused]] const char* name) {
#if defined(CARYA_X86) && defined(_WIN32)
    if (std::strcmp(name, "avx512") == 0) return supports_level(4);
    if (std::strcmp(name, "avx2") == 0) return supports_level(3);
#elif defined(CARYA_X86)
    __builtin_cpu_init();
    if (std::strcmp(name, "avx512") == 0) return __builtin_cpu_supports("x86-64-v4") > 0;
    if (std::strcmp(name, "avx2") == 0) return __builtin_cpu_supports("x86-64-v3") > 0;
#endif
    return true;
}

const Kernels& choose() {
    const char* requested = std::getenv("CARYA_ISA");
    const bool any = !requested || !*requested;
    bool known = any;
    for (const char* name : {"avx512", "avx2", "baseline"}) known = known || std::strcmp(requested, name) == 0;
    if (!known)
        throw std::invalid_argument("The environment variable CARYA_ISA must be 'avx512', 'avx2' or 'baseline', got '" +
                                    std::string(requested) +
                                    "'. Unset it to use the fastest supported instruction set.");
    for (const Kernels* set : kInstructionSets)
        if (is_supported(set->name) && (any || std::strcmp(requested, set->name) == 0)) return *set;
    return kernels_baseline;  // the processor does not support the requested instruction set
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace carya
