/* Calls of the C library that fail for one file, as on a disk or over a network that fails: for LD_PRELOAD.
 *
 * FAIL_NAME: the last part of the file's name. FAIL_CALL: open, read, stat or list (of the folder of that name). FAIL_AFTER: how many
 * such calls of one process succeed before. FAIL_ERRNO: the number of the error.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int left = -1;

static int ends_so(const char *path) {
    const char *name = getenv("FAIL_NAME"), *last = strrchr(path, '/');
    return name != NULL && strcmp(last == NULL ? path : last + 1, name) == 0;
}

static int fails(const char *call, const char *path) {
    const char *wanted = getenv("FAIL_CALL"), *after = getenv("FAIL_AFTER"), *number = getenv("FAIL_ERRNO");
    if (wanted == NULL || strcmp(wanted, call) != 0 || !ends_so(path)) return 0;
    if (left < 0) left = after == NULL ? 0 : atoi(after);
    if (left > 0) return left--, 0;
    errno = number == NULL ? EIO : atoi(number);
    return 1;
}

static int fails_at(const char *call, int fd) {
    char link[64], path[4096];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length <= 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

ssize_t read(int fd, void *buffer, size_t size) {
    static ssize_t (*next)(int, void *, size_t);
    if (next == NULL) next = dlsym(RTLD_NEXT, "read");
    return fails_at("read", fd) ? -1 : next(fd, buffer, size);
}

#define OPEN(name)                                                    \
    int name(const char *path, int flags, ...) {                      \
        static int (*next)(const char *, int, ...);                   \
        va_list more;                                                 \
        va_start(more, flags);                                        \
        int mode = flags & O_CREAT ? va_arg(more, int) : 0;           \
        va_end(more);                                                 \
        if (next == NULL) next = dlsym(RTLD_NEXT, #name);             \
        return fails("open", path) ? -1 : next(path, flags, mode);    \
    }
OPEN(open)
OPEN(open64)

#define STAT(name, kind)                                              \
    int name(const char *path, struct kind *found) {                  \
        static int (*next)(const char *, struct kind *);              \
        if (next == NULL) next = dlsym(RTLD_NEXT, #name);             \
        return fails("stat", path) ? -1 : next(path, found);          \
    }
STAT(stat, stat)
STAT(stat64, stat64)

DIR *opendir(const char *path) {
    static DIR *(*next)(const char *);
    if (next == NULL) next = dlsym(RTLD_NEXT, "opendir");
    return fails("list", path) ? NULL : next(path);
}
