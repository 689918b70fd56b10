/* Definitions for the programs that ask memory calls for their answers: "CALL: ok" or "CALL: ERRNO", one a line. System calls
   are made as they are: C libraries check arguments, too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define RW (PROT_READ | PROT_WRITE)

/* musl has not all of them. */
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static const unsigned long end_of_user = 0x7ffffffff000;

#define sys(...) syscall(__VA_ARGS__)

static inline long sys_mmap(void *addr, unsigned long len, unsigned long prot, unsigned long flags, int fd, unsigned long offset) {
    return syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

static inline const char *answer(long value) {
    static char number[16];
    static const struct {
        int number;
        const char *name;
    } names[] = { { EPERM, "EPERM" },   { ENOENT, "ENOENT" }, { ESRCH, "ESRCH" },       { EBADF, "EBADF" },
                  { EAGAIN, "EAGAIN" }, { ENOMEM, "ENOMEM" }, { EACCES, "EACCES" },     { EFAULT, "EFAULT" },
                  { EBUSY, "EBUSY" },   { EEXIST, "EEXIST" }, { ENODEV, "ENODEV" },     { EINVAL, "EINVAL" },
                  { ENOSYS, "ENOSYS" }, { EFBIG, "EFBIG" },   { EOVERFLOW, "EOVERFLOW" }, { EOPNOTSUPP, "EOPNOTSUPP" },
                  { ETXTBSY, "ETXTBSY" }, { ENOSPC, "ENOSPC" }, { ETIMEDOUT, "ETIMEDOUT" } };
    if (value != -1)
        return "ok";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == errno)
            return names[i].name;
    snprintf(number, sizeof number, "errno %d", errno);
    return number;
}

/* Makes the call and says what it gave. */
#define ASK(call, ...)                                                                                                 \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        const char *answer_ = answer((long)(call));                                                                    \
        printf(__VA_ARGS__);                                                                                           \
        printf(": %s\n", answer_);                                                                                     \
    } while (0)

/* The same for a call that maps `len` bytes, which are unmapped again. An address below 2 GiB is said. */
#define ASK_MAP(call, len, ...)                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        unsigned long at_ = (unsigned long)(call);                                                                     \
        const char *answer_ = answer((long)at_);                                                                       \
        printf(__VA_ARGS__);                                                                                           \
        printf(": %s%s\n", answer_, at_ < 1ul << 31 ? " low" : "");                                                    \
        if (at_ != -1ul)                                                                                               \
            syscall(SYS_munmap, at_, (len));                                                                           \
    } while (0)

/* How many bytes, or which error. */
#define SAY(value, ...)                                                                                                \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long value_ = (value);                                                                                         \
        const char *answer_ = answer(value_);                                                                          \
        printf(__VA_ARGS__);                                                                                           \
        if (value_ == -1)                                                                                              \
            printf(": %s\n", answer_);                                                                                 \
        else                                                                                                           \
            printf(": %ld\n", value_);                                                                                 \
    } while (0)

/* The end of a child that has asked something. */
static inline void finish(void) {
    fflush(stdout);
    _exit(0);
}

/* Forks a child with nothing of this one's output. */
static inline pid_t child(void) {
    fflush(stdout);
    return fork();
}

static inline void wait_for_child(void) {
    int status;
    if (wait(&status) < 0 || status != 0)
        printf("a child ended with status 0x%x\n", status);
}
