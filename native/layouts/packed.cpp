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

// The chunks that a feature has weights in.
struct Spread {
    Spread(const CsrView& weights, std::int64_t feature, const PackedForm& form,
           const std::vector<std::int32_t>& chunk_of)
        : weights_(weights.length(feature)) {
        std::int64_t mixed = 0;  // of nodes, if each run has what takes fewer bytes
        each_run(weights, feature, chunk_of, [&](std::int32_t, std::int64_t begin, std::int64_t end) {
            ++chunks;
            const std::int64_t count = end - begin;
            mixed += maps_pay(count, form.child_bytes, form.map_bytes) ? form.map_bytes : count * form.child_bytes;
        });
        const std::int64_t maps = chunks * form.map_bytes;
        const std::int64_t children = weights_ * form.child_bytes;
        wide = chunks >= kWide;
        mapped = !wide && maps_pay(weights_, form.child_bytes, maps);
        node_bytes = wide ? mixed : mapped ? maps : children;
    }

    template <class Types>
    std::int64_t block_bytes(const PackedForm& form) const {
        const std::int64_t head = wide ? WideBlock<Types>::runs_at(chunks, form.words) : (1 + chunks) * Types::kIdBytes;
        return head + node_bytes + weights_ * Types::kWeightBytes;
    }

    std::int64_t chunks = 0;
    std::int64_t node_bytes = 0;
    bool wide = false;
    bool mapped = false;  // narrow, with maps

private:
    std::int64_t weights_;
};

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

// What is written.
struct Written {
    const CsrView& weights;
    const Chunking& chunking;
    const PackedForm& form;
    std::span<const float> scales;
};

// Writes blocks, each to its place, whose bytes are 0.
template <class Types>
class Writer {
    using Child = typename Types::Child;
    using Wide = WideBlock<Types>;

public:
    explicit Writer(const Written& what)
        : weights_(what.weights), chunking_(what.chunking), form_(what.form), scales_(what.scales) {}

    void write(std::int64_t feature, std::uint8_t* to) const {
        const Spread spread(weights_, feature, form_, chunking_.chunk_of());
        if constexpr (!Types::kOnly) {
            put(to, static_cast<typename Types::Id>(spread.chunks - 1));
            if (spread.wide) return write_wide(feature, spread.chunks, to);
        }
        write_narrow(feature, spread, to + Types::kIdBytes);
    }

private:
    void write_narrow(std::int64_t feature, const Spread& spread, std::uint8_t* ids) const {
        std::uint8_t* nodes = ids + spread.chunks * Types::kIdBytes;
        std::uint8_t* values = nodes + spread.node_bytes;
        each_run(weights_, feature, chunking_.chunk_of(),
                 [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
                     if constexpr (!Types::kOnly) ids = put(ids, static_cast<typename Types::Id>(chunk));
                     nodes = put_nodes(nodes, chunk, begin, end, spread.mapped, Types::kLast);
                     values = put_values(values, begin, end);
                 });
    }

    void write_wide(std::int64_t feature, std::int64_t n, std::uint8_t* block) const {
        const bool has_bits = Wide::has_bits(n, form_.words);
        std::uint8_t* const bits = block + Types::kIdBytes;
        std::uint8_t* ids = bits;
        std::uint8_t* sums = block + Wide::sums_at(n, form_.words);
        std::uint8_t* counts = block + Wide::counts_at(n, form_.words);
        std::uint8_t* const runs = block + Wide::runs_at(n, form_.words);
        std::uint8_t* to = runs;
        std::int64_t written = 0;
        each_run(weights_, feature, chunking_.chunk_of(),
                 [&](std::int32_t chunk, std::int64_t begin, std::int64_t end) {
                     if (has_bits)
                         set_bit(bits, chunk);
                     else
                         ids = put(ids, static_cast<typename Types::Id>(chunk));
                     if (written > 0 && written % Wide::kSumStep == 0)
                         sums = put(sums, static_cast<std::uint32_t>(to - runs));
                     ++written;
                     counts = put(counts, static_cast<Child>(end - begin - 1));
                     to = put_nodes(to, chunk, begin, end, Wide::is_mapped(end - begin, form_.map_bytes), Child{0});
                     to = put_values(to, begin, end);
                 });
    }

    static void set_bit(std::uint8_t* bits, std::int64_t bit) {
        bits[bit / 8] = static_cast<std::uint8_t>(bits[bit / 8] | 1U << bit % 8);
    }

    // The nodes of one chunk; `last` is set in the last of them.
    std::uint8_t* put_nodes(std::uint8_t* to, std::int32_t chunk, std::int64_t begin, std::int64_t end, bool mapped,
                            Child last) const {
        for (std::int64_t e = begin; e < end; ++e) {
            const auto child = static_cast<Child>(weights_.indices[e] - chunking_.chunks()[chunk]);
            if (mapped)
                set_bit(to, child);
            else
                to = put(to, e + 1 == end ? static_cast<Child>(child | last) : child);
        }
        return mapped ? to + form_.map_bytes : to;
    }

    std::uint8_t* put_values(std::uint8_t* to, std::int64_t begin, std::int64_t end) const {
        for (std::int64_t e = begin; e < end; ++e) {
            const float scale = scales_.empty() ? 1.0F : scales_[chunking_.scaled_by()[weights_.indices[e]]];
            to = put(to, encode<typename Types::Weight>(weights_.values[e], scale));
        }
        return to;
    }

    const CsrView& weights_;
    const Chunking& chunking_;
    const PackedForm& form_;
    std::span<const float> scales_;
};

// Which positions are to be unpacked: all, or some, numbered in the order they are given in.
class Wanted {
public:
    Wanted() = default;

    Wanted(const Chunking& chunking, std::span<const std::int32_t> positions)
        : all_(false), columns_(chunking.chunk_of().size(), -1), wanted_(chunking.chunks().size() - 1, 0) {
        for (std::size_t at = 0; at < positions.size(); ++at) {
            const std::int64_t position = positions[at];
            if (position < 0 || position >= static_cast<std::int64_t>(columns_.size()))
                throw std::invalid_argument("there is no such position");
            if (at > 0 && position <= positions[at - 1]) throw std::invalid_argument("positions must ascend");
            columns_[position] = static_cast<std::int32_t>(at);
            wanted_[chunking.chunk_of()[position]] = 1;
        }
    }

    bool wants(std::int64_t chunk) const { return all_ || wanted_[chunk] != 0; }
    // -1 for a position that is not wanted.
    std::int32_t column(std::int64_t position) const {
        return all_ ? static_cast<std::int32_t>(position) : columns_[position];
    }

private:
    bool all_ = true;
    std::vector<std::int32_t> columns_;  // of each position
    std::vector<std::uint8_t> wanted_;   // of each chunk
};

// Adds the weights of a feature at the positions that are wanted. Chunks without any are passed over by their counts.
template <class Types>
class Reader {
    using Child = typename Types::Child;

public:
    Reader(const PackedView& packed, const Chunking& chunking, const Wanted& wanted, Csr& out)
        : packed_(packed), chunking_(chunking), chunks_(chunking.chunks()), wanted_(wanted), out_(out) {}

    void read(std::int64_t feature) {
        feature_ = feature;
        before_ = -1;
        const BlockPlace place = packed_.starts[feature];
        const std::span<const std::uint8_t> bytes = packed_.block(place);
        if (bytes.empty()) {
            require(!place.large);
            return;
        }
        if constexpr (!Types::kOnly) {
            if (Types::chunks_in(bytes) >= kWide) {
                require(!place.mapped);
                return read_wide(bytes);
            }
        }
        read_narrow(bytes, place.mapped);
    }

private:
    void require(bool holds) const {
        if (!holds)
            throw std::invalid_argument("the packed weights of feature " + std::to_string(feature_) + " are damaged");
    }

    bool is_chunk(std::int64_t chunk) const { return chunk < static_cast<std::int64_t>(chunks_.size()) - 1; }

    void read_narrow(std::span<const std::uint8_t> bytes, bool mapped) {
        require(!mapped || packed_.form.map_bytes > 0);
        const NarrowBlock<Types> block(bytes, mapped ? packed_.form.map_bytes : 0);
        require(block.n > 0);
        std::int64_t at = 0;
        for (std::int64_t i = 0; i < block.n; ++i) {
            const std::int64_t chunk = block.chunk(i);
            require(is_chunk(chunk));
            if (mapped) {
                at += take_map(chunk, block.children + i * block.map_bytes, block.weights + at * Types::kWeightBytes,
                               block.m - at);
                continue;
            }
            for (bool more = true; more; ++at) {
                require(at < block.m);
                const auto child = load<Child>(block.children + at * Types::kChildBytes);
                take(chunk, static_cast<Child>(child & ~Types::kLast), block.weights + at * Types::kWeightBytes);
                more = Types::kOnly ? at + 1 < block.m : !block.last(at);
            }
        }
        require(at == block.m);
    }

    void read_wide(std::span<const std::uint8_t> bytes) {
        using Wide = WideBlock<Types>;
        const Wide block(bytes, packed_.form.map_bytes, packed_.form.words);
        require(block.n > 0 && (block.words == 0 || block.bits() == block.n));
        std::int64_t at = 0;
        block.each_chunk([&](std::int64_t i, std::int64_t chunk) {
            require(is_chunk(chunk) && (i % Wide::kSumStep != 0 || block.sum(i / Wide::kSumStep) == at));
            const WideRun run = block.run(i, at);
            require(run.count > 0);
            if (wanted_.wants(chunk)) take_run(chunk, run);
            at += Wide::run_bytes(run.count, block.map_bytes);
            return true;
        });
        require(at == block.size);
    }

    void take_run(std::int64_t chunk, const WideRun& run) {
        if (run.mapped) {
            require(take_map(chunk, run.nodes, run.weights, run.count) == run.count);
            return;
        }
        for (std::int64_t e = 0; e < run.count; ++e)
            take(chunk, static_cast<std::int64_t>(load<Child>(run.nodes + e * Types::kChildBytes)),
                 run.weights + e * Types::kWeightBytes);
    }

    // Returns how many weights it had, of which there may be at most `most`.
    std::int64_t take_map(std::int64_t chunk, const std::uint8_t* map, const std::uint8_t* weights, std::int64_t most) {
        std::int64_t e = 0;
        for (std::int64_t line = 0; line < packed_.form.map_bytes / 2; ++line)
            for (std::uint32_t left = load<std::uint16_t>(map + 2 * line); left; left &= left - 1, ++e) {
                require(e < most);
                take(chunk, 16 * line + std::countr_zero(left), weights + e * Types::kWeightBytes);
            }
        return e;
    }

    void take(std::int64_t chunk, std::int64_t child, const std::uint8_t* weight) {
        const std::int64_t position = chunks_[chunk] + child;
        require(position > before_ && position < chunks_[chunk + 1]);
        before_ = position;
        const std::int32_t column = wanted_.column(position);
        if (column < 0) return;
        const float scale = packed_.scales.empty() ? 1.0F : packed_.scales[chunking_.scaled_by()[position]];
        out_.indices.push_back(column);
        out_.values.push_back(static_cast<float>(load<typename Types::Weight>(weight)) * scale);
    }

    const PackedView& packed_;
    const Chunking& chunking_;
    std::span<const std::int64_t> chunks_;
    const Wanted& wanted_;
    Csr& out_;
    std::int64_t feature_ = 0;
    std::int64_t before_ = -1;  // the position of the weight before
};

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
    const int marks = form.id_bytes > 0 ? 1 : 0;  // a bit says which child is the last, unless there is but one chunk
    form.child_bytes = largest <= 0x100 >> marks ? 1 : largest <= 0x10000 >> marks ? 2 : 4;
    form.map_bytes = largest <= 0x8000 ? static_cast<int>((largest + 15) / 16 * 2) : 0;
    const auto words = static_cast<std::int64_t>((count + 63) / 64);
    form.words = form.id_bytes > 0 && words <= PackedForm::kMostWords ? static_cast<int>(words) : 0;
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
    // Chosen once, so that the loops below are compiled once and not for all types.
    using Size = std::int64_t (*)(const Spread&, const PackedForm&);
    using Write = void (*)(const Written&, std::int64_t, std::uint8_t*);
    Size size = nullptr;
    Write write = nullptr;
    for_form(form, [&]<class Types>() {
        size = [](const Spread& spread, const PackedForm& of) { return spread.block_bytes<Types>(of); };
        write = [](const Written& what, std::int64_t f, std::uint8_t* to) { Writer<Types>(what).write(f, to); };
    });
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
        if (weights.length(f) == 0) return;
        const Spread spread(weights, f, form, chunking.chunk_of());
        sizes[f] = size(spread, form);
        mapped[f] = spread.mapped;
        if (sizes[f] > std::numeric_limits<std::uint32_t>::max())
            throw std::invalid_argument("feature " + std::to_string(f) + " has more weights than 4 GiB hold");
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
    const Written what{weights, chunking, form, out.scales};
    parallel_each(features, kFeaturesPerTask, threads, nullptr, [&](int, std::int64_t f) {
        if (weights.length(f) == 0) return;
        write(what, f, out.data.data() + (find_block(starts[f], out.data).data() - out.data.data()));
    });
    return out;
}

namespace {

Csr unpack_wanted(const PackedView& packed, const Chunking& chunking, const Wanted& wanted, std::int64_t cols) {
    Csr out;
    out.cols = cols;
    for_form(packed.form, [&]<class Types>() {
        Reader<Types> reader(packed, chunking, wanted, out);
        for (std::int64_t f = 0; f < packed.features(); ++f) {
            reader.read(f);
            out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
        }
    });
    return out;
}

}  // namespace

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks) {
    return unpack_wanted(packed, Chunking(packed.form, chunks), Wanted(), chunks.back());
}

Csr unpack(const PackedView& packed, std::span<const std::int64_t> chunks, std::span<const std::int32_t> positions) {
    const Chunking chunking(packed.form, chunks);
    const Wanted wanted(chunking, positions);
    return unpack_wanted(packed, chunking, wanted, static_cast<std::int64_t>(positions.size()));
}

std::vector<float> weights_at(const PackedView& packed, std::span<const std::int64_t> chunks,
                              std::span<const std::int32_t> features, std::int32_t position) {
    const Chunking chunking(packed.form, chunks);
    const Wanted wanted(chunking, {&position, 1});
    std::vector<float> out;
    out.reserve(features.size());
    for_form(packed.form, [&]<class Types>() {
        Csr block;
        Reader<Types> reader(packed, chunking, wanted, block);
        for (const std::int32_t feature : features) {
            if (feature < 0 || feature >= packed.features()) throw std::invalid_argument("there is no such feature");
            block.indices.clear();
            block.values.clear();
            reader.read(feature);
            out.push_back(block.values.empty() ? 0.0F : block.values.front());
        }
    });
    return out;
}

}  // namespace carya
