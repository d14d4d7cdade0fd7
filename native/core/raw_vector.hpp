// A vector for large arrays that are written once. New elements are not initialized. The memory is backed by huge pages
// where available, or by a temporary file if a memory limit is set.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory_limit.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace carya {

inline constexpr std::size_t kHugePage = std::size_t{1} << 21;

// Allocates memory aligned to `alignment`. If `alignment` is kHugePage, the memory is backed by huge pages where
// available: with 4 KiB pages, page faults and address translation take longer than processing the data.
inline void* allocate_pages(std::size_t bytes, std::size_t alignment) {
    void* memory = ::operator new(bytes, std::align_val_t{alignment});
#ifdef __linux__
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

template <class T>
struct RawAllocator {
    static_assert(std::is_trivially_copyable_v<T>);
    using value_type = T;

    RawAllocator() = default;
    template <class U>
    RawAllocator(const RawAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        if (bytes >= kHugePage)
            if (void* memory = allocate_in_file(bytes)) return static_cast<T*>(memory);
        return static_cast<T*>(allocate_pages(bytes, alignment(bytes)));
    }
    void deallocate(T* items, std::size_t count) noexcept {
        const std::size_t bytes = count * sizeof(T);
        if (bytes >= kHugePage && free_in_file(items, bytes)) return;
        ::operator delete(items, std::align_val_t{alignment(bytes)});
    }
    template <class U, class... Arguments>
    void construct(U* item, Arguments&&... arguments) {
        ::new (static_cast<void*>(item)) U(std::forward<Arguments>(arguments)...);
    }
    template <class U>
    void construct(U* item) noexcept {
        ::new (static_cast<void*>(item)) U;
    }
    template <class U>
    bool operator==(const RawAllocator<U>&) const noexcept {
        return true;
    }

private:
    static std::size_t alignment(std::size_t bytes) {
        return bytes >= kHugePage ? kHugePage : alignof(std::max_align_t);
    }
};

template <class T>
using RawVector = std::vector<T, RawAllocator<T>>;

}  // namespace carya
