/* Descriptors of processes, and advice about the memory of others: pidfd_open(2), process_madvise(2). */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE = 2 << 20, COLD = 20, PAGEOUT = 21, COLLAPSE = 25, IOV_MOST = 1024 };
enum { CAP_SYS_NICE_BIT = 23 };

/* The value of a call, or its error as a negative number. */
static long given(long value) {
    return value == -1 ? -errno : value;
}

static long pidfd(int pid, unsigned flags) {
    return given(syscall(434, pid, flags));
}

static long advise(int fd, const void *parts, size_t nr, int advice, unsigned flags) {
    return given(syscall(440, fd, parts, nr, advice, flags));
}

static char *pages(size_t nr) {
    char *p = mmap(0, nr * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 1, nr * PAGE);
    return p;
}

/* A child that waits to be killed. */
static pid_t sleeper(void) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    CHECK(pid > 0);
    return pid;
}

static void kill_and_wait(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, 0, 0) == pid);
}

static short ready(int fd, short events, int timeout_ms) {
    struct pollfd entry = { fd, events, 0 };
    CHECK(poll(&entry, 1, timeout_ms) >= 0);
    return entry.revents;
}

static void *tell_tid(void *fd) {
    int tid = syscall(SYS_gettid);
    CHECK(write(*(int *)fd, &tid, sizeof tid) == sizeof tid);
    for (;;)
        pause();
}

static void descriptors(void) {
    CHECK(pidfd(0, 0) == -EINVAL && pidfd(-1, 0) == -EINVAL && pidfd(getpid(), 1) == -EINVAL);
    pid_t gone = sleeper();
    kill_and_wait(gone);
    CHECK(pidfd(gone, 0) == -ESRCH);
    int fd = pidfd(getpid(), O_NONBLOCK), ends[2], tid;
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK((fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDWR | O_NONBLOCK));
    char byte;
    CHECK(given(read(fd, &byte, 1)) == -EINVAL && given(write(fd, &byte, 1)) == -EINVAL);
    CHECK(close(fd) == 0);
    pthread_t thread;
    CHECK(pipe(ends) == 0 && pthread_create(&thread, 0, tell_tid, &ends[1]) == 0);
    CHECK(read(ends[0], &tid, sizeof tid) == sizeof tid);
    /* EINVAL before Linux 6.15. */
    long no_leader = pidfd(tid, 0);
    CHECK(no_leader == -ENOENT || no_leader == -EINVAL);
    printf("ok descriptors\n");
}

static void *kill_later(void *pid) {
    usleep(50000);
    CHECK(kill(*(pid_t *)pid, SIGKILL) == 0);
    return 0;
}

static void *wait_later(void *pid) {
    usleep(50000);
    CHECK(waitpid(*(pid_t *)pid, 0, 0) == *(pid_t *)pid);
    return 0;
}

static void ends(void) {
    pid_t pid = sleeper();
    int fd = pidfd(pid, 0), set = epoll_create1(0);
    struct epoll_event event = { EPOLLIN, { .u64 = 7 } };
    CHECK(fd >= 0 && ready(fd, POLLIN | POLLOUT, 0) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, kill_later, &pid) == 0);
    CHECK(ready(fd, POLLIN, -1) == POLLIN && pthread_join(thread, 0) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.events == EPOLLIN && event.data.u64 == 7);
    /* A process that has ended is there until it was waited for. */
    int again = pidfd(pid, 0);
    CHECK(again >= 0 && close(again) == 0);
    CHECK(waitpid(pid, 0, 0) == pid && ready(fd, POLLIN, 0) == (POLLIN | POLLHUP));
    CHECK(close(fd) == 0 && close(set) == 0);
    /* The hang-up alone: when its end is taken, which is later. */
    pid = sleeper();
    fd = pidfd(pid, 0);
    CHECK(kill(pid, SIGKILL) == 0 && ready(fd, POLLIN, -1) == POLLIN);
    CHECK(pthread_create(&thread, 0, wait_later, &pid) == 0);
    CHECK(ready(fd, 0, -1) == POLLHUP && pthread_join(thread, 0) == 0 && close(fd) == 0);
    /* Nobody takes the ends of children that are ignored. */
    CHECK(signal(SIGCHLD, SIG_IGN) == SIG_DFL);
    pid = sleeper();
    fd = pidfd(pid, 0);
    CHECK(pthread_create(&thread, 0, kill_later, &pid) == 0);
    CHECK(ready(fd, 0, -1) == POLLHUP && pthread_join(thread, 0) == 0 && close(fd) == 0);
    CHECK(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
    printf("ok ends\n");
}

static void own_memory(void) {
    char *p = pages(8);
    int fd = pidfd(getpid(), 0);
    struct iovec parts[3] = { { p, PAGE }, { p + 2 * PAGE, 2 * PAGE }, { p + 6 * PAGE, PAGE } };
    CHECK(advise(fd, parts, 3, MADV_DONTNEED, 0) == 4 * PAGE);
    for (int i = 0; i < 8; i++)
        CHECK(p[i * PAGE] == !(i == 0 || i == 2 || i == 3 || i == 6));
    memset(p, 1, 8 * PAGE);
    /* Up to the first that is refused. */
    CHECK(munmap(p + 3 * PAGE, PAGE) == 0);
    CHECK(advise(fd, parts, 3, MADV_DONTNEED, 0) == PAGE && p[0] == 0 && p[6 * PAGE] == 1);
    CHECK(advise(fd, parts + 1, 2, MADV_DONTNEED, 0) == -ENOMEM && p[6 * PAGE] == 1);
    struct iovec odd[2] = { { p, PAGE }, { p + PAGE + 1, PAGE } };
    CHECK(advise(fd, odd, 2, COLD, 0) == PAGE && advise(fd, odd + 1, 1, COLD, 0) == -EINVAL);
    /* A part of a page is all of it, but counts as it is given. */
    struct iovec part = { p + PAGE, 5 };
    CHECK(advise(fd, &part, 1, MADV_DONTNEED, 0) == 5 && p[PAGE + 100] == 0);
    CHECK(advise(fd, 0, 0, 12345, 0) == 0 && advise(fd, parts, 1, 12345, 0) == -EINVAL);
    CHECK(close(fd) == 0);
    printf("ok own memory\n");
}

static void arguments(void) {
    static struct iovec many[IOV_MOST + 1];
    char *p = pages(1);
    int fd = pidfd(getpid(), 0), other = open("/dev/null", O_RDWR);
    for (int i = 0; i <= IOV_MOST; i++)
        many[i] = (struct iovec){ p, PAGE };
    CHECK(advise(fd, many, IOV_MOST, COLD, 0) == IOV_MOST * PAGE);
    CHECK(advise(fd, many, IOV_MOST + 1, COLD, 0) == -EINVAL);
    CHECK(advise(fd, (void *)8, 1, COLD, 0) == -EFAULT);
    struct iovec wrong[2] = { { p, PAGE }, { p, (size_t)1 << 63 } }, beyond = { (void *)(1ul << 63), PAGE };
    CHECK(advise(fd, wrong, 2, COLD, 0) == -EINVAL && advise(fd, &beyond, 1, COLD, 0) == -EFAULT);
    CHECK(advise(-1, many, 1, COLD, 0) == -EBADF && advise(other, many, 1, COLD, 0) == -EBADF);
    /* Which of two errors is told. */
    CHECK(advise(-1, (void *)8, 1, COLD, 1) == -EINVAL && advise(-1, (void *)8, 1, COLD, 0) == -EFAULT);
    CHECK(close(other) == 0 && close(fd) == 0);
    CHECK(advise(fd, many, 1, COLD, 0) == -EBADF);
    printf("ok arguments\n");
}

/* Kilobytes of huge pages in the private memory of a process. */
static long huge_kib(pid_t pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    FILE *file = fopen(path, "r");
    long sum = 0, kib;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %ld", &kib) == 1)
            sum += kib;
    CHECK(file && fclose(file) == 0);
    return sum;
}

static void memory_of_others(void) {
    int file = syscall(SYS_memfd_create, "advised", 0);
    char *p = pages(4), *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(ftruncate(file, PAGE) == 0 && shared != MAP_FAILED);
    char *huge = mmap(0, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(huge != MAP_FAILED);
    huge += -(unsigned long)huge % HUGE;
    /* Small pages, since only half of it is mapped at first. */
    CHECK(munmap(huge + HUGE / 2, HUGE) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        for (long at = 0; at < HUGE / 2; at += PAGE)
            huge[at] = 1;
        mmap(huge + HUGE / 2, HUGE / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        raise(SIGSTOP);
        _exit(p[0] == 1 && p[3 * PAGE] == 1 && huge[HUGE / 2 - PAGE] == 1 && huge[HUGE / 2] == 0 ? 5 : 6);
    }
    int fd = pidfd(pid, 0), status;
    CHECK(fd >= 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && huge_kib(pid) == 0);
    struct iovec parts[3] = { { p, PAGE }, { p + 2 * PAGE, 2 * PAGE }, { shared, PAGE } }, all = { huge, HUGE };
    CHECK(advise(fd, parts, 3, COLD, 0) == 4 * PAGE && advise(fd, parts, 3, PAGEOUT, 0) == 4 * PAGE);
    CHECK(advise(fd, parts + 2, 1, MADV_WILLNEED, 0) == PAGE);
    for (int advice = 0; advice < 110; advice++)
        if (advice != MADV_WILLNEED && advice != COLD && advice != PAGEOUT && advice != COLLAPSE)
            CHECK(advise(fd, parts, 3, advice, 0) == -EINVAL);
    CHECK(advise(fd, 0, 0, MADV_DONTNEED, 0) == -EINVAL && advise(fd, 0, 0, COLD, 0) == 0);
    /* It is the other's memory that is meant. */
    CHECK(munmap(p, PAGE) == 0 && advise(fd, parts, 3, COLD, 0) == 4 * PAGE);
    CHECK(advise(fd, &all, 1, COLLAPSE, 0) == HUGE && huge_kib(pid) == HUGE / 1024);
    CHECK(kill(pid, SIGCONT) == 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    printf("ok memory of others\n");
    CHECK(ready(fd, POLLIN, 0) == (POLLIN | POLLHUP) && advise(fd, parts, 3, COLD, 0) == -ESRCH);
    pid = sleeper();
    int ended = pidfd(pid, 0);
    CHECK(kill(pid, SIGKILL) == 0 && ready(ended, POLLIN, -1) == POLLIN);
    CHECK(advise(ended, parts, 3, COLD, 0) == -ESRCH && advise(ended, parts, 3, MADV_DONTNEED, 0) == -ESRCH);
    CHECK(waitpid(pid, 0, 0) == pid && close(ended) == 0 && close(fd) == 0);
    printf("ok ended processes\n");
}

/* Memory that is lent is the caller's own. */
static void lent_memory(void) {
    char *p = pages(1);
    struct iovec part = { p, PAGE };
    volatile int fd = pidfd(getpid(), 0);
    volatile long answer = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        answer = syscall(440, fd, &part, 1, MADV_DONTNEED, 0);
        _exit(0);
    }
    CHECK(waitpid(pid, 0, 0) == pid && answer == PAGE && p[0] == 0 && close(fd) == 0);
    printf("ok lent memory\n");
}

/* Gives capabilities up: all, or one. */
static void drop(unsigned keep_low, unsigned keep_high) {
    struct {
        unsigned version;
        int pid;
    } header = { 0x20080522, 0 };
    struct {
        unsigned effective, permitted, inheritable;
    } sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[0].effective = sets[0].permitted &= keep_low;
    sets[1].effective = sets[1].permitted &= keep_high;
    sets[0].inheritable = sets[1].inheritable = 0;
    CHECK(syscall(SYS_capset, &header, sets) == 0);
}

static char *advised;

/* The answer that a child gets which has become `uid` and `gid`, if they are not 0, without some capabilities. */
static long answer_for(pid_t target, int uid, int gid, unsigned keep_low, unsigned keep_high, int advice) {
    int results[2];
    long answer;
    CHECK(pipe(results) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct iovec part = { advised, PAGE };
        int fd = pidfd(target, 0);
        if (gid)
            CHECK(syscall(SYS_setresgid, gid, gid, gid) == 0);
        if (uid)
            CHECK(syscall(SYS_setresuid, uid, uid, uid) == 0);
        if (~keep_low || ~keep_high)
            drop(keep_low, keep_high);
        answer = advise(fd, &part, 1, advice, 0);
        CHECK(write(results[1], &answer, sizeof answer) == sizeof answer);
        _exit(0);
    }
    CHECK(close(results[1]) == 0 && read(results[0], &answer, sizeof answer) == sizeof answer);
    CHECK(waitpid(pid, 0, 0) == pid && close(results[0]) == 0);
    return answer;
}

/* A child of that user, which may be dumped or not. */
static pid_t child_of(int uid, int is_dumpable) {
    pid_t pid = fork();
    if (pid == 0) {
        if (uid)
            CHECK(syscall(SYS_setresuid, uid, uid, uid) == 0);
        CHECK(prctl(PR_SET_DUMPABLE, is_dumpable, 0, 0, 0) == 0);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    return pid;
}

static void rights(void) {
    const unsigned all = ~0u, no_nice = ~(1u << CAP_SYS_NICE_BIT);
    advised = pages(1);
    pid_t root = child_of(0, 1), hidden_root = child_of(0, 0), user = child_of(7, 1), hidden = child_of(7, 0);
    CHECK(answer_for(root, 0, 0, all, all, COLD) == PAGE);
    CHECK(answer_for(hidden_root, 0, 0, all, all, COLD) == PAGE);
    CHECK(answer_for(hidden, 0, 0, all, all, COLD) == PAGE);
    /* Without the right to change how fast others run. */
    CHECK(answer_for(root, 0, 0, no_nice, all, COLD) == -EPERM);
    CHECK(answer_for(root, 0, 0, no_nice, all, MADV_DONTNEED) == -EINVAL);
    /* Without the right to look into any process. */
    CHECK(answer_for(root, 0, 0, 0, 0, COLD) == -EACCES);
    CHECK(answer_for(root, 7, 0, all, all, COLD) == -EACCES);
    CHECK(answer_for(root, 7, 0, all, all, MADV_DONTNEED) == -EACCES);
    CHECK(answer_for(user, 7, 0, all, all, COLD) == -EPERM);
    CHECK(answer_for(user, 8, 0, all, all, COLD) == -EACCES);
    CHECK(answer_for(user, 7, 8, all, all, COLD) == -EACCES);
    CHECK(answer_for(hidden, 7, 0, all, all, COLD) == -EACCES);
    kill_and_wait(root);
    kill_and_wait(hidden_root);
    kill_and_wait(user);
    kill_and_wait(hidden);
    /* Its own memory is everybody's, whatever they may. */
    struct iovec part = { advised, PAGE };
    pid_t pid = fork();
    if (pid == 0) {
        drop(0, 0);
        int fd = pidfd(getpid(), 0);
        CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
        _exit(advise(fd, &part, 1, COLD, 0) == PAGE ? 5 : 6);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
    printf("ok rights\n");
}

/* Two processes that advise each other at the same time. Neither waits for the other. */
static void each_other(void) {
    int pipes[2], rounds = 20000;
    advised = pages(1);
    struct iovec part = { advised, PAGE };
    CHECK(pipe(pipes) == 0);
    pid_t pid = fork();
    int fd = pidfd(pid ? pid : getppid(), 0);
    CHECK(pid >= 0 && fd >= 0);
    char byte = 0;
    if (pid == 0)
        CHECK(write(pipes[1], &byte, 1) == 1);
    else
        CHECK(read(pipes[0], &byte, 1) == 1);
    for (int i = 0; i < rounds; i++)
        CHECK(advise(fd, &part, 1, COLD, 0) == PAGE);
    if (pid == 0) {
        /* Until its parent is through. */
        pause();
        _exit(0);
    }
    close(fd);
    kill_and_wait(pid);
    puts("each other");
}

/* Names of descriptors without a file. */
static void names(void) {
    char path[64], name[64] = "";
    int fd = eventfd(0, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, name, sizeof name - 1) > 0);
    printf("name: %s\n", name);
    close(fd);
}

int main(void) {
    setbuf(stdout, 0);
    /* Who is not woken sleeps for ever. */
    alarm(60);
    ends();
    own_memory();
    arguments();
    memory_of_others();
    lent_memory();
    rights();
    descriptors();
    each_other();
    names();
    puts("done");
    return 0;
}
