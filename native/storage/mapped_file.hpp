// Read-only memory-mapped files. Pages are loaded on first access and shared with other processes.
#pragma once

#ifdef _WIN32
#include "mapped_file_windows.hpp"
#else

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

namespace carya {

// An open folder. Files opened through it belong to the same model, even if the folder is replaced in the meantime.
class OpenFolder {
public:
    // Throws std::system_error if the folder cannot be opened.
    explicit OpenFolder(const std::string& path)
        : descriptor_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
        if (descriptor_ < 0) throw std::system_error(errno, std::generic_category());
    }
    OpenFolder(const OpenFolder&) = delete;
    OpenFolder& operator=(const OpenFolder&) = delete;
    ~OpenFolder() { ::close(descriptor_); }

    int descriptor() const { return descriptor_; }

private:
    int descriptor_;
};

class MappedFile {
public:
    // Throws std::system_error if the file cannot be mapped.
    MappedFile(const OpenFolder& folder, const char* name) {
        const int descriptor = ::openat(folder.descriptor(), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) throw std::system_error(errno, std::generic_category());
        struct stat status{};
        void* bytes = MAP_FAILED;
        int error = 0;
        if (::fstat(descriptor, &status) != 0) {
            error = errno;
        } else if (!S_ISREG(status.st_mode) || status.st_size == 0) {
            error = EINVAL;
        } else {
            bytes = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
            error = errno;
        }
        ::close(descriptor);  // the mapping remains valid
        if (bytes == MAP_FAILED) throw std::system_error(error, std::generic_category());
        bytes_ = {static_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(status.st_size)};
    }

    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile() { ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size()); }

    std::span<const std::uint8_t> bytes() const { return bytes_; }

private:
    std::span<const std::uint8_t> bytes_;
};

}  // namespace carya

#endif
