// Block checksums of a file. Each block is verified before it is first used, so that large models open immediately and
// damage is still detected.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace carya {

// Thrown if a saved model is incomplete or damaged, or if it is not a Carya model.
struct FormatError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Block size in bytes: small enough not to delay the first query, and large enough to make the size of the checksums
// negligible.
constexpr std::int64_t kChecksumBlock = 1 << 16;

std::vector<std::uint64_t> block_checksums(std::span<const std::uint8_t> bytes);

class ChecksumVerifier {
public:
    // `checksums` contains the checksum of each block of `bytes`; both must outlive this object. Error messages start
    // with `name`.
    ChecksumVerifier(std::span<const std::uint8_t> bytes, std::span<const std::uint64_t> checksums, std::string name);

    // Throws FormatError if a block that contains any of these bytes is damaged. Bytes outside the file are ignored.
    // Thread-safe.
    void verify(const void* begin, std::size_t size) const {
        if (size > 0 && remaining_.load(std::memory_order_relaxed) > 0)
            verify_blocks(static_cast<const std::uint8_t*>(begin), size);
    }
    bool all_verified() const { return remaining_.load(std::memory_order_relaxed) == 0; }

private:
    void verify_blocks(const std::uint8_t* begin, std::size_t size) const;

    std::span<const std::uint8_t> bytes_;
    std::span<const std::uint64_t> checksums_;
    std::string name_;
    std::unique_ptr<std::atomic<bool>[]> verified_;
    mutable std::atomic<std::int64_t> remaining_;
};

}  // namespace carya
