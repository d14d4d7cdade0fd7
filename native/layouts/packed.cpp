#include "packed.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "../parallel.hpp"
#include "blocks.hpp"
#include "dispatch.hpp"
#include "runs.hpp"

namespace carya {

namespace {

constexpr std::int64_t kFeaturesPerTask = 4096;

// A level with no more chunks and nodes than these has whole blocks.
constexpr std::size_t kWholeChunks = 16;
constexpr std::int64_t kWholeNodes = 512;

template <class T>
std::uint8_t* put(std::uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof(T));
    return to + sizeof(T);
}

// What brings the largest weight of each chunk to 127 squared.
std::vector<float> chunk_scales(const CsrView& weights, const std::vector<std::int32_t>& chunk_of, std::size_t chunks) {
    std::vector<float> largest(chunks, 0.0F);
    for (std::size_t e = 0; e < weights.indices.size(); ++e) {
        float& most = largest[chunk_of[weights.indices[e]]];
        most = std::max(most, std::fabs(weights.values[e]));
    }
    for (float& most : largest)
        most = most > 0.0F ? std::max(most / (127.0F * 127.0F), std::numeric_limits<float>::min()) : 1.0F;
    return largest;
}

template <class Weight>
Weight encode(float value, [[maybe_unused]] float scale) {
    if constexpr (std::is_same_v<Weight, Root>) {
        const auto root = static_cast<std::int8_t>(std::min(std::lround(std::sqrt(std::fabs(value) / scale)), 127L));
        return Root{value < 0.0F ? static_cast<std::int8_t>(-root) : root};
    } else if constexpr (std::is_same_v<Weight, Half>)
        return Half{to_half(value)};
    else
        return value;
}

// In how many chunks a feature has weights.
std::int64_t count_chunks(const CsrView& weights, std::int64_t feature, const std::vector<std::int32_t>& chunk_of) {
    std::int64_t n = 0;
    each_run(weights, feature, chunk_of, [&](std::int32_t, std::int64_t, std::int64_t) { ++n; });
    return n;
}

// What the nodes of a block take as maps, and as children.
struct NodeBytes {
    NodeBytes(const PackedForm& form, std::int64_t chunks, std::int64_t weights)
        : maps(chunks * form.map_bytes), children(weights * form.child_bytes), mapped(maps > 0 && maps <= children) {}

    std::int64_t maps;
    std::int64_t children;
    bool mapped;  // which it is to be

    std::int64_t size() const { return mapped ? maps : children; }
};

std::int64_t block_bytes(const PackedForm& form, std::int64_t chunks, std::int64_t weights) {
    return (1 + chunks) * form.id_bytes + count_bytes(chunks, form.child_bytes) +
           NodeBytes(form, chunks, weights).size() + weights * bytes_of(form.precision);
}

// What blocks take for chunks, and the scale of each position.
class Chunking {
public:
    Chunking(const PackedForm& form, std::span<const std::int64_t> chunks)
        : all_{0, chunks.back()}, chunks_(chunks), whole_(form.whole), chunk_of_(chunk_of_position(chunks)) {
        if (whole_) block_of_.assign(chunk_of_.size(), 0);
    }

    std::span<const std::int64_t> chunks() const { return whole_ ? std::span<const std::int64_t>(all_) : chunks_; }
    // Of each position.
    const std::vector<std::int32_t>& chunk_of() const { return whole_ ? block_of_ : chunk_of_; }
    // Of each position the true one.
    const std::vector<std::int32_t>& scaled_by() const { return chunk_of_; }

private:
    std::int64_t all_[2];
    std::span<const std::int64_t> chunks_;
    bool whole_;
    std::vector<std::int32_t> chunk_of_;
    std::vector<std::int32_t> block_of_;
};

template <class Id, class Child, class Weight>
void write_block(const CsrView& weights, std::int64_t feature, const Chunking& chunking, const PackedForm& form,
                 std::span<const float> scales, std::uint8_t* to) {
    using Form = Block<Id, Child, Weight>;
    const std::int64_t n = count_chunks(weights, feature, chunking.chunk_of());
    std::uint8_t* ids = to;
    if constexpr (!Form::kOnly) ids = put(ids, static_cast<Id>(n - 1));
    std::uint8_t* counts = ids + n * Form::kIdBytes;
    std::uint8_t* sums = counts + n * Form::kChildBytes;
    std::uint8_t* children = counts + count_bytes(n, Form::kChildBytes);
    const NodeBytes nodes(form, n, weights.length(feature));
    std::uint8_t* values = children + nodes.size();
    std::int64_t written = 0;
    each_run(weights, feature, chunking.chunk_of(), [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
        if constexpr (!Form::kOnly) ids = put(ids, static_cast<Id>(chunk));
        if (n >= kCounted) counts = put(counts, static_cast<Child>(end - begin - 1));
        if (n >= kSummed && written++ % kSumStep == 0)
            sums = put(sums, static_cast<std::uint32_t>(begin - weights.begin(feature)));
        for (std::int64_t e = begin; e < end; ++e) {
            const std::int32_t position = weights.indices[e];
            const auto child = static_cast<Child>(position - chunking.chunks()[chunk]);
            if (nodes.mapped)
                children[child / 8] = static_cast<std::uint8_t>(children[child / 8] | 1U << child % 8);
            else
                children = put(children, e + 1 == end ? static_cast<Child>(child | Form::kLast) : child);
            const float scale = scales.empty() ? 1.0F : scales[chunking.scaled_by()[position]];
            values = put(values, encode<Weight>(weights.values[e], scale));
        }
        if (nodes.mapped) children += form.map_bytes;
    });
}

// Every position, as it is.
struct All {
    bool wants(std::int64_t) const { return true; }
    std::int32_t column(std::int64_t position) const { return static_cast<std::int32_t>(position); }
};

// Some positions, numbered in the order they are given in.
class Some {
public:
    Some(const Chunking& chunking, std::span<const std::int32_t> positions)
        : columns_(chunking.chunk_of().size(), -1), wanted_(chunking.chunks().size() - 1, 0) {
        for (std::size_t at = 0; at < positions.size(); ++at) {
            const std::int64_t position = positions[at];
            if (position < 0 || position >= static_cast<std::int64_t>(columns_.size()))
                throw std::invalid_argument("there is no such position");
            if (at > 0 && position <= positions[at - 1]) throw std::invalid_argument("positions must ascend");
            columns_[position] = static_cast<std::int32_t>(at);
            wanted_[chunking.chunk_of()[position]] = 1;
        }
    }

    bool wants(std::int64_t chunk) const { return wanted_[chunk] != 0; }
    std::int32_t column(std::int64_t position) const { return columns_[position]; }

private:
    std::vector<std::int32_t> columns_;  // of each position, -1 if it is not wanted
    std::vector<std::uint8_t> wanted_;   // of each chunk
};

// Adds the weights of a feature at the positions that are wanted. Chunks without any are passed over by their counts.
template <class Id, class Child, class Weight, class Wanted>
void read_block(const PackedView& packed, std::int64_t feature, const Chunking& chunking, const Wanted& wanted,
                Csr& out) {
    const auto bad = [&] {
        throw std::invalid_argument("the packed weights of feature " + std::to_string(feature) + " are damaged");
    };
    const BlockPlace place = packed.starts[feature];
    const std::span<const std::uint8_t> bytes = packed.block(place);
    if (bytes.empty()) {
        if (place.large) bad();
        return;
    }
    const bool mapped = place.mapped;
    if (mapped && packed.form.map_bytes == 0) bad();
    const Block<Id, Child, Weight> block(bytes, mapped ? packed.form.map_bytes : 0);
    if (block.n == 0) bad();
    const std::span<const std::int64_t> chunks = chunking.chunks();
    std::int64_t at = 0;
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < block.n; ++i) {
        const std::int64_t chunk = block.chunk(i);
        const std::int64_t begin = at;
        if (chunk >= static_cast<std::int64_t>(chunks.size()) - 1) bad();
        if (block.n >= kCounted && !wanted.wants(chunk)) {
            at += block.count(i);
            continue;
        }
        const auto take = [&](std::int64_t child) {
            const std::int64_t position = chunks[chunk] + child;
            if (at >= block.m || position <= before || position >= chunks[chunk + 1]) bad();
            before = position;
            const std::int64_t here = at++;
            const std::int32_t column = wanted.column(position);
            if (column < 0) return;
            const float scale = packed.scales.empty() ? 1.0F : packed.scales[chunking.scaled_by()[position]];
            out.indices.push_back(column);
            out.values.push_back(block.weight(here) * scale);
        };
        if (mapped) {
            for (std::int64_t line = 0; line < block.map_lines(); ++line)
                for (std::uint32_t left = block.map(i, line); left; left &= left - 1)
                    take(16 * line + std::countr_zero(left));
        } else {
            do {
                if (at >= block.m) bad();
                take(block.child(at));
            } while (!block.last(at - 1));
        }
        if (block.n >= kCounted && block.count(i) != at - begin) bad();
        if (block.n >= kSummed && i % kSumStep == 0 && block.sum(i / kSumStep) != begin) bad();
    }
    if (at != block.m) bad();
}

}  // namespace

int bytes_of(Precision precision) {
    return precision == Precision::float32 ? 4 : precision == Precision::float16 ? 2 : 1;
}

PackedForm PackedForm::of(std::span<const std::int64_t> chunks, Precision precision) {
    PackedForm form;
    form.precision = precision;
    const std::size_t count = chunks.size() - 1;
    form.whole = count > 1 && count <= kWholeChunks && chunks.back() <= kWholeNodes;
    form.id_bytes = count <= 1 || form.whole ? 0 : count <= 0x100 ? 1 : count <= 0x10000 ? 2 : 4;
    std::int64_t largest = 0;
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) largest = std::max(largest, chunks[c + 1] - chunks[c]);
    if (form.whole) largest = chunks.back();
    form.child_bytes = largest <= 0x80 ? 1 : largest <= 0x8000 ? 2 : 4;
    form.map_bytes = largest <= 0x8000 ? static_cast<int>((largest + 15) / 16 * 2) : 0;
    return form;
}

std::span<const std::uint8_t> PackedView::block(const BlockPlace& place) const { return find_block(place, data); }

void PackedView::check(std::int64_t chunks, const char* name) const {
    const auto refuse = [&](const char* what) { throw std::invalid_argument(std::string(name) + " " + what); };
    if (features() < 0 || static_cast<std::int64_t>(starts.lines.size()) != features() / StartLine::kFeatures + 1)
        refuse("has another number of blocks than features");
    const auto size = static_cast<std::int64_t>(data.size());
    if (std::any_of(starts.lines.begin(), starts.lines.end(),
                    [&](const StartLine& line) { return line.base < 0 || line.base > size; }))
        refuse("has blocks that lie outside its data");
    std::int64_t end = 0;
    for (std::int64_t f = 0; f < features(); ++f) {
        const BlockPlace place = starts[f];
        if (place.begin != end || place.end < place.begin) refuse("has blocks that overlap");
        end = place.end;
    }
    if (end > size) refuse("has blocks that lie outside its data");
    const std::int64_t wanted = form.precision == Precision::int8 ? chunks : 0;
    if (static_cast<std::int64_t>(scales.size()) != wanted) refuse("has another number of scales than chunks");
    if (!std::all_of(scales.begin(), scales.end(), [](float x) { return std::isfinite(x); }))
        refuse("has a scale that is not finite");
}

Packed pack(const CsrView& weights, std::span<const std::int64_t> chunks, Precision precision, int threads) {
    Packed out;
    const PackedForm form = out.form = PackedForm::of(chunks, precision);
    const Chunking chunking(form, chunks);
    if (precision == Precision::int8) out.scales = chunk_scales(weights, chunking.scaled_by(), chunks.size() - 1);
    const std::int64_t features = weights.rows();
    std::vector<std::int64_t> sizes(features);
    std::vector<std::uint8_t> mapped(features);
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
        if (weights.length(f) == 0) return;
        const std::int64_t n = count_chunks(weights, f, chunking.chunk_of());
        sizes[f] = block_bytes(form, n, weights.length(f));
        mapped[f] = NodeBytes(form, n, weights.length(f)).mapped;
    });

    std::int64_t used = 0;
    std::int64_t large = 0;
    out.features = features;
    for (std::int64_t f = 0; f <= features; ++f) {
        if (f % StartLine::kFeatures == 0) out.lines.push_back({used, {}});
        std::uint16_t& within = out.lines.back().within[f % StartLine::kFeatures];
        within = static_cast<std::uint16_t>(used - out.lines.back().base);
        if (f == features) break;
        if (mapped[f]) within |= BlockStarts::kMapped;
        if (sizes[f] > BlockStarts::kMostBytes) {
            within |= BlockStarts::kLarge;
            used += 2 * static_cast<std::int64_t>(sizeof(std::uint64_t));
            large += sizes[f];
        } else {
            used += sizes[f];
        }
    }
    out.data.resize(used + large);
    const BlockStarts starts{out.lines, features};
    std::int64_t next = used;
    for (std::int64_t f = 0; f < features; ++f) {
        const BlockPlace place = starts[f];
        if (!place.large) continue;
        std::uint8_t* to = put(out.data.data() + place.begin, static_cast<std::uint64_t>(next));
        put(to, static_cast<std::uint64_t>(sizes[f]));
        next += sizes[f];
    }
    for_form(form, [&]<class Id, class Child, class Weight>() {
        parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
            if (weights.length(f) == 0) return;
            const auto offset = find_block(starts[f], out.data).data() - out.data.data();
            write_block<Id, Child, Weight>(weights, f, chunking, form, out.scales, out.data.data() + offset);
        });
    });
    return out;
}

namespace {

template <class Wanted>
Csr unpack_wanted(const PackedView& packed, const Chunking& chunking, const Wanted& wanted, std::int64_t cols) {
    Csr out;
    out.cols = cols;
    for_form(packed.form, [&]<class Id, class Child, class Weight>() {
        for (std::int64_t f = 0; f < packed.features(); ++f) {
            read_block<Id, Child, Weight>(packed, f, chunking, wanted, out);
            out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
        }
    });
    return out;
}

}  // namespace

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks) {
    return unpack_wanted(packed, Chunking(packed.form, chunks), All{}, chunks.back());
}

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks, std::span<const std::int32_t> positions) {
    const Chunking chunking(packed.form, chunks);
    const Some wanted(chunking, positions);
    return unpack_wanted(packed, chunking, wanted, static_cast<std::int64_t>(positions.size()));
}

std::vector<float> weights_at(const PackedView& packed, std::span<const std::int64_t> chunks,
                              std::span<const std::int32_t> features, std::int32_t position) {
    const Chunking chunking(packed.form, chunks);
    const Some wanted(chunking, {&position, 1});
    std::vector<float> out;
    out.reserve(features.size());
    for_form(packed.form, [&]<class Id, class Child, class Weight>() {
        Csr block;
        for (const std::int32_t feature : features) {
            if (feature < 0 || feature >= packed.features()) throw std::invalid_argument("there is no such feature");
            block.indices.clear();
            block.values.clear();
            read_block<Id, Child, Weight>(packed, feature, chunking, wanted, block);
            out.push_back(block.values.empty() ? 0.0F : block.values.front());
        }
    });
    return out;
}

}  // namespace carya
