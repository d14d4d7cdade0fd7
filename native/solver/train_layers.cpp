#include "train_layers.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "../core/memory_limit.hpp"

namespace carya {

namespace {

constexpr float kBiasWithoutPositives = -1e4F;  // finite, but ranks these labels below all others

// The rows of a parent whose labels are divided among several tasks. The first task gathers the rows, and the last task
// frees them.
struct SharedRows {
    std::once_flag gathered;
    LocalRows rows;
    std::vector<std::uint8_t> positive_only;
    std::vector<std::vector<BlockWeights>> blocks;  // by task
    std::atomic<int> users{0};
};

struct Task {
    std::size_t layer;
    std::int64_t parent;
    std::size_t first;  // [first, last) is a range of the parent's labels that have positives
    std::size_t last;
    std::uint64_t work;
    SharedRows* shared;
    std::size_t part;  // index among the tasks of the parent
};

class Trainer {
public:
    Trainer(const Features& features, std::span<const LayerProblem> layers, const SolverOptions& options,
            std::span<const float> sample_weights, int threads, Monitor& monitor)
        : features_(features),
          layers_(layers),
          options_(options),
          sample_weights_(sample_weights),
          thresholds_(options.threshold_by_effect
                          ? WeightThresholds::by_effect(features.sparse, sample_weights, options.threshold)
                          : WeightThresholds(options.threshold)),
          threads_(threads),
          monitor_(monitor) {
        row_work_.reserve(features.rows());
        for (std::int64_t row = 0; row < features.rows(); ++row)
            row_work_.push_back(features.sparse.length(row) + features.dense.cols + 8);
        total_row_work_ = std::accumulate(row_work_.begin(), row_work_.end(), std::int64_t{0});
    }

    std::vector<LayerWeights> run() {
        plan();
        results_.resize(layers_.size());
        for (std::size_t t = 0; t < layers_.size(); ++t) {
            results_[t].biases.assign(layers_[t].order.size(), kBiasWithoutPositives);
            results_[t].dense.assign(layers_[t].order.size() * features_.dense.cols, 0.0F);
            results_[t].chunks.resize(layers_[t].chunks.size() - 1);
            for (std::size_t parent = 0; parent + 1 < layers_[t].chunks.size(); ++parent)
                results_[t].chunks[parent].index_bytes = child_index_bytes(chunk_size(t, parent));
        }
        std::vector<Worker> workers;
        for (int i = 0; i < threads_; ++i) workers.emplace_back(options_, thresholds_, monitor_.stop);
        // Start the largest tasks first, so that no long task starts last.
        std::vector<std::size_t> by_work(tasks_.size());
        std::iota(by_work.begin(), by_work.end(), std::size_t{0});
        std::stable_sort(by_work.begin(), by_work.end(),
                         [&](std::size_t a, std::size_t b) { return tasks_[a].work > tasks_[b].work; });
        parallel_for(static_cast<std::int64_t>(tasks_.size()), threads_, &monitor_,
                     [&](int worker, std::int64_t i) { solve(tasks_[by_work[i]], workers[worker]); });
        for (const LayerWeights& layer : results_)
            if (!std::all_of(layer.biases.begin(), layer.biases.end(), [](float bias) { return std::isfinite(bias); }))
                throw std::invalid_argument("A bias is NaN or infinite.");
        return std::move(results_);
    }

private:
    struct Worker {
        Worker(const SolverOptions& options, const WeightThresholds& thresholds, const std::atomic<bool>& stop)
            : solver(options, thresholds, stop) {}
        RowGatherer gatherer;
        BlockSolver solver;
        LocalRows rows;
        std::vector<std::uint8_t> positive_only;
        std::vector<BlockWeights> blocks;
        WeightCollector collector;
    };

    std::int64_t chunk_size(std::size_t layer, std::size_t parent) const {
        return layers_[layer].chunks[parent + 1] - layers_[layer].chunks[parent];
    }

    // Returns the positions of a parent's labels that have positives.
    std::vector<std::uint32_t> trainable_positions(const LayerProblem& layer, std::int64_t parent) const {
        std::vector<std::uint32_t> positions;
        for (std::int64_t position = layer.chunks[parent]; position < layer.chunks[parent + 1]; ++position)
            if (layer.positives.length(layer.order[position]) > 0)
                positions.push_back(static_cast<std::uint32_t>(position));
        return positions;
    }

    // Creates one task per parent. Large parents are divided into several tasks, because a single task would still
    // occupy one thread after all other threads have finished.
    void plan() {
        for (std::size_t t = 0; t < layers_.size(); ++t) {
            const LayerProblem& layer = layers_[t];
            const auto parents = static_cast<std::int64_t>(layer.chunks.size()) - 1;
            for (std::int64_t parent = 0; parent < parents; ++parent) {
                const std::size_t labels = trainable_positions(layer, parent).size();
                if (labels == 0) continue;
                std::int64_t work = layer.all_rows ? total_row_work_ : 0;
                if (!layer.all_rows)
                    for (std::int64_t e = layer.shortlist.begin(parent); e < layer.shortlist.end(parent); ++e)
                        work += row_work_[layer.shortlist.indices[e]];
                tasks_.push_back({t, parent, 0, labels, static_cast<std::uint64_t>(work) * labels + 1, nullptr, 0});
                monitor_.total += tasks_.back().work;
            }
        }
        const std::uint64_t max_work = monitor_.total / (2 * static_cast<std::uint64_t>(threads_)) + 1;
        const std::size_t n_parents = tasks_.size();
        for (std::size_t i = 0; i < n_parents; ++i) {
            const std::size_t blocks = (tasks_[i].last + kMaxLanes - 1) / kMaxLanes;
            const std::size_t parts = std::min<std::size_t>(blocks, tasks_[i].work / max_work + 1);
            if (threads_ == 1 || parts < 2) continue;
            SharedRows* shared = shared_.emplace_back(std::make_unique<SharedRows>()).get();
            shared->users = static_cast<int>(parts);
            shared->blocks.resize(parts);
            const Task parent = tasks_[i];
            for (std::size_t part = 0; part < parts; ++part) {
                Task task = parent;
                task.first = blocks * part / parts * kMaxLanes;
                task.last = std::min(parent.last, blocks * (part + 1) / parts * kMaxLanes);
                task.work = parent.work * (task.last - task.first) / parent.last;
                task.shared = shared;
                task.part = part;
                if (part == 0)
                    tasks_[i] = task;
                else
                    tasks_.push_back(task);
            }
        }
    }

    void gather(const Task& task, RowGatherer& gatherer, LocalRows& rows, std::vector<std::uint8_t>& positive_only) {
        const LayerProblem& layer = layers_[task.layer];
        positive_only.clear();
        if (layer.all_rows) {
            gatherer.gather_all(features_, rows);
            return;
        }
        const auto shortlisted =
            layer.shortlist.indices.subspan(layer.shortlist.begin(task.parent), layer.shortlist.length(task.parent));
        std::vector<std::int32_t> positives;
        for (const std::uint32_t position : trainable_positions(layer, task.parent)) {
            const std::int32_t label = layer.order[position];
            for (std::int64_t e = layer.positives.begin(label); e < layer.positives.end(label); ++e)
                positives.push_back(layer.positives.indices[e]);
        }
        std::sort(positives.begin(), positives.end());
        positives.erase(std::unique(positives.begin(), positives.end()), positives.end());
        std::vector<std::int32_t> missing;
        std::set_difference(positives.begin(), positives.end(), shortlisted.begin(), shortlisted.end(),
                            std::back_inserter(missing));
        if (missing.empty()) {
            gatherer.gather(features_, shortlisted, rows);
            return;
        }
        std::vector<std::int32_t> all;
        std::merge(shortlisted.begin(), shortlisted.end(), missing.begin(), missing.end(), std::back_inserter(all));
        gatherer.gather(features_, all, rows);
        positive_only.assign(all.size(), 0);
        for (const std::int32_t row : missing)
            positive_only[std::lower_bound(all.begin(), all.end(), row) - all.begin()] = 1;
    }

    void solve(const Task& task, Worker& worker) {
        const LayerProblem& layer = layers_[task.layer];
        LocalRows* rows = &worker.rows;
        std::vector<std::uint8_t>* positive_only = &worker.positive_only;
        if (task.shared) {
            rows = &task.shared->rows;
            positive_only = &task.shared->positive_only;
            std::call_once(task.shared->gathered, [&] { gather(task, worker.gatherer, *rows, *positive_only); });
        } else {
            gather(task, worker.gatherer, *rows, *positive_only);
        }
        const std::vector<std::uint32_t> positions = trainable_positions(layer, task.parent);
        std::vector<std::int32_t> labels(positions.size());
        std::transform(positions.begin(), positions.end(), labels.begin(),
                       [&](std::uint32_t position) { return layer.order[position]; });
        LabelBlock block;
        block.rows = rows;
        block.features = &features_;
        block.positives = &layer.positives;
        block.sample_weights = sample_weights_;
        block.positive_only = *positive_only;
        block.first_position = layer.chunks[task.parent];
        block.seed = layer.seed;
        block.stream = static_cast<std::uint64_t>(layer.level) << 32 |
                       static_cast<std::uint64_t>(layer.first_parent + task.parent);
        LayerWeights& out = results_[task.layer];
        std::vector<BlockWeights>& blocks = task.shared ? task.shared->blocks[task.part] : worker.blocks;
        blocks.resize((task.last - task.first + kMaxLanes - 1) / kMaxLanes);
        for (std::size_t first = task.first; first < task.last; first += kMaxLanes) {
            const std::size_t count = std::min<std::size_t>(kMaxLanes, task.last - first);
            block.labels = std::span(labels).subspan(first, count);
            block.positions = std::span(positions).subspan(first, count);
            worker.solver.solve(block, blocks[(first - task.first) / kMaxLanes], out.biases.data(), out.dense.data());
            monitor_.done += task.work * count / (task.last - task.first);
        }
        if (task.shared) {
            if (--task.shared->users > 0) return;
            // The parent's other tasks have finished, so collect the blocks of all tasks. Their labels are in task
            // order.
            worker.blocks.clear();
            for (std::vector<BlockWeights>& part : task.shared->blocks)
                std::move(part.begin(), part.end(), std::back_inserter(worker.blocks));
            task.shared->blocks.clear();
        }
        out.chunks[task.parent] = worker.collector.combine(rows->feature_ids, worker.blocks,
                                                           chunk_size(task.layer, task.parent), options_.dtype);
        if (task.shared) task.shared->rows = LocalRows();
    }

    const Features& features_;
    std::span<const LayerProblem> layers_;
    const SolverOptions& options_;
    std::span<const float> sample_weights_;
    const WeightThresholds thresholds_;
    const int threads_;
    Monitor& monitor_;
    std::vector<std::int64_t> row_work_;
    std::int64_t total_row_work_ = 0;
    std::vector<Task> tasks_;
    std::vector<std::unique_ptr<SharedRows>> shared_;
    std::vector<LayerWeights> results_;
};

}  // namespace

std::vector<LayerWeights> train_layers(const Features& features, std::span<const LayerProblem> layers,
                                       const SolverOptions& options, std::span<const float> sample_weights, int threads,
                                       Monitor& monitor) {
    std::vector<LayerWeights> weights = Trainer(features, layers, options, sample_weights, threads, monitor).run();
    release_free_memory();
    return weights;
}

}  // namespace carya
