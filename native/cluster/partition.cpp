#include "partition.hpp"

#include <algorithm>

namespace carya {

namespace {

// Part of a cluster on its way to being cut into `parts` pieces. Pieces stay in order, so siblings stay together.
struct Piece {
    Group group;
    int parts = 0;
};

class Partitioner {
public:
    Partitioner(const PartitionOptions& options, int threads, Monitor& monitor)
        : options_(options), threads_(threads), monitor_(monitor) {}

    // One level: pieces are cut in rounds until each is a child of its parent.
    std::vector<Piece> run(std::vector<Piece> pieces, std::uint64_t level) {
        for (std::uint64_t round = 0;; ++round) {
            const bool done = std::all_of(pieces.begin(), pieces.end(), [](const Piece& p) { return p.parts == 1; });
            if (done) return pieces;
            std::vector<std::vector<Piece>> cut(pieces.size());
            const auto count = static_cast<std::int64_t>(pieces.size());
            // Few pieces: threads share the work inside each. Many: one thread a piece.
            const int inside = count < threads_ ? threads_ : 1;
            parallel_for(count, inside > 1 ? 1 : threads_, &monitor_, [&](int, std::int64_t i) {
                const auto stream = (level << 40) | (round << 32) | static_cast<std::uint64_t>(i);
                cut[i] = split(std::move(pieces[i]), Random(options_.seed, stream, 1), inside);
            });
            std::vector<Piece> next;
            for (std::vector<Piece>& some : cut)
                for (Piece& piece : some) next.push_back(std::move(piece));
            pieces = std::move(next);
        }
    }

private:
    std::vector<Piece> split(Piece piece, const Random& random, int threads) {
        std::vector<Piece> out;
        if (piece.parts == 1) {
            out.push_back(std::move(piece));
            return out;
        }
        std::vector<std::vector<std::int32_t>> members;
        std::vector<int> parts;
        if (options_.bisect) {
            const int left = piece.parts / 2;
            const auto side = split_in_two(piece.group, static_cast<double>(left) / piece.parts, options_.split, random,
                                           threads, monitor_.stop);
            members.resize(2);
            for (std::size_t m = 0; m < side.size(); ++m) members[side[m]].push_back(static_cast<std::int32_t>(m));
            parts = {left, piece.parts - left};
        } else {
            const auto side = split_in_many(piece.group, piece.parts, options_.split, random, threads, monitor_.stop);
            members.resize(piece.parts);
            for (std::size_t m = 0; m < side.size(); ++m) members[side[m]].push_back(static_cast<std::int32_t>(m));
            parts.assign(piece.parts, 1);
        }
        out.resize(members.size());
        parallel_for(static_cast<std::int64_t>(members.size()), threads, nullptr, [&](int, std::int64_t s) {
            // A side may have come out smaller than the number of parts it was to have.
            const int most = static_cast<int>(std::min<std::size_t>(parts[s], members[s].size()));
            if (most > 0) out[s] = {subgroup(piece.group, members[s]), most};
        });
        std::erase_if(out, [](const Piece& child) { return child.group.size() == 0; });
        return out;
    }

    const PartitionOptions& options_;
    const int threads_;
    Monitor& monitor_;
};

}  // namespace

std::vector<std::vector<std::int32_t>> partition(const Features& representation, std::span<const int> branching,
                                                 const PartitionOptions& options, int threads, Monitor& monitor) {
    std::vector<std::vector<std::int32_t>> levels;
    std::vector<Piece> clusters;
    clusters.push_back({whole(representation), 1});
    monitor.total = branching.size();
    Partitioner partitioner(options, threads, monitor);
    for (std::size_t level = 0; level < branching.size(); ++level) {
        bool any = false;
        for (Piece& cluster : clusters) {
            const std::int64_t size = cluster.group.size();
            cluster.parts =
                size <= options.stop_size ? 1 : static_cast<int>(std::min<std::int64_t>(branching[level], size));
            any |= cluster.parts > 1;
        }
        if (!any) break;
        clusters = partitioner.run(std::move(clusters), level);
        std::vector<std::int32_t> of_label(representation.rows());
        for (std::size_t c = 0; c < clusters.size(); ++c)
            for (const std::int32_t label : clusters[c].group.labels) of_label[label] = static_cast<std::int32_t>(c);
        levels.push_back(std::move(of_label));
        ++monitor.done;
    }
    return levels;
}

}  // namespace carya
