#include "kernels.hpp"

#include <cstdlib>
#include <cstring>

namespace carya {

#define CARYA_DECLARE(isa)                                                                                     \
    namespace isa {                                                                                            \
    void lane_start(int, const LaneProblem&, LaneState&, std::int64_t);                                        \
    void lane_pass(int, const LaneProblem&, LaneState&, const std::uint32_t*, std::int64_t, std::int64_t,      \
                   std::int64_t);                                                                              \
    void column_pass(int, const ColumnProblem&, LaneState&, const std::uint32_t*, std::int64_t, std::int64_t); \
    void column_offset(int, const ColumnProblem&, LaneState&);                                                 \
    void mark_large(int, const float*, std::int64_t, const float*, std::uint16_t*);                            \
    float dot(const float*, const float*, std::int64_t);                                                       \
    float sparse_dot(const std::uint32_t*, const float*, std::int64_t, const float*);                          \
    void add_scaled(float*, const float*, float, std::int64_t);                                                \
    void add_packed(const PackedView&, const PackedQuery&, float*, std::int64_t);                              \
    void join_scores(const Transform&, bool, float, float, const float*, std::int64_t, float*);                \
    std::int64_t above(const float*, std::int64_t, float, std::int32_t*);                                      \
    }                                                                                                          \
    constexpr Kernels kernels_##isa{                                                                           \
        #isa,     isa::lane_start, isa::lane_pass,  isa::column_pass, isa::column_offset, isa::mark_large,     \
        isa::dot, isa::sparse_dot, isa::add_scaled, isa::add_packed,  isa::join_scores,   isa::above};

CARYA_DECLARE(baseline)
#ifdef CARYA_X86
CARYA_DECLARE(avx2)
CARYA_DECLARE(avx512)
#endif

namespace {

constexpr const Kernels* kSets[] = {
// the fastest first
#ifdef CARYA_X86
    &kernels_avx512,
    &kernels_avx2,
#endif
    &kernels_baseline,
};

bool runs_here([[maybe_unused]] const char* name) {
#ifdef CARYA_X86
    __builtin_cpu_init();
    if (std::strcmp(name, "avx512") == 0) return __builtin_cpu_supports("x86-64-v4") > 0;
    if (std::strcmp(name, "avx2") == 0) return __builtin_cpu_supports("x86-64-v3") > 0;
#endif
    return true;
}

const Kernels& choose() {
    const char* wanted = std::getenv("CARYA_ISA");
    for (const Kernels* set : kSets)
        if (runs_here(set->name) && (!wanted || !*wanted || std::strcmp(wanted, set->name) == 0)) return *set;
    return kernels_baseline;
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace carya
