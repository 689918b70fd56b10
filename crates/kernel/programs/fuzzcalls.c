// Every system call with every kind of wild argument, from children that may die of it. The kernel has to
// live, and afterwards as much memory has to be free as before. Not for Linux: some calls work there.
// Usage: fuzzcalls [SEED [ROUNDS]]
#define _GNU_SOURCE
#include "freemem.h"
#include "random.h"
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS_PER_CHILD = 200, NR_CALLS = 470 };

static char *area;

static long argument(void) {
    static const long odd[] = {0, 1, -1, 2, 3, 4, 7, 8, 16, 255, 4095, 4096, 4097, 1 << 16, 1 << 21, 1L << 30, 1L << 40,
                               INT64_MIN, INT64_MAX, INT32_MAX, INT32_MIN, UINT32_MAX, -4096, 0x7ffffffff000, 0x7fffffffe000,
                               0x800000000000, 0xffff800000000000, 0xffffffff80000000, 0xffff888000000000, -14, -100};
    switch (next() % 8) {
    case 0: case 1: return odd[next() % (sizeof odd / sizeof *odd)];
    case 2: return (long)(area + next() % 65536);
    case 3: return (long)(area + 65536 - next() % 64);
    case 4: return (long)(next() % 64);
    case 5: return (long)next();
    case 6: return (long)(next() & 0x7fffffffffff);
    default: return (long)area + (long)(next() % 16) * 4096;
    }
}

// Calls that would end the run.
static int spared(long number) {
    switch (number) {
    case SYS_reboot: case SYS_kexec_load: return 1;
    case SYS_kill: case SYS_tkill: case SYS_tgkill: case SYS_rt_sigqueueinfo: case SYS_rt_tgsigqueueinfo: return 1;
    case SYS_pause: case SYS_rt_sigsuspend: return 1;
    case SYS_setpgid: case SYS_setsid: return 1;
    case SYS_write: case SYS_writev: case SYS_pwritev: case SYS_sendfile: case SYS_splice: case SYS_tee: return 1;
    case SYS_pwritev2: case SYS_copy_file_range: case SYS_vmsplice: return 1;
    // The objects that these make stay on purpose.
    case SYS_shmget: case SYS_msgget: case SYS_semget: case SYS_open: case SYS_openat: case SYS_creat: return 1;
    case SYS_mknod: case SYS_mknodat: case SYS_mkdir: case SYS_mkdirat: case SYS_fallocate: return 1;
    default: return 0;
    }
}

static void play(void) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    struct itimerval timer = {{0, 0}, {0, 200000}};
    setitimer(ITIMER_REAL, &timer, 0);
    area = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 65536; i++) area[i] = (char)(next() % 5 ? next() : 0);
    for (int i = 0; i < CALLS_PER_CHILD; i++) {
        long number = (long)(next() % NR_CALLS);
        if (spared(number)) continue;
        long a = argument(), b = argument(), c = argument(), d = argument(), e = argument(), f = argument();
        // The stack of what is called stays where it is: a child of clone or vfork comes back here.
        pid_t me = getpid();
        syscall(number, a, b, c, d, e, f);
        if (getpid() != me) _exit(0);
    }
    _exit(0);
}

/* The huge zero page stays, once somebody has read from memory that may be huge: let it be made before anything is
   counted. */
static void read_zeroes(void) {
    volatile char *p = mmap(0, 4 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)(p[0] + p[2 << 20]);
    munmap((void *)p, 4 << 20);
}

int main(int argc, char **argv) {
    read_zeroes();
    uint64_t seed = argc > 1 ? strtoul(argv[1], 0, 0) : 1, rounds = argc > 2 ? strtoul(argv[2], 0, 0) : 100;
    unsigned long before = free_bytes();
    int nr_killed = 0, status;
    for (uint64_t i = 0; i < rounds; i++) {
        state = seed * 1000003 + i;
        pid_t pid = fork();
        if (pid == 0) play();
        setpgid(pid, pid);
        // Some block every signal that can be blocked; none can stay after SIGKILL.
        int ended = 0;
        for (int ms = 0; !(ended = waitpid(pid, &status, WNOHANG) == pid) && ms < 3000; ms++) {
            if (ms >= 500) kill(pid, SIGKILL);
            usleep(1000);
        }
        if (!ended) {
            printf("FAILED: seed %lu, child %lu cannot be killed\n", (unsigned long)seed, (unsigned long)i);
            return 1;
        }
        nr_killed += WIFSIGNALED(status);
        kill(-pid, SIGKILL);
    }
    for (int i = 0; i < 2000 && free_bytes() < before; i++) usleep(1000);
    long less = (long)(before - free_bytes()) / 1024;
    if (less > 0) {
        printf("FAILED: %ld KiB less\n", less);
        return 1;
    }
    fprintf(stderr, "%d of %d were killed\n", nr_killed, (int)rounds);
    puts("fuzzcalls ok");
    return 0;
}
