// Bytes that are verified piece by piece, each before it is first used: a large model is ready at once, and a damaged
// one is still noticed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace carya {

// What is read is not a whole, unaltered model.
struct FormatError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Small enough that the first answers are not held up by it, large enough that the table of checksums is nothing.
constexpr std::int64_t kSealedPiece = 1 << 16;

std::vector<std::uint64_t> seals_of(std::span<const std::uint8_t> bytes);

class Seal {
public:
    // `sums` are the checksums of the pieces of `bytes`. Both must outlive the seal. Errors begin with `name`.
    Seal(std::span<const std::uint8_t> bytes, std::span<const std::uint64_t> sums, std::string name);

    // Throws FormatError unless these bytes, which may lie anywhere, are as they were written. Any thread may ask.
    void need(const void* begin, std::size_t size) const {
        if (size > 0 && left_.load(std::memory_order_relaxed) > 0) check(static_cast<const std::uint8_t*>(begin), size);
    }
    bool whole() const { return left_.load(std::memory_order_relaxed) == 0; }

private:
    void check(const std::uint8_t* begin, std::size_t size) const;

    std::span<const std::uint8_t> bytes_;
    std::span<const std::uint64_t> sums_;
    std::string name_;
    std::unique_ptr<std::atomic<bool>[]> known_;
    mutable std::atomic<std::int64_t> left_;
};

}  // namespace carya
