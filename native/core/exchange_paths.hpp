// Swaps two paths atomically, which Python's standard library does not support.
#pragma once

#include <cerrno>

#ifdef __linux__
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace carya {

// Atomically swaps two paths on the same file system, so that both exist at all times. Returns 0 or an error number.
inline int exchange_paths([[maybe_unused]] const char* a, [[maybe_unused]] const char* b) {
#if defined(__linux__) && defined(SYS_renameat2)
    constexpr unsigned exchange = 2;  // RENAME_EXCHANGE
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, exchange) == 0 ? 0 : errno;
#else
    return ENOSYS;
#endif
}

}  // namespace carya
