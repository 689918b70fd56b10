/* Makes everything about files that can be made without end, until the kernel says no, then gives it back and
   makes a little of it again: run it in a machine with little memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_full(int error) { return error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE; }

static unsigned long free_kib(void) {
    struct sysinfo info;
    sysinfo(&info);
    return info.freeram / 1024 * info.mem_unit;
}

static void fail(const char *what) {
    printf("FAILED %s: errno %d\n", what, errno);
    exit(1);
}

/* Children of the part before may still be ending. */
static pid_t start(void) {
    fflush(stdout);
    pid_t child = -1;
    for (int tries = 0; tries < 1000 && (child = fork()) < 0; tries++)
        usleep(10000);
    if (child < 0)
        fail("fork");
    return child;
}

enum { LONG = 200, MOST = 2000000 };
static char name[LONG + 32];

static const char *numbered(long n) {
    memset(name, 'n', LONG);
    sprintf(name + LONG, "%ld", n);
    return name;
}

static int make_file(long n) {
    int file = open(numbered(n), O_CREAT | O_WRONLY | O_EXCL, 0600);
    return file < 0 ? -1 : close(file);
}
static int make_dir(long n) { return mkdir(numbered(n), 0700); }
static int make_link(long n) { return symlink("some place that is not there but has a long name", numbered(n)); }
static int make_name(long n) { return n == 0 ? make_file(0) : link("the first", numbered(n)); }
static int make_fifo(long n) { return mkfifo(numbered(n), 0600); }
static int make_deep(long n) { return mkdir("d", 0700) || chdir("d") ? -1 : (int)(n * 0); }

/* Makes them in a child, who leaves them; the parent removes them. */
static void names(const char *what, int (*make)(long)) {
    pid_t child = start();
    if (child == 0) {
        long n = 0;
        if (make == make_name) {
            int file = open("the first", O_CREAT | O_WRONLY, 0600);
            close(file);
            n = 1;
        }
        while (n < MOST && make(n) == 0)
            n++;
        if (n == MOST || n < 100 || !is_full(errno))
            fail(what);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%s %s\n", status ? "FAILED" : "ok", what);
}

static void remove_all(void) {
    unlink("the first");
    for (long n = 0; unlink(numbered(n)) == 0 || rmdir(numbered(n)) == 0 || n == 0; n++)
        ;
    int depth = 0;
    while (chdir("d") == 0)
        depth++;
    while (depth-- > 0)
        if (chdir("..") || rmdir("d"))
            fail("rmdir");
}

static int open_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK))
        return -1;
    static char page[4096];
    while (write(ends[1], page, sizeof page) > 0)
        ;
    return errno == EAGAIN ? 0 : -1;
}
static int open_file(void) { return open("the file", O_CREAT | O_RDWR, 0600); }
static int open_event(void) { return eventfd(0, 0); }
static int open_memory(void) {
    int file = memfd_create("memory", 0);
    return file < 0 || ftruncate(file, 8192) || pwrite(file, "x", 1, 5000) != 1 ? -1 : 0;
}
static int open_set(void) {
    static int events = -1;
    if (events < 0)
        events = eventfd(0, 0);
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    return set < 0 ? -1 : epoll_ctl(set, EPOLL_CTL_ADD, events, &event);
}

/* Opens until it is refused, then has children do the same until they are refused, and ends them all. */
static void opens(const char *what, int (*open_one)(void)) {
    pid_t group = start();
    if (group == 0) {
        setpgid(0, 0);
        int go[2];
        if (pipe(go))
            fail("pipe");
        for (int nr = 0; nr < 100; nr++) {
            pid_t child = fork();
            if (child < 0) {
                if (errno != EAGAIN && errno != ENOMEM)
                    fail("fork");
                break;
            }
            if (child == 0) {
                while (open_one() >= 0)
                    ;
                char answer = is_full(errno);
                write(go[1], &answer, 1);
                pause();
            }
            char answer = 0;
            if (read(go[0], &answer, 1) != 1 || !answer)
                fail(what);
        }
        kill(0, SIGKILL);
    }
    int status;
    waitpid(group, &status, 0);
    kill(-group, SIGKILL);
    // They end in their own time, and have what they opened until then.
    for (int i = 0; i < 10000 && (waitpid(-group, 0, WNOHANG) > 0 || kill(-group, 0) == 0); i++)
        usleep(1000);
    printf("%s %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? "ok" : "FAILED", what);
}

static void contents(void) {
    static char page[65536];
    memset(page, 7, sizeof page);
    int file = open("large", O_CREAT | O_WRONLY, 0600);
    long total = 0, nr;
    while ((nr = write(file, page, sizeof page)) > 0)
        total += nr;
    printf("%s write until nothing is left\n", is_full(errno) && total > 4 << 20 ? "ok" : "FAILED");
    close(file);
    struct stat of;
    printf("%s size\n", stat("large", &of) == 0 && of.st_size == total ? "ok" : "FAILED");
    unlink("large");
}

int main(void) {
    struct rlimit all = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &all);
    if (mkdir("/tmp/fills", 0700) || chdir("/tmp/fills"))
        fail("/tmp/fills");
    for (int round = 0; round < 2; round++) {
        static unsigned long before;
        struct {
            const char *what;
            int (*make)(long);
        } made[] = {{"files", make_file}, {"directories", make_dir}, {"links", make_link},
                    {"names", make_name}, {"FIFOs", make_fifo},      {"a deep tree", make_deep}};
        for (unsigned i = 0; i < sizeof made / sizeof *made; i++) {
            names(made[i].what, made[i].make);
            remove_all();
        }
        opens("pipes", open_pipe);
        opens("open files", open_file);
        opens("event counters", open_event);
        opens("sets", open_set);
        opens("memory files", open_memory);
        contents();
        unlink("the file");
        if (round == 0)
            before = free_kib();
        else if (free_kib() + 1024 < before)
            printf("FAILED memory: %lu KiB before, %lu after\n", before, free_kib());
    }
    chdir("/");
    printf("%s the folder is empty\ndone\n", rmdir("/tmp/fills") ? "FAILED" : "ok");
    return 0;
}
