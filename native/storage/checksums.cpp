#include "checksums.hpp"

#include <algorithm>

#include "../core/xxhash.hpp"

namespace carya {

namespace {

std::span<const std::uint8_t> block_at(std::span<const std::uint8_t> bytes, std::size_t i) {
    const std::size_t begin = i * kChecksumBlock;
    return bytes.subspan(begin, std::min<std::size_t>(kChecksumBlock, bytes.size() - begin));
}

}  // namespace

std::vector<std::uint64_t> block_checksums(std::span<const std::uint8_t> bytes) {
    std::vector<std::uint64_t> out((bytes.size() + kChecksumBlock - 1) / kChecksumBlock);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = xxh64(block_at(bytes, i).data(), block_at(bytes, i).size());
    return out;
}

ChecksumVerifier::ChecksumVerifier(std::span<const std::uint8_t> bytes, std::span<const std::uint64_t> checksums,
                                   std::string name)
    : bytes_(bytes),
      checksums_(checksums),
      name_(std::move(name)),
      verified_(std::make_unique<std::atomic<bool>[]>(checksums.size())),
      remaining_(static_cast<std::int64_t>(checksums.size())) {
    if (checksums.size() != (bytes.size() + kChecksumBlock - 1) / kChecksumBlock)
        throw FormatError(name_ + " has the wrong number of checksums.");
}

void ChecksumVerifier::verify_blocks(const std::uint8_t* begin, std::size_t size) const {
    if (begin < bytes_.data() || begin >= bytes_.data() + bytes_.size()) return;  // not in this file
    const auto offset = static_cast<std::size_t>(begin - bytes_.data());
    const std::size_t last = (std::min(offset + size, bytes_.size()) - 1) / kChecksumBlock;
    for (std::size_t i = offset / kChecksumBlock; i <= last; ++i) {
        if (verified_[i].load(std::memory_order_relaxed)) continue;
        if (xxh64(block_at(bytes_, i).data(), block_at(bytes_, i).size()) != checksums_[i])
            throw FormatError(name_ + " is damaged: the checksum of the block at byte " +
                              std::to_string(i * kChecksumBlock) + " does not match.");
        if (!verified_[i].exchange(true, std::memory_order_relaxed)) remaining_.fetch_sub(1, std::memory_order_relaxed);
    }
}

}  // namespace carya
