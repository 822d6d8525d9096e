/* Fails the Nth call of one kind. Preloaded into a client or a daemon.
 *
 * A page that is shared with the benchmark says which kind, how many calls are left until the one that fails, and with
 * which error. See shim.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of CALLS in shim.py. */
enum { OPEN = 1, READ, WRITE, FSYNC, RENAME, MMAP, FTRUNCATE, MEMFD, SOCKET, CONNECT, SEND, RECV, POLL, THREAD };

struct control {
    atomic_int call, error;
    atomic_long left;
};

static struct control *control;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("FAULTS_CONTROL");
    long file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = (void *)syscall(SYS_mmap, 0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (page != MAP_FAILED)
        control = page;
}

static int fails(int call) {
    if (!control || atomic_load(&control->call) != call || atomic_fetch_sub(&control->left, 1) != 1)
        return 0;
    errno = atomic_load(&control->error);
    return 1;
}

#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (!real)                                                                                                         \
        real = (__typeof__(real))dlsym(RTLD_NEXT, #name);

#define WRAP(call, failed, type, name, parameters, ...)                                                                \
    type name parameters {                                                                                             \
        REAL(name)                                                                                                     \
        return fails(call) ? (type)(failed) : real(__VA_ARGS__);                                                       \
    }

#define WRAP_OPEN(name)                                                                                                \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(name)                                                                                                     \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;                                              \
        va_end(rest);                                                                                                  \
        return fails(OPEN) ? -1 : real(path, flags, mode);                                                             \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP(READ, -1, ssize_t, read, (int f, void *b, size_t n), f, b, n)
WRAP(READ, -1, ssize_t, pread64, (int f, void *b, size_t n, off64_t o), f, b, n, o)
WRAP(WRITE, -1, ssize_t, write, (int f, const void *b, size_t n), f, b, n)
WRAP(WRITE, -1, ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), f, b, n, o)
WRAP(WRITE, -1, ssize_t, writev, (int f, const struct iovec *v, int n), f, v, n)
WRAP(FSYNC, -1, int, fsync, (int f), f)
WRAP(FSYNC, -1, int, fdatasync, (int f), f)
WRAP(RENAME, -1, int, rename, (const char *a, const char *b), a, b)
WRAP(RENAME, -1, int, renameat, (int d, const char *a, int e, const char *b), d, a, e, b)
WRAP(MMAP, MAP_FAILED, void *, mmap, (void *a, size_t n, int p, int g, int f, off_t o), a, n, p, g, f, o)
WRAP(MMAP, MAP_FAILED, void *, mmap64, (void *a, size_t n, int p, int g, int f, off64_t o), a, n, p, g, f, o)
WRAP(FTRUNCATE, -1, int, ftruncate, (int f, off_t n), f, n)
WRAP(FTRUNCATE, -1, int, ftruncate64, (int f, off64_t n), f, n)
WRAP(MEMFD, -1, int, memfd_create, (const char *s, unsigned g), s, g)
WRAP(SOCKET, -1, int, socket, (int d, int t, int p), d, t, p)
WRAP(SOCKET, -1, int, accept4, (int f, struct sockaddr *a, socklen_t *n, int g), f, a, n, g)
WRAP(CONNECT, -1, int, connect, (int f, const struct sockaddr *a, socklen_t n), f, a, n)
WRAP(SEND, -1, ssize_t, send, (int f, const void *b, size_t n, int g), f, b, n, g)
WRAP(SEND, -1, ssize_t, sendmsg, (int f, const struct msghdr *m, int g), f, m, g)
WRAP(RECV, -1, ssize_t, recv, (int f, void *b, size_t n, int g), f, b, n, g)
WRAP(RECV, -1, ssize_t, recvmsg, (int f, struct msghdr *m, int g), f, m, g)
WRAP(POLL, -1, int, poll, (struct pollfd *p, nfds_t n, int t), p, n, t)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    REAL(pthread_create)
    return fails(THREAD) ? EAGAIN : real(thread, attributes, run, argument);
}
