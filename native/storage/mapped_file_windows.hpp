// The Windows version of mapped_file.hpp.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace carya {

[[noreturn]] inline void throw_last_error() {
    throw std::system_error(static_cast<int>(::GetLastError()), std::system_category());
}

// A Windows handle that is closed when it goes out of scope.
class Handle {
public:
    // Throws std::system_error if the function that returned the handle failed.
    explicit Handle(HANDLE handle) : handle_(handle) {
        if (handle == INVALID_HANDLE_VALUE || handle == nullptr) throw_last_error();
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() { ::CloseHandle(handle_); }

    HANDLE get() const { return handle_; }

private:
    HANDLE handle_;
};

// An open folder, which cannot be renamed or deleted until it is closed.
class OpenFolder {
public:
    // Throws std::system_error if the folder cannot be opened. The path is encoded in UTF-8.
    explicit OpenFolder(const std::string& path)
        : path_(std::u8string(path.begin(), path.end())),
          handle_(::CreateFileW(path_.c_str(), FILE_LIST_DIRECTORY, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr,
                                OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr)) {}

    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
    Handle handle_;
};

class MappedFile {
public:
    // Throws std::system_error if the file cannot be mapped.
    MappedFile(const OpenFolder& folder, const char* name) {
        const Handle file(::CreateFileW((folder.path() / name).c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                                        OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
        LARGE_INTEGER size{};
        if (!::GetFileSizeEx(file.get(), &size)) throw_last_error();
        const Handle mapping(::CreateFileMappingW(file.get(), nullptr, PAGE_READONLY, 0, 0, nullptr));
        const void* bytes =
            ::MapViewOfFile(mapping.get(), FILE_MAP_READ, 0, 0, 0);  // valid after the handles are closed
        if (bytes == nullptr) throw_last_error();
        bytes_ = {static_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(size.QuadPart)};
    }

    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile() { ::UnmapViewOfFile(bytes_.data()); }

    std::span<const std::uint8_t> bytes() const { return bytes_; }

private:
    std::span<const std::uint8_t> bytes_;
};

}  // namespace carya
