#include "partition.hpp"

#include <algorithm>

namespace carya {

namespace {

// A part of a cluster that will be split into `n_children` clusters. Parts keep their order, so that siblings remain
// adjacent.
struct SubCluster {
    LabelGroup group;
    int n_children = 0;
};

class Partitioner {
public:
    Partitioner(const PartitionOptions& options, int threads, Monitor& monitor)
        : options_(options), threads_(threads), monitor_(monitor) {}

    // Splits the clusters of one level repeatedly until each part is a single child.
    std::vector<SubCluster> run(std::vector<SubCluster> subclusters, std::uint64_t level) {
        for (std::uint64_t round = 0;; ++round) {
            const bool done = std::all_of(subclusters.begin(), subclusters.end(),
                                          [](const SubCluster& p) { return p.n_children == 1; });
            if (done) return subclusters;
            std::vector<std::vector<SubCluster>> split_results(subclusters.size());
            const auto count = static_cast<std::int64_t>(subclusters.size());
            // If there are fewer subclusters than threads, all threads share the work on each subcluster; otherwise,
            // each thread splits different subclusters.
            const int threads_per_split = count < threads_ ? threads_ : 1;
            parallel_for(count, threads_per_split > 1 ? 1 : threads_, &monitor_, [&](int, std::int64_t i) {
                const auto stream = (level << 40) | (round << 32) | static_cast<std::uint64_t>(i);
                split_results[i] =
                    split(std::move(subclusters[i]), Random(options_.seed, stream, 1), threads_per_split);
            });
            std::vector<SubCluster> next;
            for (std::vector<SubCluster>& children : split_results)
                for (SubCluster& subcluster : children) next.push_back(std::move(subcluster));
            subclusters = std::move(next);
        }
    }

private:
    std::vector<SubCluster> split(SubCluster subcluster, const Random& random, int threads) {
        std::vector<SubCluster> out;
        if (subcluster.n_children == 1) {
            out.push_back(std::move(subcluster));
            return out;
        }
        std::vector<std::vector<std::int32_t>> members;
        std::vector<int> child_counts;
        if (options_.bisect) {
            const int left = subcluster.n_children / 2;
            const auto assignment = two_means(subcluster.group, static_cast<double>(left) / subcluster.n_children,
                                              options_.split, random, threads, monitor_.stop);
            members.resize(2);
            for (std::size_t m = 0; m < assignment.size(); ++m)
                members[assignment[m]].push_back(static_cast<std::int32_t>(m));
            child_counts = {left, subcluster.n_children - left};
        } else {
            const auto assignment =
                k_means(subcluster.group, subcluster.n_children, options_.split, random, threads, monitor_.stop);
            members.resize(subcluster.n_children);
            for (std::size_t m = 0; m < assignment.size(); ++m)
                members[assignment[m]].push_back(static_cast<std::int32_t>(m));
            child_counts.assign(subcluster.n_children, 1);
        }
        out.resize(members.size());
        parallel_for(static_cast<std::int64_t>(members.size()), threads, nullptr, [&](int, std::int64_t s) {
            // A part may have fewer members than its planned number of children.
            const int n_children = static_cast<int>(std::min<std::size_t>(child_counts[s], members[s].size()));
            if (n_children > 0) out[s] = {make_subgroup(subcluster.group, members[s]), n_children};
        });
        std::erase_if(out, [](const SubCluster& child) { return child.group.size() == 0; });
        return out;
    }

    const PartitionOptions& options_;
    const int threads_;
    Monitor& monitor_;
};

}  // namespace

std::vector<std::vector<std::int32_t>> partition(const LabelGroup& labels, std::span<const int> branching,
                                                 const PartitionOptions& options, int threads, Monitor& monitor) {
    std::vector<std::vector<std::int32_t>> levels;
    std::vector<SubCluster> clusters;
    clusters.push_back({labels, 1});
    monitor.total = branching.size();
    Partitioner partitioner(options, threads, monitor);
    for (std::size_t level = 0; level < branching.size(); ++level) {
        bool any_split = false;
        for (SubCluster& cluster : clusters) {
            const std::int64_t size = cluster.group.size();
            cluster.n_children =
                size <= options.stop_size ? 1 : static_cast<int>(std::min<std::int64_t>(branching[level], size));
            any_split |= cluster.n_children > 1;
        }
        if (!any_split) break;
        clusters = partitioner.run(std::move(clusters), level);
        std::vector<std::int32_t> label_clusters(labels.size());
        for (std::size_t c = 0; c < clusters.size(); ++c)
            for (const std::int32_t label : clusters[c].group.labels)
                label_clusters[label] = static_cast<std::int32_t>(c);
        levels.push_back(std::move(label_clusters));
        ++monitor.done;
    }
    return levels;
}

}  // namespace carya
