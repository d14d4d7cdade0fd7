#include "seal.hpp"

#include <algorithm>

#include "../checksum.hpp"

namespace carya {

namespace {

std::span<const std::uint8_t> piece(std::span<const std::uint8_t> bytes, std::size_t i) {
    const std::size_t begin = i * kSealedPiece;
    return bytes.subspan(begin, std::min<std::size_t>(kSealedPiece, bytes.size() - begin));
}

}  // namespace

std::vector<std::uint64_t> seals_of(std::span<const std::uint8_t> bytes) {
    std::vector<std::uint64_t> out((bytes.size() + kSealedPiece - 1) / kSealedPiece);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = xxh64(piece(bytes, i).data(), piece(bytes, i).size());
    return out;
}

Seal::Seal(std::span<const std::uint8_t> bytes, std::span<const std::uint64_t> sums, std::string name)
    : bytes_(bytes),
      sums_(sums),
      name_(std::move(name)),
      known_(std::make_unique<std::atomic<bool>[]>(sums.size())),
      left_(static_cast<std::int64_t>(sums.size())) {
    if (sums.size() != (bytes.size() + kSealedPiece - 1) / kSealedPiece)
        throw FormatError(name_ + " has another number of checksums than pieces");
}

void Seal::check(const std::uint8_t* begin, std::size_t size) const {
    if (begin < bytes_.data() || begin >= bytes_.data() + bytes_.size()) return;  // not ours: kept elsewhere
    const auto offset = static_cast<std::size_t>(begin - bytes_.data());
    const std::size_t last = (std::min(offset + size, bytes_.size()) - 1) / kSealedPiece;
    for (std::size_t i = offset / kSealedPiece; i <= last; ++i) {
        if (known_[i].load(std::memory_order_relaxed)) continue;
        if (xxh64(piece(bytes_, i).data(), piece(bytes_, i).size()) != sums_[i])
            throw FormatError(name_ + " has been altered: the checksum of bytes " + std::to_string(i * kSealedPiece) +
                              " and on does not match");
        if (!known_[i].exchange(true, std::memory_order_relaxed)) left_.fetch_sub(1, std::memory_order_relaxed);
    }
}

}  // namespace carya
