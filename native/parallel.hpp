// Threads for the kernels: one loop over tasks, exceptions carried out, progress and interruption from outside.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace carya {

// What the caller of a long kernel sees of it, and its means to stop it. The kernel adds to `done`; the calling thread
// looks in every `interval` and may throw from `tick`, which stops the workers and leaves the kernel by that exception.
class Monitor {
public:
    virtual ~Monitor() = default;
    virtual void tick() {}

    std::atomic<std::uint64_t> done{0};
    std::uint64_t total = 0;
    std::atomic<bool> stop{false};
    std::chrono::milliseconds interval{50};
};

// Calls body(worker, task) for every task in [0, tasks), tasks handed out in order to `threads` workers.
// The first exception of a body stops the others and is rethrown here. What a body computes must depend on its task
// alone, so that the number of threads never changes a result. Without a monitor, one thread means no thread at all.
void parallel_for(std::int64_t tasks, int threads, Monitor* monitor,
                  const std::function<void(int worker, std::int64_t task)>& body);

// The same over `count` items, `per_task` of them a task: body(worker, item). Counts the items done.
template <class Body>
void parallel_each(std::int64_t count, std::int64_t per_task, int threads, Monitor* monitor, const Body& body) {
    parallel_for((count + per_task - 1) / per_task, threads, monitor, [&](int worker, std::int64_t task) {
        const std::int64_t first = task * per_task;
        const std::int64_t last = first + per_task < count ? first + per_task : count;
        for (std::int64_t item = first; item < last; ++item) body(worker, item);
        if (monitor) monitor->done += static_cast<std::uint64_t>(last - first);
    });
}

// The number of threads to use for a user's n_jobs: -1 is all cores of this process.
int thread_count(int n_jobs);

}  // namespace carya
