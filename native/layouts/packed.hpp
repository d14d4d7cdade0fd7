// The weights of a layer as they are saved, mapped and searched: feature by feature, in as few bytes as they need.
//
// Siblings stand together, in chunks. A feature's weights are one block of bytes, without alignment:
//
//     n            how many chunks it has weights in, less one     Id
//     chunk[n]     which, ascending                                Id each
//     count[n]     how many weights in each chunk, less one        Child each
//     child[m]     the place of each weighted node in its chunk    Child each, ascending in a chunk
//     weight[m]    the weights                                     float32, float16, or int8 q for q |q| times the
//                                                                  chunk's scale
//
// Id has 2 bytes up to 65,536 chunks, else 4; Child has 1, 2 or 4, as the largest chunk needs; m follows from the size
// of the block. A feature without weights has no bytes. What a query needs of a feature lies in one or two cache lines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../matrix.hpp"

namespace carya {

enum class Precision : int { float32, float16, int8 };

int bytes_of(Precision precision);

// The sizes of a packed layer's parts, which follow from the tree.
struct PackedForm {
    int id_bytes = 2;
    int child_bytes = 1;
    Precision precision = Precision::float32;

    static PackedForm of(std::span<const std::int64_t> chunks, Precision precision);
};

// Where the blocks begin, features + 1 offsets: 4 bytes each while that is enough, else 8.
struct BlockStarts {
    std::span<const std::uint32_t> narrow;
    std::span<const std::int64_t> wide;

    std::int64_t count() const { return static_cast<std::int64_t>(narrow.empty() ? wide.size() : narrow.size()); }
    std::int64_t operator[](std::int64_t i) const { return narrow.empty() ? wide[i] : narrow[i]; }
};

struct PackedView {
    BlockStarts starts;
    std::span<const std::uint8_t> data;
    std::span<const float> scales;  // one a chunk for int8, else none
    PackedForm form;

    std::int64_t features() const { return starts.count() - 1; }

    // Throws std::invalid_argument unless starts grow from 0 to the size of the data and there are as many scales as
    // needed. What stands in the blocks may be anything: whoever reads them stays inside them.
    void check(std::int64_t chunks, const char* name) const;
};

struct Packed {
    std::vector<std::uint32_t> narrow;
    std::vector<std::int64_t> wide;
    std::vector<std::uint8_t> data;
    std::vector<float> scales;
    PackedForm form;

    PackedView view() const { return {{narrow, wide}, data, scales, form}; }
};

// From weights of features x positions, which must have passed CsrView::check.
Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, Precision precision, int threads);

// And back. Throws std::invalid_argument if a block is not as described above.
Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks);

}  // namespace carya
