/* Touches more memory than there is: by itself, or, with the argument "read" or "write", by calls that copy to or from it. With
   "children" these have most of it, and a call of their parent, which may not be killed, takes it from one after the other.
   With "waiter" the first to end waits for the call that wants its memory. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* One byte in each GiB: tables are what runs out. */
static void copy(int writes) {
    const size_t step = 1ul << 30, nr = 100000;
    int file = open("/tmp/oom", O_CREAT | O_RDWR, 0600);
    char *p = mmap(0, nr * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED && pwrite(file, "a", 1, 0) == 1);
    for (size_t i = 0; i < nr; i++)
        CHECK((writes ? pwrite(file, p + i * step, 1, 0) : pread(file, p + i * step, 1, 0)) == 1);
}

static void take_from_children(void) {
    const size_t own = 20ul << 20, all = 3 * own;
    int ready[2], zero = open("/dev/zero", O_RDONLY), adjust = open("/proc/self/oom_score_adj", O_WRONLY);
    CHECK(zero >= 0 && adjust >= 0 && pipe(ready) == 0);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            volatile char *p = mmap(0, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (size_t at = 0; at < own; at += 4096)
                p[at] = 1;
            CHECK(write(ready[1], "r", 1) == 1);
            for (;;)
                pause();
        }
    char c;
    for (int i = 0; i < 3; i++)
        CHECK(read(ready[0], &c, 1) == 1);
    CHECK(write(adjust, "-1000", 5) == 5);
    char *p = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(read(zero, p, all) == (ssize_t)all);
    puts("read");
}

static void adjust_to(int file, const char *value) { CHECK(write(file, value, strlen(value)) == (ssize_t)strlen(value)); }

/* Touches so many pages and counts them, in a process that may be killed. */
static pid_t hog(long nr, volatile long *count, int ready) {
    pid_t pid = fork();
    if (pid)
        return pid;
    adjust_to(open("/proc/self/oom_score_adj", O_WRONLY), "-500");
    volatile char *p = mmap(0, 1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (*count = 0; *count < nr; ++*count)
        p[*count * 4096] = 1;
    CHECK(write(ready, "r", 1) == 1);
    for (;;)
        pause();
}

static void wait_for_kill(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A read of a full pipe has the pipe's turn, and finds no memory for its last pages. The first that is to end for it is
   the next reader, which waits for the turn and cannot end; so another is to, in the end. */
static void take_from_waiter(void) {
    enum { BYTES = 1 << 20, ALL = 1 << 18 };
    static char bytes[BYTES];
    int full[2], start[2], begin[2], ready[2], adjust = open("/proc/self/oom_score_adj", O_WRONLY), status;
    volatile long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile char *shared = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && pipe(full) == 0 && pipe(start) == 0 && pipe(begin) == 0 && pipe(ready) == 0);
    CHECK(fcntl(full[1], F_SETPIPE_SZ, BYTES) == BYTES);
    memset(bytes, 'x', BYTES);
    CHECK(write(full[1], bytes, BYTES) == BYTES);
    adjust_to(adjust, "-1000");
    pid_t reader = fork(), waiter = reader ? fork() : 0;
    char c;
    if (!reader) {
        CHECK(read(begin[0], &c, 1) == 1);
        _exit(read(full[0], (char *)shared, BYTES) == BYTES ? 0 : 1);
    }
    if (!waiter) {
        /* Its own: the one that is open adjusts its parent. */
        adjust = open("/proc/self/oom_score_adj", O_WRONLY);
        CHECK(write(ready[1], "r", 1) == 1 && read(start[0], &c, 1) == 1);
        adjust_to(adjust, "1000");
        CHECK(write(ready[1], "r", 1) == 1);
        while (shared[0] == 0)
            ;
        _exit(read(full[0], &c, 1) == 1 ? 0 : 1);
    }
    CHECK(read(ready[0], &c, 1) == 1);
    /* The first takes all there is and is killed; the second leaves half of what the read wants. */
    wait_for_kill(hog(ALL, count, ready[1]));
    CHECK(*count < ALL);
    pid_t holder = hog(*count - BYTES / 4096 / 2, count, ready[1]);
    CHECK(read(ready[0], &c, 1) == 1 && write(start[1], "s", 1) == 1);
    CHECK(read(ready[0], &c, 1) == 1 && write(begin[1], "b", 1) == 1);
    CHECK(waitpid(reader, &status, 0) == reader && status == 0);
    wait_for_kill(waiter);
    wait_for_kill(holder);
    CHECK(shared[BYTES - 1] == 'x');
    puts("read");
}

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "children")) {
        take_from_children();
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "waiter")) {
        take_from_waiter();
        return 0;
    }
    if (argc > 1) {
        copy(!strcmp(argv[1], "write"));
        return 1;
    }
    for (;;) {
        volatile char *p = mmap(0, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 1;
        for (long i = 0; i < 1 << 24; i += 4096)
            p[i] = 1;
    }
}
