// Scratch buffers for the kernels: aligned to cache lines, reused between tasks and backed by huge pages where
// available.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "raw_vector.hpp"

namespace carya {

// A buffer that grows but never shrinks. It uses huge pages because the solver accesses its weights randomly: with 4
// KiB pages, address translation takes longer than the arithmetic (with 16 MiB of weights, an entry takes 14 ns instead
// of 9 ns).
template <class T>
class AlignedBuffer {
public:
    // Returns memory for `count` items. Its contents are unspecified.
    T* reserve(std::size_t count) {
        if (count > capacity_) {
            memory_.reset();
            capacity_ = 0;
            std::size_t bytes = count * sizeof(T);
            const std::size_t page = bytes >= kHugePage / 4 ? kHugePage : kCacheLine;
            bytes = (bytes + page - 1) / page * page;
            memory_.reset(static_cast<T*>(allocate_pages(bytes, page)));
            memory_.get_deleter().alignment = page;
            capacity_ = bytes / sizeof(T);
        }
        return memory_.get();
    }

    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }

    T* zeros(std::size_t count) {
        T* items = reserve(count);
        if (count > 0) std::memset(static_cast<void*>(items), 0, count * sizeof(T));
        return items;
    }

private:
    static constexpr std::size_t kCacheLine = 64;

    struct Deleter {
        std::size_t alignment = kCacheLine;
        void operator()(T* items) const { ::operator delete(items, std::align_val_t{alignment}); }
    };

    std::unique_ptr<T, Deleter> memory_;
    std::size_t capacity_ = 0;
};

}  // namespace carya
