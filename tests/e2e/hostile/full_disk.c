/* While the file that FULL_DISK names is there, no file of a table can grow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int no_room(int fd, off_t offset)
{
    const char *flag = getenv("FULL_DISK");
    char link[64], path[4096];
    struct stat file;
    ssize_t length;

    if (flag == NULL || access(flag, F_OK) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return strstr(path, "/base/") != NULL && fstat(fd, &file) == 0 && offset >= file.st_size;
}

#define REFUSE_OR(call, type, ...)                                                                                     \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (no_room(fd, offset)) {                                                                                         \
        errno = ENOSPC;                                                                                                \
        return -1;                                                                                                     \
    }                                                                                                                  \
    if (real == NULL)                                                                                                  \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, call);

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    REFUSE_OR("pwrite", ssize_t, int, const void *, size_t, off_t)
    return real(fd, data, bytes, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    REFUSE_OR("pwrite64", ssize_t, int, const void *, size_t, off_t)
    return real(fd, data, bytes, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    REFUSE_OR("pwritev", ssize_t, int, const struct iovec *, int, off_t)
    return real(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset)
{
    REFUSE_OR("pwritev64", ssize_t, int, const struct iovec *, int, off_t)
    return real(fd, parts, count, offset);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    static int (*real)(int, off_t, off_t);
    if (no_room(fd, offset))
        return ENOSPC;
    if (real == NULL)
        real = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
    return real(fd, offset, bytes);
}

int posix_fallocate64(int fd, off_t offset, off_t bytes)
{
    static int (*real)(int, off_t, off_t);
    if (no_room(fd, offset))
        return ENOSPC;
    if (real == NULL)
        real = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate64");
    return real(fd, offset, bytes);
}
