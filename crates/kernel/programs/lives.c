/* Reports of a descriptor of a process or thread (pidfd_open(2)), up to its end and beyond. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, THREAD = O_EXCL, COLD = 20, NR_DEAD = 600, GONE = POLLIN | POLLHUP };

static long given(long value) {
    return value == -1 ? -errno : value;
}

static long pidfd(int number, unsigned flags) {
    return given(syscall(434, number, flags));
}

static short ready(int fd, int timeout_ms) {
    struct pollfd entry = { fd, POLLIN | POLLOUT, 0 };
    CHECK(poll(&entry, 1, timeout_ms) >= 0);
    return entry.revents;
}

/* The answer to advice about a page of this program's. */
static long advice(int fd) {
    static char memory[2 * PAGE];
    struct iovec part = { memory + PAGE - (unsigned long)memory % PAGE, PAGE };
    return given(syscall(440, fd, &part, 1, COLD, 0));
}

/* Whether fdinfo names `number`, in its last two lines; -1 is nobody. */
static int says(int fd, int number) {
    char path[64], text[512] = "", last[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    snprintf(last, sizeof last, "\nPid:\t%d\nNSpid:\t%d\n", number, number);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    long got = read(file, text, sizeof text - 1), size = strlen(last);
    CHECK(close(file) == 0 && strncmp(text, "pos:\t0\nflags:\t02000", 19) == 0);
    return got > size && strcmp(text + got - size, last) == 0;
}

static pid_t child(void (*run)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        run();
        for (;;)
            pause();
    }
    CHECK(pid > 0);
    return pid;
}

static void nothing(void) {
}

static void kill_and_wait(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, 0, 0) == pid);
}

static void flags(void) {
    for (int bit = 0; bit < 32; bit++) {
        long fd = pidfd(getpid(), 1u << bit);
        printf("flag %d: %s", bit, fd >= 0 ? "ok" : strerror(-fd));
        if (fd >= 0) {
            printf(", status 0%o, closes %d", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
            CHECK(fcntl(fd, F_SETFL, 0) == 0);
            printf(", then 0%o", fcntl(fd, F_GETFL));
            CHECK(close(fd) == 0);
        }
        printf("\n");
    }
    CHECK(pidfd(0, THREAD) == -EINVAL && pidfd(-1, THREAD) == -EINVAL && pidfd(1 << 30, 1) == -EINVAL);
    CHECK(pidfd(1 << 30, 0) == -ESRCH && pidfd(1 << 30, THREAD) == -ESRCH);
}

static void process(void) {
    pid_t pid = child(nothing);
    int fd = pidfd(pid, 0), first = pidfd(pid, THREAD);
    CHECK(fd >= 0 && first >= 0 && ready(fd, 0) == 0 && says(fd, pid) && says(first, pid));
    CHECK(kill(pid, SIGKILL) == 0 && ready(fd, -1) == POLLIN && ready(first, 0) == POLLIN);
    CHECK(says(fd, pid) && says(first, pid) && advice(fd) == -ESRCH);
    CHECK(waitpid(pid, 0, 0) == pid && ready(fd, 0) == GONE && ready(first, 0) == GONE);
    CHECK(says(fd, -1) && says(first, -1) && advice(fd) == -ESRCH);
    CHECK(close(fd) == 0 && close(first) == 0);
    printf("ok process\n");
}

static int to_parent[2];

static void *tell_and_wait(void *then) {
    int tid = syscall(SYS_gettid);
    CHECK(write(to_parent[1], &tid, sizeof tid) == sizeof tid);
    usleep(50000);
    if (then)
        execl("/proc/self/exe", "lives", "sleep", (char *)0);
    for (;;)
        pause();
}

static int next_tid(void) {
    int tid;
    CHECK(read(to_parent[0], &tid, sizeof tid) == sizeof tid);
    return tid;
}

static void *tell_and_end(void *go_on) {
    char byte;
    int tid = syscall(SYS_gettid);
    CHECK(write(to_parent[1], &tid, sizeof tid) == sizeof tid && read(*(int *)go_on, &byte, 1) == 1);
    return 0;
}

static void thread(void) {
    pthread_t other;
    int go_on[2];
    CHECK(pipe(go_on) == 0 && pthread_create(&other, 0, tell_and_end, &go_on[0]) == 0);
    int tid = next_tid(), fd = pidfd(tid, THREAD), first = pidfd(getpid(), THREAD);
    /* EINVAL before Linux 6.15. */
    CHECK(pidfd(tid, 0) == -ENOENT || pidfd(tid, 0) == -EINVAL);
    CHECK(fd >= 0 && ready(fd, 0) == 0 && says(fd, tid) && says(first, getpid()));
    CHECK(advice(fd) == -ESRCH && advice(first) == PAGE);
    CHECK(write(go_on[1], "", 1) == 1 && ready(fd, -1) == GONE && says(fd, -1) && advice(fd) == -ESRCH);
    CHECK(pthread_join(other, 0) == 0 && close(fd) == 0 && ready(first, 0) == 0 && close(first) == 0);
    printf("ok thread\n");
}

/* The first thread ends, another one goes on. */
static void without_first(void) {
    pthread_t other;
    CHECK(pthread_create(&other, 0, tell_and_wait, 0) == 0);
    syscall(SYS_exit, 0);
}

static void second_executes(void) {
    pthread_t other;
    CHECK(pthread_create(&other, 0, tell_and_wait, "") == 0);
}

static void threads_of_others(void) {
    pid_t pid = child(without_first);
    int tid = next_tid(), whole = pidfd(pid, 0), first = pidfd(pid, THREAD), second = pidfd(tid, THREAD);
    usleep(100000);
    CHECK(ready(whole, 0) == 0 && ready(first, 0) == 0 && ready(second, 0) == 0);
    CHECK(says(whole, pid) && says(first, pid) && says(second, tid));
    CHECK(advice(whole) == -ESRCH && advice(first) == -ESRCH && advice(second) == -ESRCH);
    CHECK(kill(pid, SIGKILL) == 0 && ready(whole, -1) == POLLIN && ready(first, 0) == POLLIN);
    CHECK(ready(second, -1) == GONE && says(whole, pid) && says(second, -1));
    CHECK(waitpid(pid, 0, 0) == pid && ready(first, 0) == GONE && says(first, -1));
    CHECK(close(whole) == 0 && close(first) == 0 && close(second) == 0);
    /* execve(2) in the second thread: it gets the number of the first. */
    pid = child(second_executes);
    tid = next_tid();
    whole = pidfd(pid, 0), second = pidfd(tid, THREAD);
    CHECK(ready(second, -1) == GONE && says(second, -1) && pidfd(tid, THREAD) == -ESRCH);
    CHECK(ready(whole, 0) == 0 && says(whole, pid));
    kill_and_wait(pid);
    CHECK(ready(whole, 0) == GONE && close(whole) == 0 && close(second) == 0);
    printf("ok threads of others\n");
}

/* Descriptors of many processes that have ended, and which keep nothing of them. */
static void many(void) {
    static int fds[NR_DEAD];
    for (int i = 0; i < NR_DEAD; i++) {
        pid_t pid = child(nothing);
        fds[i] = pidfd(pid, 0);
        CHECK(fds[i] >= 0);
        kill_and_wait(pid);
    }
    for (int i = 0; i < NR_DEAD; i++)
        CHECK(says(fds[i], -1) && close(fds[i]) == 0);
    printf("ok many\n");
}

int main(int nr, char **args) {
    (void)args;
    if (nr > 1)
        for (;;)
            pause();
    setbuf(stdout, 0);
    alarm(60);
    CHECK(pipe(to_parent) == 0);
    flags();
    process();
    thread();
    threads_of_others();
    many();
    printf("done\n");
    return 0;
}
