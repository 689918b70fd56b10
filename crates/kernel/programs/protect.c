/* Rights are enforced, and a bad access says what was wrong with it: si_code,
 * si_addr, on the alternate stack. */
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096L

static sigjmp_buf back;
static volatile sig_atomic_t signal_seen, code_seen;
static char *volatile address_seen;
static char *alt_start, *alt_end;

static void handler(int number, siginfo_t *info, void *context) {
    char here;
    (void)context;
    CHECK(&here > alt_start && &here < alt_end);
    signal_seen = number;
    code_seen = info->si_code;
    address_seen = info->si_addr;
    siglongjmp(back, 1);
}

#define EXPECT(access, number, code, address)                                                                         \
    do {                                                                                                              \
        signal_seen = 0;                                                                                              \
        if (sigsetjmp(back, 1) == 0) {                                                                                \
            access;                                                                                                   \
        }                                                                                                             \
        CHECK(signal_seen == (number));                                                                               \
        CHECK(code_seen == (code));                                                                                   \
        CHECK(address_seen == (char *)(address));                                                                     \
    } while (0)

static void read_at(unsigned long address) {
    (void)*(volatile char *)address;
}
static void write_at(unsigned long address) {
    *(volatile char *)address = 1;
}
static void jump_to(unsigned long address) {
    ((void (*)(void))address)();
}

int main(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    alt_start = stack.ss_sp;
    alt_end = alt_start + stack.ss_size;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaltstack(&stack, 0) == 0);
    CHECK(sigaction(SIGSEGV, &action, 0) == 0 && sigaction(SIGFPE, &action, 0) == 0);

    EXPECT(write_at(0x123000), SIGSEGV, SEGV_MAPERR, 0x123000);
    EXPECT(read_at(0), SIGSEGV, SEGV_MAPERR, 0);
    EXPECT(jump_to(0x123008), SIGSEGV, SEGV_MAPERR, 0x123008);
    EXPECT(read_at(0xffffffff80200000), SIGSEGV, SEGV_MAPERR, 0xffffffff80200000);
    EXPECT(write_at(0xffff800000000000), SIGSEGV, SEGV_MAPERR, 0xffff800000000000);
    EXPECT(read_at(0x8000000000000000), SIGSEGV, SI_KERNEL, 0);
    EXPECT(jump_to(0x8000000000000000), SIGSEGV, SI_KERNEL, 0);

    unsigned long p = (unsigned long)mmap(0, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(write_at(p + 5), SIGSEGV, SEGV_ACCERR, p + 5);
    read_at(p + 5);
    EXPECT(write_at(p + 5), SIGSEGV, SEGV_ACCERR, p + 5);
    EXPECT(jump_to(p), SIGSEGV, SEGV_ACCERR, p);

    CHECK(mprotect((void *)p, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
    for (int i = 0; i < 4; i++)
        write_at(p + i * PAGE);
    CHECK(mprotect((void *)(p + PAGE), PAGE, PROT_READ) == 0);
    EXPECT(write_at(p + PAGE), SIGSEGV, SEGV_ACCERR, p + PAGE);
    CHECK(*(char *)(p + PAGE) == 1);
    CHECK(mprotect((void *)(p + PAGE), PAGE, PROT_NONE) == 0);
    EXPECT(read_at(p + PAGE + 9), SIGSEGV, SEGV_ACCERR, p + PAGE + 9);
    CHECK(mprotect((void *)(p + PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
    CHECK(*(char *)(p + PAGE) == 1);
    CHECK(munmap((void *)(p + 2 * PAGE), PAGE) == 0);
    EXPECT(read_at(p + 2 * PAGE), SIGSEGV, SEGV_MAPERR, p + 2 * PAGE);
    CHECK(*(char *)(p + 3 * PAGE) == 1);

    /* ret, in memory that may be executed only after it was said so */
    *(unsigned char *)p = 0xc3;
    EXPECT(jump_to(p), SIGSEGV, SEGV_ACCERR, p);
    CHECK(mprotect((void *)p, PAGE, PROT_READ | PROT_EXEC) == 0);
    jump_to(p);
    EXPECT(write_at(p), SIGSEGV, SEGV_ACCERR, p);

    volatile int one = 1, zero = 0;
    signal_seen = 0;
    if (sigsetjmp(back, 1) == 0)
        one = one / zero;
    CHECK(signal_seen == SIGFPE && code_seen == FPE_INTDIV);
    puts("protect ok");
    return 0;
}
