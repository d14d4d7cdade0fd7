// Parallel loops that support exceptions, progress reports and interruption.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace carya {

// Progress reporting and interruption for a long-running kernel. The kernel increments `done`, and the calling thread
// calls `tick` once per `interval`. If `tick` throws, the workers stop and the kernel rethrows the exception.
class Monitor {
public:
    virtual ~Monitor() = default;
    virtual void tick() {}

    std::atomic<std::uint64_t> done{0};
    std::uint64_t total = 0;
    std::atomic<bool> stop{false};
    std::chrono::milliseconds interval{50};
};

// Calls body(worker, task) for every task in [0, tasks), with `threads` workers that take tasks in ascending order. The
// first exception stops the other workers and is rethrown. The result of a task must depend only on the task, so that
// it is independent of the number of threads. With one thread and no monitor, everything runs in the calling thread.
void parallel_for(std::int64_t tasks, int threads, Monitor* monitor,
                  const std::function<void(int worker, std::int64_t task)>& body);

// Calls body(worker, item) for every item in [0, count), with `per_task` items per task, and adds the number of
// finished items to `monitor`.
template <class Body>
void parallel_each(std::int64_t count, std::int64_t per_task, int threads, Monitor* monitor, const Body& body) {
    parallel_for((count + per_task - 1) / per_task, threads, monitor, [&](int worker, std::int64_t task) {
        const std::int64_t first = task * per_task;
        const std::int64_t last = first + per_task < count ? first + per_task : count;
        for (std::int64_t item = first; item < last; ++item) body(worker, item);
        if (monitor) monitor->done += static_cast<std::uint64_t>(last - first);
    });
}

// Returns the number of threads to use for n_jobs; -1 means all cores that are available to this process. The result is
// at most the number of cores or 16, whichever is larger, because every thread requires memory of its own.
int thread_count(int n_jobs);

}  // namespace carya
