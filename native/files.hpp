// The one thing about files that Python's standard library does not offer.
#pragma once

#ifdef __linux__
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace carya {

// Swaps two paths on one file system atomically: no reader ever finds either missing. False where it cannot be done.
inline bool exchange_paths([[maybe_unused]] const char* a, [[maybe_unused]] const char* b) {
#if defined(__linux__) && defined(SYS_renameat2)
    constexpr unsigned exchange = 2;  // RENAME_EXCHANGE
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, exchange) == 0;
#else
    return false;
#endif
}

}  // namespace carya
