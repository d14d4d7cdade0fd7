#include "parallel.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace carya {

namespace {

// More threads than cores only waste memory. However, 16 threads are allowed even on machines with fewer cores, so that
// results for different numbers of threads can be compared on any machine.
constexpr int kMinThreadLimit = 16;

int available_cores() {
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// State shared by the workers of a loop.
class ParallelLoop {
public:
    ParallelLoop(std::int64_t tasks, Monitor& monitor, const std::function<void(int, std::int64_t)>& body)
        : tasks_(tasks), monitor_(monitor), body_(body) {}

    void work(int worker) noexcept {
        try {
            while (!monitor_.stop.load(std::memory_order_relaxed)) {
                const std::int64_t task = next_.fetch_add(1);
                if (task >= tasks_) break;
                body_(worker, task);
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
            monitor_.stop = true;
        }
    }

    void finished() {
        const std::lock_guard lock(mutex_);
        ++finished_;
        changed_.notify_all();
    }

    // Calls the monitor's tick() periodically until all workers have finished.
    void wait(int workers) {
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, monitor_.interval, [&] { return finished_ == workers; })) {
            lock.unlock();
            try {
                monitor_.tick();
            } catch (...) {
                const std::lock_guard relock(mutex_);
                if (!failure_) failure_ = std::current_exception();
                monitor_.stop = true;
            }
            lock.lock();
        }
    }

    void rethrow() const {
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    const std::int64_t tasks_;
    Monitor& monitor_;
    const std::function<void(int, std::int64_t)>& body_;
    std::atomic<std::int64_t> next_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::exception_ptr failure_;
    int finished_ = 0;
};

}  // namespace

void parallel_for(std::int64_t tasks, int threads, Monitor* monitor,
                  const std::function<void(int, std::int64_t)>& body) {
    if (tasks <= 0) return;
    Monitor default_monitor;
    ParallelLoop loop(tasks, monitor ? *monitor : default_monitor, body);
    const int workers = static_cast<int>(std::clamp<std::int64_t>(threads, 1, tasks));
    // Without a monitor, the calling thread is one of the workers. With a monitor, it remains free to handle Ctrl-C.
    const int spawned = monitor ? workers : workers - 1;
    std::vector<std::thread> pool;
    pool.reserve(spawned);
    try {
        for (int i = 0; i < spawned; ++i)
            pool.emplace_back([&loop, worker = monitor ? i : i + 1] {
                loop.work(worker);
                loop.finished();
            });
    } catch (const std::exception&) {
        // There is not enough memory for more threads, or the system does not allow them, so the existing threads do
        // all the work.
    }
    if (monitor && !pool.empty())
        loop.wait(static_cast<int>(pool.size()));
    else
        loop.work(0);
    for (std::thread& thread : pool) thread.join();
    loop.rethrow();
}

int thread_count(int n_jobs) {
    const int cores = available_cores();
    return n_jobs > 0 ? std::min(n_jobs, std::max(cores, kMinThreadLimit)) : cores;
}

}  // namespace carya
