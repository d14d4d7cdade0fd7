#include "memory_limit.hpp"

#include <stdexcept>

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#ifdef __linux__

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>

namespace carya {

namespace {

constexpr double kEvictAbove = 0.75;  // unmap pages if resident memory exceeds this fraction of the limit
constexpr double kEvictTo = 0.55;     // unmap pages until resident memory is below this fraction of the limit
constexpr auto kInterval = std::chrono::milliseconds(10);
constexpr auto kTrimInterval = std::chrono::seconds(1);

[[noreturn]] void fail(const std::string& message, int error) {
    throw std::runtime_error(message + ": " + std::strerror(error) + ".");
}

int open_temporary_file(const std::string& folder) {
    int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) return file;
    std::string path = folder + "/carya-XXXXXX";  // for file systems without O_TMPFILE
    file = mkostemp(path.data(), O_CLOEXEC);
    if (file < 0) fail("Cannot create a temporary file in " + folder, errno);
    unlink(path.c_str());
    return file;
}

// All arrays that are stored in files, and the thread that unmaps their pages.
class FileArrays {
public:
    void set_limit(std::size_t bytes, const std::string& folder) {
        struct statfs info{};
        if (statfs(folder.c_str(), &info) != 0) fail("Cannot use the folder " + folder, errno);
        constexpr decltype(info.f_type) tmpfs = 0x01021994;
        if (info.f_type == tmpfs) throw std::runtime_error(folder + " is stored in memory, not on a disk.");
        close(open_temporary_file(folder));
        const std::lock_guard lock(mutex_);
        if (limit_ > 0) throw std::runtime_error("A memory limit is already set.");
        folder_ = folder;
        thread_ = std::thread([this] { watch(); });  // waits for the lock
        limit_ = bytes;
    }

    void clear_limit() {
        std::thread thread;
        {
            const std::lock_guard lock(mutex_);
            limit_ = 0;
            thread.swap(thread_);
        }
        wake_.notify_all();
        if (thread.joinable()) thread.join();
    }

    std::size_t limit() {
        const std::lock_guard lock(mutex_);
        return limit_;
    }

    void page_out() {
        if (n_arrays_.load(std::memory_order_relaxed) == 0) return;
        const std::lock_guard lock(mutex_);
        evict(0);
    }

    void* allocate(std::size_t bytes) {
        std::string folder;
        {
            const std::lock_guard lock(mutex_);
            if (limit_ == 0) return nullptr;
            folder = folder_;
        }
        const int file = open_temporary_file(folder);
        // Reserve the space now: writing to a mapped file on a full disk would terminate the process.
        const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
        void* memory = error == 0 ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
        const int map_error = error == 0 ? errno : error;
        close(file);
        if (memory == MAP_FAILED)
            fail("Cannot reserve " + std::to_string(bytes >> 20) + " MiB on disk in " + folder, map_error);
        const std::lock_guard lock(mutex_);
        try {
            arrays_[static_cast<char*>(memory)] = bytes;
        } catch (...) {
            munmap(memory, bytes);
            throw;
        }
        n_arrays_.store(arrays_.size(), std::memory_order_relaxed);
        return memory;
    }

    void before_fork() { mutex_.lock(); }
    void after_fork_in_parent() { mutex_.unlock(); }
    // The child process has no watcher thread, so it has no memory limit.
    void after_fork_in_child() {
        limit_ = 0;
        new (&thread_) std::thread;  // the destructor of the parent's object would terminate the process
        new (&wake_) std::condition_variable;
        mutex_.unlock();
    }

    bool free(void* memory, std::size_t bytes) noexcept {
        if (n_arrays_.load(std::memory_order_relaxed) == 0) return false;
        const std::lock_guard lock(mutex_);
        if (arrays_.erase(static_cast<char*>(memory)) == 0) return false;
        n_arrays_.store(arrays_.size(), std::memory_order_relaxed);
        munmap(memory, bytes);
        return true;
    }

private:
    void watch() {
        std::unique_lock lock(mutex_);
        auto last_trim = std::chrono::steady_clock::time_point{};
        while (limit_ > 0) {
            const auto limit = static_cast<double>(limit_);
            if (static_cast<double>(resident_bytes()) > kEvictAbove * limit)
                evict(static_cast<std::size_t>(kEvictTo * limit));
            wake_.wait_for(lock, kInterval, [this] { return limit_ == 0; });
            const auto now = std::chrono::steady_clock::now();
            if (static_cast<double>(resident_bytes()) > kEvictAbove * limit && now - last_trim > kTrimInterval) {
                release_free_memory();
                last_trim = now;
            }
        }
    }

    // Unmaps the pages of one array after another, starting after the last array of the previous call, until at most
    // `target` bytes are resident. The contents remain in the files.
    void evict(std::size_t target) {
        for (std::size_t left = arrays_.size(); left > 0 && resident_bytes() > target; --left) {
            auto array = arrays_.upper_bound(last_evicted_);
            if (array == arrays_.end()) array = arrays_.begin();
            madvise(array->first, array->second, MADV_DONTNEED);
            last_evicted_ = array->first;
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::thread thread_;
    std::string folder_;
    std::size_t limit_ = 0;  // 0 if no limit is set
    std::map<char*, std::size_t> arrays_;
    std::atomic<std::size_t> n_arrays_{0};
    char* last_evicted_ = nullptr;
};

FileArrays& file_arrays() {
    // Never destroyed, because arrays can be freed while the process exits.
    static auto* arrays = [] {
        pthread_atfork([] { file_arrays().before_fork(); }, [] { file_arrays().after_fork_in_parent(); },
                       [] { file_arrays().after_fork_in_child(); });
        return new FileArrays;
    }();
    return *arrays;
}

}  // namespace

void set_memory_limit(std::size_t bytes, const std::string& folder) { file_arrays().set_limit(bytes, folder); }
void clear_memory_limit() { file_arrays().clear_limit(); }
std::size_t memory_limit() { return file_arrays().limit(); }
void page_out() { file_arrays().page_out(); }
void* allocate_in_file(std::size_t bytes) { return file_arrays().allocate(bytes); }
bool free_in_file(void* memory, std::size_t bytes) noexcept { return file_arrays().free(memory, bytes); }

std::size_t resident_bytes() {
    char text[128] = {};
    const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    char* resident = nullptr;
    std::strtoull(text, &resident, 10);  // skip the total size
    return std::strtoull(resident, nullptr, 10) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace carya

#else

namespace carya {

void set_memory_limit(std::size_t, const std::string&) {
    throw std::runtime_error("Memory limits are supported only on Linux.");
}
void clear_memory_limit() {}
std::size_t memory_limit() { return 0; }
void page_out() {}
void* allocate_in_file(std::size_t) { return nullptr; }
bool free_in_file(void*, std::size_t) noexcept { return false; }
std::size_t resident_bytes() { return 0; }

}  // namespace carya

#endif

namespace carya {

void discard_pages(const void* memory, std::size_t bytes) {
#ifdef __linux__
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t first = (address + page - 1) / page * page;
    const std::uintptr_t last = (address + bytes) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}

void release_free_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

}  // namespace carya
