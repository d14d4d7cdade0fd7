/* Library, loaded with LD_PRELOAD, that counts a process's file operations and injects a fault into one of them.
 *
 * file_faults(n, mode, exchange)   resets the counter. Operation n (counting from 1) fails with EIO (mode 1), or the
 *                                  process dies immediately before it (mode 2) or after it (mode 3). If exchange is 0,
 *                                  two paths cannot be swapped atomically, as on NFS.
 * file_faults_count()              returns the number of operations since the last reset
 * file_faults_log()                returns a log of these operations, one per line
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long fault_at = -1, count = 0;
static int fault_mode = 0, can_exchange = 1, active = 0;
static char log_text[1 << 16];
static size_t log_size = 0;

void file_faults(long at, int mode, int exchange) {
    fault_at = at;
    fault_mode = mode;
    can_exchange = exchange;
    active = at >= 0;
    count = 0;
    log_size = 0;
    log_text[0] = 0;
}

long file_faults_count(void) { return count; }
const char *file_faults_log(void) { return log_text; }

static void path_of(int descriptor, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
}

/* Counts and logs an operation; returns 1 if it must fail. */
static int before(const char *name, const char *path, const char *other) {
    if (!active) return 0;
    ++count;
    if (log_size < sizeof log_text - 1024)
        log_size += (size_t)snprintf(log_text + log_size, 1024, "%s\t%s\t%s\n", name, path ? path : "", other ? other : "");
    if (count != fault_at) return 0;
    if (fault_mode == 2) _exit(137);
    if (fault_mode == 1) errno = EIO;
    return fault_mode == 1;
}

static void after(void) {
    if (active && count == fault_at && fault_mode == 3) _exit(137);
}

static void *original(const char *name) { return dlsym(RTLD_NEXT, name); }

#define OPERATION(name, path, other, parameters, arguments)                      \
    int name parameters {                                                        \
        if (before(#name, path, other)) return -1;                               \
        const int result = ((int(*) parameters)original(#name))arguments;        \
        after();                                                                 \
        return result;                                                           \
    }

OPERATION(mkdir, path, NULL, (const char *path, mode_t mode), (path, mode))
OPERATION(mkdirat, path, NULL, (int folder, const char *path, mode_t mode), (folder, path, mode))
OPERATION(rename, from, to, (const char *from, const char *to), (from, to))
OPERATION(renameat, from, to, (int a, const char *from, int b, const char *to), (a, from, b, to))
OPERATION(unlink, path, NULL, (const char *path), (path))
OPERATION(unlinkat, path, NULL, (int folder, const char *path, int flags), (folder, path, flags))
OPERATION(rmdir, path, NULL, (const char *path), (path))

int fsync(int descriptor) {
    char path[512];
    path_of(descriptor, path, sizeof path);
    if (before("fsync", path, NULL)) return -1;
    const int result = ((int (*)(int))original("fsync"))(descriptor);
    after();
    return result;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    if (descriptor <= 2) return ((ssize_t(*)(int, const void *, size_t))original("write"))(descriptor, data, size);
    char path[512];
    path_of(descriptor, path, sizeof path);
    if (before("write", path, NULL)) return -1;
    /* If the process dies after this operation, write only part of the data, as if it had died while writing. */
    const size_t part = active && count == fault_at && fault_mode == 3 ? (size + 1) / 2 : size;
    const ssize_t result = ((ssize_t(*)(int, const void *, size_t))original("write"))(descriptor, data, part);
    after();
    return result;
}

#define OPEN(name, counted, parameters, arguments)                               \
    int name parameters {                                                        \
        va_list list;                                                            \
        va_start(list, flags);                                                   \
        const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;          \
        va_end(list);                                                            \
        if (before(counted, path, NULL)) return -1;                              \
        const int result = ((int (*)())original(#name))arguments;                \
        after();                                                                 \
        return result;                                                           \
    }

OPEN(open, "open", (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, "open", (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, "open", (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPEN(openat64, "open", (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
    va_end(list);
    const int counted = number == SYS_renameat2;
    if (counted && before("exchange", (const char *)a[1], (const char *)a[3])) return -1;
    if (counted && active && !can_exchange) {
        errno = EINVAL;
        after();
        return -1;
    }
    const long result = ((long (*)(long, ...))original("syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (counted) after();
    return result;
}
