/* process_vm_readv(2) and process_vm_writev(2): each pair of parts, lists and their lengths, rights of mappings, who may look into
   whom. Prints what each call gives and how much memory has changed; the test compares the lines with the host's. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>

enum { NR_PAGES = 4, NOBODY = 65534, ENDED = -100 };

static const char *const names[] = { "process_vm_readv", "process_vm_writev" };

/* `NR_PAGES` pages, behind which nothing is mapped: the caller's, and those of the child, which are the caller's, too, shared. They
   are far from the end of the address space, so that parts of 2 GiB do not reach it. */
static char *own, *other;
static pid_t sleeper;

static long ask(int call, int pid, const void *list, unsigned long nr, const void *list2, unsigned long nr2, long flags) {
    return sys(call ? SYS_process_vm_writev : SYS_process_vm_readv, pid, list, nr, list2, nr2, flags);
}

static unsigned long changed(const char *memory, char fill) {
    unsigned long nr = 0;
    for (unsigned long i = 0; i < NR_PAGES * PAGE; i++)
        nr += memory[i] != fill;
    return nr;
}

static char *pages(int flags) {
    static char *next = (char *)(1ul << 40);
    next += 1ul << 33;
    return mmap(next, NR_PAGES * PAGE, RW, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static pid_t sleeping_child(void) {
    pid_t pid = child();
    while (pid == 0)
        pause();
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, 0, 0);
}

/* Parts of either memory, from its beginning or before its end. */
static const struct {
    long start;
    unsigned long len;
} parts[] = { { 0, 0 },
              { 0, 1 },
              { 7, 2 * PAGE },
              { 1, PAGE - 1 },
              { NR_PAGES * PAGE - 3, 3 },
              { NR_PAGES * PAGE - 3, 5 },
              { NR_PAGES * PAGE - PAGE - 5, 3 * PAGE },
              { NR_PAGES * PAGE, 1 },
              { NR_PAGES * PAGE, 0 },
              { 0, 1ul << 31 },
              { 0, 1ul << 63 },
              { 0, -1ul << 20 },
              { -1l << 62, 8 } };
enum { NR_PARTS = sizeof parts / sizeof *parts };

static struct iovec part(char *memory, int i) {
    return (struct iovec){ memory + parts[i].start, parts[i].len };
}

/* The child's parts lie in memory that both share, so that the caller can see it. */
static void pairs(int call, int pid, const char *who) {
    for (int i = 0; i < NR_PARTS * NR_PARTS; i++) {
        struct iovec list[2] = { part(own, i / NR_PARTS), part(own, i % NR_PARTS) };
        struct iovec list2[2] = { part(other, i % NR_PARTS), part(other, i / NR_PARTS) };
        for (int nr = 0; nr < 9; nr++) {
            memset(own, 'o', NR_PAGES * PAGE);
            memset(other, 'x', NR_PAGES * PAGE);
            SAY(ask(call, pid, list, nr / 3, list2, nr % 3, 0), "%s %s, pair %d, %d and %d", names[call], who, i, nr / 3, nr % 3);
            printf("changes: %lu and %lu\n", changed(own, 'o'), changed(other, 'x'));
        }
    }
}

/* The lists themselves, and their lengths. */
static void lists(int call) {
    struct iovec mine = part(own, 1), theirs = part(other, 1), none = part(own, 0);
    struct iovec *last = (struct iovec *)(own + NR_PAGES * PAGE) - 1;
    *last = mine;
    const unsigned long numbers[] = { 0, 1, 2, 1024, 1025, 1ul << 32, (1ul << 32) + 1, 1ul << 63 };
    for (int i = 0; i < 8; i++) {
        SAY(ask(call, sleeper, last, numbers[i], &theirs, 1, 0), "%s, list of %lu", names[call], numbers[i]);
        SAY(ask(call, sleeper, &mine, 1, last, numbers[i], 0), "%s, other list of %lu", names[call], numbers[i]);
        SAY(ask(call, ENDED, &none, 1, last, numbers[i], 0), "%s, nothing, other list of %lu", names[call], numbers[i]);
        SAY(ask(call, sleeper, (void *)end_of_user, numbers[i], 0, 1, 0), "%s, list at the end, %lu", names[call], numbers[i]);
        SAY(ask(call, ENDED, &mine, 1, (void *)-16ul, numbers[i], 0), "%s, other list that wraps, %lu", names[call], numbers[i]);
    }
    const long flags[] = { 1, 1l << 31, 1l << 32 };
    for (int i = 0; i < 3; i++)
        SAY(ask(call, ENDED, 0, 1, 0, 1, flags[i]), "%s, flag 0x%lx", names[call], flags[i]);
}

/* What can be read and written, and that a private page is copied first. */
static void rights(int call) {
    const int protections[] = { PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC, PROT_READ | PROT_EXEC };
    for (int i = 0; i < 10; i++) {
        int protection = protections[i / 2], flags = i % 2 ? MAP_SHARED : MAP_PRIVATE;
        char *p = pages(flags);
        memset(p, 'p', NR_PAGES * PAGE);
        mprotect(p, NR_PAGES * PAGE, protection);
        pid_t pid = sleeping_child();
        struct iovec mine = { own, PAGE + 9 }, theirs = { p, PAGE + 9 }, half[2] = { { other, 6 }, { p, 7 } };
        memset(own, 'o', NR_PAGES * PAGE);
        SAY(ask(call, pid, &mine, 1, &theirs, 1, 0), "%s, rights %d, flags %d", names[call], protection, flags);
        SAY(ask(call, pid, &mine, 1, half, 2, 0), "%s, second part, rights %d, flags %d", names[call], protection, flags);
        printf("changes: %lu\n", changed(own, 'o'));
        mprotect(p, NR_PAGES * PAGE, RW);
        printf("changes behind: %lu\n", changed(p, 'p'));
        end(pid);
        munmap(p, NR_PAGES * PAGE);
    }
}

/* A stack of another process does not grow for the call. */
static void below_a_stack(int call) {
    char *stack = pages(MAP_PRIVATE | MAP_GROWSDOWN);
    pid_t pid = sleeping_child();
    struct iovec mine = { own, 8 }, below = { stack - 8, 8 }, across = { stack - 4, 8 }, in = { stack, 8 };
    SAY(ask(call, pid, &mine, 1, &below, 1, 0), "%s, below a stack", names[call]);
    SAY(ask(call, pid, &mine, 1, &across, 1, 0), "%s, across the end of a stack", names[call]);
    SAY(ask(call, pid, &mine, 1, &in, 1, 0), "%s, in a stack", names[call]);
    end(pid);
    munmap(stack, NR_PAGES * PAGE);
}

static void *wait_here(void *tid) {
    __atomic_store_n((int *)tid, (int)sys(SYS_gettid), __ATOMIC_RELEASE);
    for (;;)
        pause();
}

/* Whom a number names, and who may. */
static void others(int call) {
    struct iovec mine = part(own, 2), theirs = part(other, 2);
    const int numbers[] = { 0, -1, 1 << 30 };
    for (int i = 0; i < 3; i++)
        SAY(ask(call, numbers[i], &mine, 1, &theirs, 1, 0), "%s, process %d", names[call], numbers[i]);
    pid_t pid = sleeping_child();
    siginfo_t info;
    kill(pid, SIGKILL);
    waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
    SAY(ask(call, pid, &mine, 1, &theirs, 1, 0), "%s, process that has ended", names[call]);
    waitpid(pid, 0, 0);
    SAY(ask(call, pid, &mine, 1, &theirs, 1, 0), "%s, process that is gone", names[call]);
    SAY(ask(call, pid, &mine, 1, &theirs, 0, 0), "%s, nothing of a process that is gone", names[call]);
    int tid = 0;
    pthread_t thread;
    pthread_create(&thread, 0, wait_here, &tid);
    while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    SAY(ask(call, tid, &mine, 1, &theirs, 1, 0), "%s, thread", names[call]);
}

/* Gives some of its numbers up, tells the caller, and ends with it. */
static void other_user(int which, const int *ready, const int *hold) {
    char byte;
    close(hold[1]);
    if (which == 1)
        sys(SYS_setresgid, NOBODY, NOBODY, NOBODY), sys(SYS_setresuid, NOBODY, NOBODY, NOBODY);
    if (which == 2)
        sys(SYS_setresuid, -1, NOBODY, -1);
    prctl(PR_SET_DUMPABLE, which == 1);
    _exit(write(ready[1], "", 1) != 1 || read(hold[0], &byte, 1) != 0);
}

static void user(int call, int which, int caller) {
    struct iovec mine = part(own, 2), theirs = part(other, 2);
    int pid = sleeper, ready[2], hold[2];
    char byte;
    if (pipe(ready) != 0 || pipe(hold) != 0)
        _exit(1);
    if (which > 0) {
        pid = child();
        if (pid == 0)
            other_user(which, ready, hold);
        if (read(ready[0], &byte, 1) != 1)
            _exit(2);
    }
    if (caller & 1)
        sys(SYS_setresgid, NOBODY, NOBODY, NOBODY);
    if (caller & 2)
        sys(SYS_setresuid, caller & 4 ? 0 : NOBODY, NOBODY, caller & 4 ? 0 : NOBODY);
    else if (caller & 4)
        sys(SYS_setresuid, NOBODY, 0, 0);
    SAY(ask(call, pid, &mine, 1, &theirs, 1, 0), "%s, user %d asks other %d", names[call], caller, which);
    SAY(ask(call, getpid(), &mine, 1, &theirs, 1, 0), "%s, user %d asks itself %d", names[call], caller, which);
    close(hold[1]);
    if (which > 0)
        wait_for_child();
    finish();
}

/* Users: which of the numbers of the caller count, and of the other process. Root asks. */
static void users(int call) {
    for (int i = 0; i < 32; i++) {
        if (child() == 0)
            user(call, i / 8, i % 8);
        wait_for_child();
    }
}

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    own = pages(MAP_PRIVATE);
    other = pages(MAP_SHARED);
    sleeper = sleeping_child();
    for (int call = 0; call < 2; call++) {
        pairs(call, sleeper, "a child");
        pairs(call, getpid(), "itself");
        lists(call);
        rights(call);
        below_a_stack(call);
        others(call);
        users(call);
    }
    end(sleeper);
    printf("done\n");
    return 0;
}
