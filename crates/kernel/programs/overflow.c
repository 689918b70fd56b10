/* A stack that runs over its end: a handler on another stack sees it; without
 * one it kills. */
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>

static sigjmp_buf back;
static char *volatile address;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    address = info->si_addr;
    siglongjmp(back, 1);
}

static volatile int endless = 1;

static __attribute__((noinline)) int deeper(int depth) {
    volatile char room[512];
    if (!endless)
        return 0;
    memset((char *)room, depth, sizeof room);
    return deeper(depth + 1) + room[depth & 511];
}

int main(int argc, char **argv) {
    (void)argv;
    char here;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaltstack(&stack, 0) == 0 && sigaction(SIGSEGV, &action, 0) == 0);
    if (sigsetjmp(back, 1) == 0)
        deeper(argc);
    long depth = &here - address;
    CHECK(depth > 7 << 20 && depth < 9 << 20);
    puts("overflow seen");
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    return deeper(argc);
}
