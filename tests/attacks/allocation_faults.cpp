// Library, loaded with LD_PRELOAD, that counts the allocations of Carya's extension module and lets one of them fail.
//
// allocation_faults(n)      resets the counter. Allocation n (counting from 1) fails; 0 means that none fails, and -1
//                           that allocations are no longer counted
// allocation_count()        returns the number of allocations since the last reset
// allocation_outstanding()  returns the number of counted allocations that have not been freed

#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

// Smaller allocations are not counted: nanobind converts lists of arguments in functions that cannot throw.
constexpr std::size_t kMinBytes = 200;
constexpr std::size_t kSlots = 1 << 20;

struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
};
Range code[4];  // of the extension module
int n_ranges = 0;
std::atomic<long> fault_at{-1};
std::atomic<long> count{0};
std::atomic<long> outstanding{0};
std::atomic<void*> slots[kSlots];  // the counted allocations, hashed by address

int add_ranges(dl_phdr_info* info, std::size_t, void*) {
    if (!std::strstr(info->dlpi_name, "/carya/_core.")) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) && n_ranges < 4)
            code[n_ranges++] = {begin, begin + segment.p_memsz};
    }
    return 0;
}

bool is_counted(const void* caller, std::size_t size) {
    if (fault_at < 0 || size < kMinBytes) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(caller);
    for (int i = 0; i < n_ranges; ++i)
        if (address >= code[i].begin && address < code[i].end) return true;
    return false;
}

// Returns whether a counted allocation must fail.
bool fails() {
    if (count.fetch_add(1) + 1 != fault_at) return false;
    errno = ENOMEM;
    return true;
}

std::size_t slot_of(const void* pointer) {
    return (reinterpret_cast<std::uintptr_t>(pointer) >> 4) * 0x9E3779B1U % kSlots;
}

void* remember(void* pointer) {
    std::size_t slot = slot_of(pointer);
    for (int i = 0; pointer && i < 64; ++i, slot = (slot + 1) % kSlots) {
        void* empty = nullptr;
        if (slots[slot].compare_exchange_strong(empty, pointer)) {
            ++outstanding;
            break;
        }
    }
    return pointer;
}

void forget(void* pointer) {
    std::size_t slot = slot_of(pointer);
    for (int i = 0; pointer && i < 64; ++i, slot = (slot + 1) % kSlots) {
        void* expected = pointer;
        if (slots[slot].compare_exchange_strong(expected, nullptr)) {
            --outstanding;
            break;
        }
    }
}

void* allocate(std::size_t alignment, std::size_t size, const void* caller) {
    const bool counted = is_counted(caller, size);
    if (counted && fails()) return nullptr;
    void* out = alignment > 0 ? __libc_memalign(alignment, size) : __libc_malloc(size);
    return counted ? remember(out) : out;
}

void* allocate_or_throw(std::size_t alignment, std::size_t size, const void* caller) {
    void* out = allocate(alignment, size > 0 ? size : 1, caller);
    if (!out) throw std::bad_alloc();
    return out;
}

}  // namespace

extern "C" {

void allocation_faults(long at) {
    if (n_ranges == 0) dl_iterate_phdr(add_ranges, nullptr);
    fault_at = at;
    count = 0;
}
long allocation_count() { return count; }
long allocation_outstanding() { return outstanding; }

void* malloc(std::size_t size) { return allocate(0, size, __builtin_return_address(0)); }
void* memalign(std::size_t alignment, std::size_t size) {
    return allocate(alignment, size, __builtin_return_address(0));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    return allocate(alignment, size, __builtin_return_address(0));
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
    *out = allocate(alignment, size, __builtin_return_address(0));
    return *out ? 0 : ENOMEM;
}
void* calloc(std::size_t number, std::size_t size) {
    const bool counted = is_counted(__builtin_return_address(0), number * size);
    if (counted && fails()) return nullptr;
    void* out = __libc_calloc(number, size);
    return counted ? remember(out) : out;
}
void* realloc(void* pointer, std::size_t size) {
    const bool counted = is_counted(__builtin_return_address(0), size);
    if (counted && fails()) return nullptr;
    forget(pointer);
    void* out = __libc_realloc(pointer, size);
    return counted ? remember(out) : out;
}
void free(void* pointer) {
    forget(pointer);
    __libc_free(pointer);
}

}  // extern "C"

void* operator new(std::size_t size) { return allocate_or_throw(0, size, __builtin_return_address(0)); }
void* operator new[](std::size_t size) { return allocate_or_throw(0, size, __builtin_return_address(0)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(static_cast<std::size_t>(alignment), size, __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(static_cast<std::size_t>(alignment), size, __builtin_return_address(0));
}
