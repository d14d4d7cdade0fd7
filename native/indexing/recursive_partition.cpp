#include "recursive_partition.hpp"

#include <algorithm>

#include "repeated_bisection.hpp"

namespace carya {

namespace {

// A part of a cluster that will be split into `n_children` clusters at level `level`; `round` is the number of splits
// between the cluster and this part.
struct SubCluster {
    LabelGroup group;
    std::size_t level = 0;
    std::uint64_t round = 0;
    int n_children = 0;
};

class Partitioner {
public:
    Partitioner(const LabelGroup& labels, std::span<const int> branching, const PartitionOptions& options, int threads,
                Monitor& monitor)
        : labels_(labels), branching_(branching), options_(options), threads_(threads), monitor_(monitor) {}

    std::vector<std::vector<std::int32_t>> run() {
        monitor_.total = static_cast<std::uint64_t>(labels_.size()) * branching_.size();
        first_labels_.assign(branching_.size(), std::vector<std::int32_t>(labels_.size()));
        std::vector<SubCluster> subclusters = split_near_root();
        std::vector<std::vector<std::int32_t>> orders(subclusters.size());
        parallel_for(std::ssize(subclusters), threads_, &monitor_,
                     [&](int, std::int64_t i) { split_completely(std::move(subclusters[i]), orders[i]); });
        return number_clusters(orders);
    }

private:
    SubCluster make_cluster(LabelGroup group, std::size_t level) const {
        SubCluster cluster{std::move(group), level, 0, 0};
        if (is_complete(cluster)) return cluster;
        const std::int64_t size = cluster.group.size();
        cluster.n_children =
            size <= options_.stop_size ? 1 : static_cast<int>(std::min<std::int64_t>(branching_[level], size));
        return cluster;
    }

    bool is_complete(const SubCluster& cluster) const { return cluster.level == branching_.size(); }

    // Splits all subclusters, starting with the root, until there are enough subclusters to keep all threads busy.
    std::vector<SubCluster> split_near_root() {
        std::vector<SubCluster> subclusters;
        subclusters.push_back(make_cluster(labels_, 0));
        const auto complete = [&](const SubCluster& subcluster) { return is_complete(subcluster); };
        while (std::ssize(subclusters) < 8 * std::int64_t{threads_} && !std::ranges::all_of(subclusters, complete)) {
            // If there are fewer subclusters than threads, all threads share the work on each subcluster; otherwise,
            // each thread splits different subclusters.
            const std::int64_t count = std::ssize(subclusters);
            const int threads_per_split = count < threads_ ? threads_ : 1;
            std::vector<std::vector<SubCluster>> split_results(subclusters.size());
            parallel_for(count, threads_per_split > 1 ? 1 : threads_, &monitor_, [&](int, std::int64_t i) {
                split_results[i] = split(std::move(subclusters[i]), threads_per_split);
            });
            subclusters.clear();
            for (std::vector<SubCluster>& children : split_results)
                for (SubCluster& child : children) subclusters.push_back(std::move(child));
        }
        return subclusters;
    }

    // Splits a subcluster down to the last level and appends its labels to `order`, cluster by cluster. The traversal
    // is depth-first, so that few groups have their own entries at the same time.
    void split_completely(SubCluster subcluster, std::vector<std::int32_t>& order) {
        if (is_complete(subcluster)) {
            order.insert(order.end(), subcluster.group.labels.begin(), subcluster.group.labels.end());
            return;
        }
        if (monitor_.stop.load(std::memory_order_relaxed)) return;
        for (SubCluster& child : split(std::move(subcluster), 1)) split_completely(std::move(child), order);
    }

    // Performs one split. A subcluster with n_children = 1 becomes a cluster of the next level.
    std::vector<SubCluster> split(SubCluster subcluster, int threads) {
        std::vector<SubCluster> out;
        const LabelGroup& group = subcluster.group;
        if (is_complete(subcluster) || subcluster.n_children == 1) {
            if (!is_complete(subcluster)) {
                for (const std::int32_t label : group.labels)
                    first_labels_[subcluster.level][label] = group.labels.front();
                monitor_.done += static_cast<std::uint64_t>(group.size());
                subcluster = make_cluster(std::move(subcluster.group), subcluster.level + 1);
            }
            out.push_back(std::move(subcluster));
            return out;
        }
        // The first label identifies the subcluster, so the random numbers do not depend on the order of the splits.
        const auto stream = (static_cast<std::uint64_t>(subcluster.level) << 40) | (subcluster.round << 32) |
                            static_cast<std::uint64_t>(group.labels.front());
        const Random random(options_.seed, stream, 1);
        std::vector<std::vector<std::int32_t>> members;
        std::vector<int> child_counts;
        if (options_.bisect && options_.split.balanced && subcluster.n_children > 2) {
            BisectedGroup bisected =
                bisect_repeatedly(group, subcluster.n_children, options_.split, random, threads, monitor_.stop);
            members.resize(bisected.n_clusters.size());
            for (std::size_t m = 0; m < bisected.parts.size(); ++m)
                members[bisected.parts[m]].push_back(static_cast<std::int32_t>(m));
            child_counts = std::move(bisected.n_clusters);
        } else if (options_.bisect) {
            const int left = subcluster.n_children / 2;
            const auto assignment = two_means(group, static_cast<double>(left) / subcluster.n_children, options_.split,
                                              random, threads, monitor_.stop);
            members.resize(2);
            for (std::size_t m = 0; m < assignment.size(); ++m)
                members[assignment[m]].push_back(static_cast<std::int32_t>(m));
            child_counts = {left, subcluster.n_children - left};
        } else {
            const auto assignment =
                k_means(group, subcluster.n_children, options_.split, random, threads, monitor_.stop);
            members.resize(subcluster.n_children);
            for (std::size_t m = 0; m < assignment.size(); ++m)
                members[assignment[m]].push_back(static_cast<std::int32_t>(m));
            child_counts.assign(subcluster.n_children, 1);
        }
        out.resize(members.size());
        parallel_for(std::ssize(members), threads, nullptr, [&](int, std::int64_t s) {
            // A subcluster can have fewer members than its planned number of children.
            const int n_children = static_cast<int>(std::min<std::size_t>(child_counts[s], members[s].size()));
            if (n_children > 0)
                out[s] = {make_subgroup(group, members[s]), subcluster.level, subcluster.round + 1, n_children};
        });
        std::erase_if(out, [](const SubCluster& child) { return child.group.size() == 0; });
        return out;
    }

    // Numbers the clusters of each level in the order of their labels, and omits levels without splits.
    std::vector<std::vector<std::int32_t>> number_clusters(const std::vector<std::vector<std::int32_t>>& orders) {
        std::vector<std::vector<std::int32_t>> levels;
        std::int32_t parent_count = 1;
        for (std::vector<std::int32_t>& clusters : first_labels_) {
            std::int32_t count = 0;
            std::int32_t previous = -1;
            for (const std::vector<std::int32_t>& order : orders)
                for (const std::int32_t label : order) {
                    count += clusters[label] != previous;
                    previous = clusters[label];
                    clusters[label] = count - 1;
                }
            if (count == parent_count) break;
            parent_count = count;
            levels.push_back(std::move(clusters));
        }
        return levels;
    }

    const LabelGroup& labels_;
    const std::span<const int> branching_;
    const PartitionOptions& options_;
    const int threads_;
    Monitor& monitor_;
    std::vector<std::vector<std::int32_t>> first_labels_;  // by level, the first label of each label's cluster
};

}  // namespace

std::vector<std::vector<std::int32_t>> partition(const LabelGroup& labels, std::span<const int> branching,
                                                 const PartitionOptions& options, int threads, Monitor& monitor) {
    return Partitioner(labels, branching, options, threads, monitor).run();
}

}  // namespace carya
