// A file in memory, read-only: its pages are read when they are touched, and shared with other processes.
#pragma once

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

// An open folder. Files opened in it belong together, even if another folder takes its place meanwhile.
class OpenFolder {
public:
    // Throws std::system_error.
    explicit OpenFolder(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
        if (file_ < 0) throw std::system_error(errno, std::generic_category());
    }
    OpenFolder(const OpenFolder&) = delete;
    OpenFolder& operator=(const OpenFolder&) = delete;
    ~OpenFolder() { ::close(file_); }

    int file() const { return file_; }

private:
    int file_;
};

class MappedFile {
public:
    // Throws std::system_error.
    MappedFile(const OpenFolder& folder, const char* name) {
        const int file = ::openat(folder.file(), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) throw std::system_error(errno, std::generic_category());
        struct stat about{};
        void* bytes = MAP_FAILED;
        int error = 0;
        if (::fstat(file, &about) != 0) {
            error = errno;
        } else if (!S_ISREG(about.st_mode) || about.st_size == 0) {
            error = EINVAL;
        } else {
            bytes = ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ, MAP_SHARED, file, 0);
            error = errno;
        }
        ::close(file);  // the mapping stays
        if (bytes == MAP_FAILED) throw std::system_error(error, std::generic_category());
        bytes_ = {static_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(about.st_size)};
    }

    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile() { ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size()); }

    std::span<const std::uint8_t> bytes() const { return bytes_; }

private:
    std::span<const std::uint8_t> bytes_;
};

}  // namespace carya
