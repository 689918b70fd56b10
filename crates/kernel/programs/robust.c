// Programs that misbehave: each runs as a child, and afterwards as much memory is free as before. Prints
// one line per part; on Linux the lines are the same (the tests of memory that runs out are left out there:
// argument "gentle").
#define _GNU_SOURCE
#include "freemem.h"
#include "parts.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int gentle;

// A child's space is freed when its last CPU loads another one: a moment later.
static void settled(unsigned long before, const char *what) {
    if (gentle) return;
    for (int i = 0; i < 1000; i++) {
        if (free_bytes() >= before) return;
        usleep(1000);
    }
    printf("FAILED %s: %ld KiB less\n", what, (long)(before - free_bytes()) / 1024);
    exit(1);
}

static void child(const char *what, void (*body)(void), int signal) {
    unsigned long before = free_bytes();
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    check(waitpid(pid, &status, 0) == pid, what);
    int as_wanted = signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal : status == 0;
    if (!as_wanted) printf("status %#x\n", status);
    check(as_wanted, signal ? "and was killed" : "and ended");
    settled(before, what);
}

static char *map(size_t bytes, int flags) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void leak(void) {
    for (int i = 0; i < 20; i++) {
        char *p = map(2 << 20, 0);
        memset(p, i, 2 << 20);
        mremap(p, 2 << 20, 3 << 20, MREMAP_MAYMOVE);
        mprotect(p, 4096, PROT_READ);
    }
    for (int i = 0; i < 200; i++) open("/dev/null", O_RDONLY);
    int ends[2];
    for (int i = 0; i < 50; i++)
        if (pipe(ends) == 0) write(ends[1], "x", 1);
}

static int recurse(int n) {
    volatile char block[4096];
    block[n & 4095] = (char)n;
    return recurse(n + 1) + block[0];
}
static void overflow(void) { exit(recurse(1) & 1); }
static void wild_jump(void) { ((void (*)(void))0x123456789)(); }
static void bad_instruction(void) { __asm__ volatile("hlt"); }
static void divide(void) {
    volatile int zero = 0;
    _exit(77 / zero);
}

static void *sleeper(void *how) {
    static int word, ends[2];
    switch ((long)how) {
    case 0: pause(); break;
    case 1: syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, 0, 0, 0); break;
    case 2:
        if (pipe(ends) == 0) read(ends[0], &word, 4);
        break;
    case 3: poll(0, 0, -1); break;
    case 4: usleep(100000000); break;
    case 5: for (;;); break;
    case 6:
        for (;;) {
            char *p = map(65536, 0);
            p[0] = 1;
            munmap(p, 65536);
        }
    }
    return 0;
}

static void dies_in_any_state(void) {
    pthread_t threads[7];
    for (long i = 0; i < 7; i++) pthread_create(&threads[i], 0, sleeper, (void *)i);
    usleep(10000);
    pid_t parent = getpid();
    if (fork() == 0) {
        // A stopped process stays until its parent ends, which may have been just now.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) raise(SIGSTOP);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

static void dies_in_vfork(void) {
    if (vfork() == 0) kill(getpid(), SIGKILL);
}

static int bombs(void) {
    int nr = 0;
    for (;;) {
        pid_t pid = fork();
        if (pid < 0) return nr;
        if (pid == 0)
            for (;;) pause();
        nr++;
    }
}

static void fork_without_end(void) {
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    struct rlimit limit = {300, 300};
    if (gentle) setrlimit(RLIMIT_NPROC, &limit);
    int nr = gentle ? 0 : bombs(), why = errno, status, nr_ended = 0;
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    if (!gentle && (nr < 10 || (why != EAGAIN && why != ENOMEM))) _exit(1);
    // The children have what was set before they were made: SIGTERM ignored, SIGUSR1 not.
    kill(0, SIGUSR1);
    while (wait(&status) > 0) nr_ended += WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1;
    _exit(nr_ended != nr);
}

static void eats_memory(void) {
    for (;;) {
        char *p = map(1 << 20, 0);
        if (p == MAP_FAILED) _exit(3);
        memset(p, 1, 1 << 20);
    }
}

static void asks_for_too_much(void) {
    struct rlimit limit = {64 << 20, 64 << 20};
    setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < 100; i++)
        if (map(1 << 20, MAP_POPULATE) == MAP_FAILED) _exit(i < 32 || errno != ENOMEM);
    _exit(1);
}

static void many_eat(void) {
    for (int i = 0; i < 4; i++)
        if (fork() == 0) eats_memory();
    int status, nr = 0;
    while (wait(&status) > 0) nr += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    _exit(nr != 4);
}

int main(int argc, char **argv) {
    gentle = argc > 1 && strcmp(argv[1], "gentle") == 0;
    child("leaks", leak, 0);
    child("overflows its stack", overflow, SIGSEGV);
    child("jumps into the void", wild_jump, SIGSEGV);
    child("uses a privileged instruction", bad_instruction, SIGSEGV);
    child("divides by zero", divide, SIGFPE);
    for (int i = 0; i < 5; i++) child("dies with threads in any state", dies_in_any_state, SIGKILL);
    child("has a child that dies in vfork", dies_in_vfork, 0);
    child("forks without end", fork_without_end, 0);
    if (!gentle) {
        child("eats memory", eats_memory, SIGKILL);
    }
    child("is told that there is no more", asks_for_too_much, 0);
    if (!gentle) {
        child("eats memory with others", many_eat, 0);
    }
    puts("done");
    return 0;
}
