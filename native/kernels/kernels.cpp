#include "kernels.hpp"

#include <cstdlib>
#include <cstring>
#include <iterator>

namespace carya {

#define CARYA_DECLARE(isa)                                                                                \
    namespace isa {                                                                                       \
    void lane_pass(int, const LaneProblem&, LaneState&, const std::uint32_t*, std::int64_t, std::int64_t, \
                   std::int64_t);                                                                         \
    float dot(const float*, const float*, std::int64_t);                                                  \
    void add_scaled(float*, const float*, float, std::int64_t);                                           \
    }

CARYA_DECLARE(baseline)
#ifdef CARYA_X86
CARYA_DECLARE(avx2)
CARYA_DECLARE(avx512)
#endif

namespace {

constexpr Kernels kSets[] = {
#ifdef CARYA_X86
    {"avx512", avx512::lane_pass, avx512::dot, avx512::add_scaled},
    {"avx2", avx2::lane_pass, avx2::dot, avx2::add_scaled},
#endif
    {"baseline", baseline::lane_pass, baseline::dot, baseline::add_scaled},
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
    for (const Kernels& set : kSets)
        if (runs_here(set.name) && (!wanted || !*wanted || std::strcmp(wanted, set.name) == 0)) return set;
    return kSets[std::size(kSets) - 1];
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace carya
