/* A seal against writing is refused while a mapping that may be written exists, and granted while there is none,
   whatever other threads do with mappings of the file that are for reading only. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ADD_SEALS = 1033, SEAL_WRITE = 8, NR_FILES = 40 };

static volatile int stop;
static char *read_only;

static int new_file(void) {
    int fd = syscall(SYS_memfd_create, "seals", 2);
    CHECK(fd >= 0 && ftruncate(fd, 8 * PAGE) == 0);
    return fd;
}

/* Pages of a file that was opened for reading: they can never be written. */
static char *map_read_only(int fd, int nr_pages) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY);
    char *p = mmap(0, nr_pages * PAGE, PROT_READ, MAP_SHARED, reader, 0);
    CHECK(reader >= 0 && p != MAP_FAILED && close(reader) == 0);
    return p;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Twice as many pages for reading only, and as few as before. */
static void *duplicate(void *unused) {
    while (!stop) {
        char *p = mremap(read_only, 0, PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED && munmap(p, PAGE) == 0);
    }
    return unused;
}

static void *fork_on(void *unused) {
    while (!stop) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    return unused;
}

static pthread_t begin(void *(*other)(void *)) {
    pthread_t thread;
    stop = 0;
    CHECK(pthread_create(&thread, 0, other, 0) == 0);
    return thread;
}

static void finish(pthread_t thread) {
    stop = 1;
    CHECK(pthread_join(thread, 0) == 0);
}

static void is_granted(void) {
    for (int i = 0; i < NR_FILES; i++) {
        int fd = new_file();
        char *p = map_read_only(fd, 8);
        for (int page = 0; page < 8; page += 2)
            CHECK(mprotect(p + page * PAGE, PAGE, PROT_NONE) == 0);
        usleep(1000);
        CHECK(fcntl(fd, ADD_SEALS, SEAL_WRITE) == 0);
        munmap(p, 8 * PAGE);
        close(fd);
    }
}

static void is_refused(void) {
    int fd = new_file();
    volatile char *writable = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(writable != MAP_FAILED);
    read_only = map_read_only(fd, 1);
    pthread_t thread = begin(duplicate);
    for (double end = now() + 0.7; now() < end;)
        CHECK(fcntl(fd, ADD_SEALS, SEAL_WRITE) == -1 && errno == EBUSY);
    *writable = 1;
    munmap((void *)writable, PAGE);
    CHECK(fcntl(fd, ADD_SEALS, SEAL_WRITE) == 0);
    finish(thread);
}

int main(void) {
    pthread_t thread = begin(fork_on);
    is_granted();
    finish(thread);
    printf("ok granted\n");
    is_refused();
    printf("ok refused\ndone\n");
    return 0;
}
