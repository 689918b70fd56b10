/* A process keeps to the limits that getrlimit(2) tells it: after a fork in memory that is another's, and while another
   thread sets them. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR_FORKS = 20, NR_TURNS = 2000 };
static const rlim_t few_bytes = 4096;
static const size_t many_bytes = 64 << 20;

static void limit_data(rlim_t bytes) {
    struct rlimit limit = { bytes, RLIM_INFINITY };
    if (syscall(SYS_setrlimit, RLIMIT_DATA, &limit) != 0)
        _exit(9);
}

/* Whether data is limited: by getrlimit(2) in bit 0, by mmap(2) in bit 1. */
static int limits(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    void *p = mmap(0, many_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED)
        munmap(p, many_bytes);
    return (limit.rlim_cur == few_bytes) | (p == MAP_FAILED) << 1;
}

static int status_of(pid_t pid) {
    int status;
    if (pid <= 0 || syscall(SYS_wait4, pid, &status, 0, 0) != pid || !WIFEXITED(status))
        return 99;
    return WEXITSTATUS(status);
}

/* A child of vfork(2) changes itself, and forks. */
static void limits_of_a_grandchild(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        limit_data(few_bytes);
        pid_t grandchild = syscall(SYS_fork);
        if (grandchild == 0)
            _exit(limits());
        _exit(status_of(grandchild));
    }
    CHECK(status_of(pid) == 3 && limits() == 0);
    printf("ok a limit set in borrowed memory\n");
}

/* A process that is not root locks no more than the limit. */
static void capabilities_of_a_grandchild(void) {
    struct rlimit limit;
    size_t bytes = 16 * 4096;
    char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    limit.rlim_cur = bytes / 2;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    pid_t pid = vfork();
    if (pid == 0) {
        if (syscall(SYS_setresuid, 7, 7, 7) != 0)
            _exit(1);
        pid_t grandchild = syscall(SYS_fork);
        if (grandchild == 0)
            _exit(mlock(p, bytes) == 0 ? 2 : 1);
        _exit(status_of(grandchild));
    }
    CHECK(status_of(pid) == 1);
    printf("ok a user set in borrowed memory\n");
}

static atomic_int stop, turn, nr_arrived;

static void *toggle(void *unused) {
    while (!stop) {
        limit_data(few_bytes);
        limit_data(RLIM_INFINITY);
    }
    return unused;
}

static void limits_of_a_child(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, toggle, 0) == 0);
    for (int i = 0; i < NR_FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(limits());
        int seen = status_of(pid);
        CHECK(seen == 0 || seen == 3);
    }
    stop = 1;
    CHECK(pthread_join(thread, 0) == 0);
    printf("ok limits set during a fork\n");
}

/* Two threads set a limit at once; one of them is the last. */
static void meet(int wanted) {
    if (++nr_arrived == 2) {
        nr_arrived = 0;
        turn = wanted;
    }
    while (turn < wanted)
        ;
}

static void *set_few(void *unused) {
    for (int i = 0; i < NR_TURNS; i++) {
        meet(2 * i + 1);
        limit_data(few_bytes);
        meet(2 * i + 2);
    }
    return unused;
}

static void limits_of_two_threads(void) {
    pthread_t thread;
    int differ = 0;
    limit_data(RLIM_INFINITY);
    CHECK(pthread_create(&thread, 0, set_few, 0) == 0);
    for (int i = 0; i < NR_TURNS; i++) {
        meet(2 * i + 1);
        limit_data(RLIM_INFINITY);
        meet(2 * i + 2);
        int seen = limits();
        differ += seen != 0 && seen != 3;
    }
    CHECK(pthread_join(thread, 0) == 0 && differ == 0);
    limit_data(RLIM_INFINITY);
    printf("ok limits set by two threads\n");
}

int main(void) {
    limits_of_a_grandchild();
    capabilities_of_a_grandchild();
    limits_of_a_child();
    limits_of_two_threads();
    printf("done\n");
    return 0;
}
