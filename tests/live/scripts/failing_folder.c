/* A folder whose disk fails, for LD_PRELOAD. FAIL_UNDER: its path. FAIL_IF: a file that is there as soon as the disk fails.
 * FAIL_ERRNO: the number of the error. FAIL_SLOW: seconds that a call takes instead of failing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fails(const char *path) {
    const char *under = getenv("FAIL_UNDER"), *when = getenv("FAIL_IF"), *number = getenv("FAIL_ERRNO"), *slow = getenv("FAIL_SLOW");
    if (under == NULL || path == NULL || strncmp(path, under, strlen(under)) != 0) return 0;
    if (when != NULL && access(when, F_OK) != 0) return 0;
    if (slow != NULL) return sleep(atoi(slow)), 0;
    errno = number == NULL ? EIO : atoi(number);
    return 1;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define OPEN(name)                                                                                    \
    int name(const char *path, int flags, ...) {                                                      \
        va_list rest;                                                                                 \
        va_start(rest, flags);                                                                        \
        mode_t mode = va_arg(rest, int);                                                              \
        va_end(rest);                                                                                 \
        return fails(path) ? -1 : REAL(int, name, const char *, int, ...)(path, flags, mode);         \
    }
OPEN(open)
OPEN(open64)
int mkdir(const char *path, mode_t mode) { return fails(path) ? -1 : REAL(int, mkdir, const char *, mode_t)(path, mode); }
int stat(const char *path, struct stat *out) { return fails(path) ? -1 : REAL(int, stat, const char *, struct stat *)(path, out); }
int stat64(const char *path, struct stat64 *out) { return fails(path) ? -1 : REAL(int, stat64, const char *, struct stat64 *)(path, out); }
int rename(const char *from, const char *to) { return fails(from) ? -1 : REAL(int, rename, const char *, const char *)(from, to); }
ssize_t write(int fd, const void *data, size_t size) {
    char link[64], path[4096];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    path[length < 0 ? 0 : length] = 0;
    return fails(path) ? -1 : REAL(ssize_t, write, int, const void *, size_t)(fd, data, size);
}
