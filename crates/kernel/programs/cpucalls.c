/* Questions about the CPU: single steps, segment registers and their bases, and what CPUID promises. Run with one CPU or
   bound to one, so that processes take turns on it. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <cpuid.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>

enum { SET_FS = 0x1002, SET_GS = 0x1001, GET_FS = 0x1003, GET_GS = 0x1004 };
/* The program's data: what %ss is. */
static unsigned data;

#define READ(segment)                                                                                                  \
    ({                                                                                                                 \
        unsigned selector_;                                                                                            \
        __asm__ volatile("mov %%" segment ",%0" : "=r"(selector_));                                                    \
        selector_ & 0xffff;                                                                                            \
    })
#define LOAD(segment, selector) __asm__ volatile("mov %0,%%" segment : : "r"(selector))

static void say_segments(const char *when) {
    printf("cs and ss, %s: %x %x\n", when, READ("cs"), READ("ss"));
    printf("ds es fs gs, %s: %x %x %x %x\n", when, READ("ds"), READ("es"), READ("fs"), READ("gs"));
}

/* Two pipes, on which parent and child take turns. */
static int turns[2][2];

static void give_turn(int to) {
    write(turns[to][1], "", 1);
}

static void take_turn(int of) {
    char byte;
    read(turns[of][0], &byte, 1);
}

static volatile sig_atomic_t nr_steps, flag_seen, wrong_code;

static void step(int number, siginfo_t *info, void *context) {
    unsigned long flags;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    (void)number;
    flag_seen |= (flags & 0x100) != 0;
    wrong_code |= info->si_code != TRAP_TRACE;
    if (++nr_steps > 100)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
}

#define STEPS(what, ...)                                                                                               \
    do {                                                                                                               \
        nr_steps = 0;                                                                                                  \
        __asm__ volatile("pushfq; orl $0x100,(%%rsp); popfq;" __VA_ARGS__                                              \
                         "; pushfq; andl $0xfffffeff,(%%rsp); popfq" : : : "memory", "rax", "rcx", "r11");             \
        printf("steps through " what ": %d, flag in the handler %d, another code %d\n", nr_steps, flag_seen, wrong_code); \
    } while (0)

static void steps(void) {
    struct sigaction action = { .sa_sigaction = step, .sa_flags = SA_SIGINFO };
    sigaction(SIGTRAP, &action, 0);
    STEPS("two instructions", "nop; nop");
    STEPS("a call", "movl $39,%%eax; syscall; nop");
    STEPS("a call that does not exist", "movl $511,%%eax; syscall; nop");
    STEPS("two calls", "movl $39,%%eax; syscall; movl $24,%%eax; syscall; nop");
}

static unsigned long base_of(int get) {
    unsigned long base = 1;
    sys(SYS_arch_prctl, get, &base);
    return base;
}

static unsigned char at_gs(void) {
    unsigned char byte;
    __asm__ volatile("movb %%gs:0,%0" : "=r"(byte));
    return byte;
}

/* A child with registers of its own, between two turns of this process. */
static void keep_apart(void) {
    static unsigned char own[64] = { 77 }, other[64] = { 99 };
    sys(SYS_arch_prctl, SET_GS, own);
    pid_t pid = child();
    if (pid == 0) {
        printf("gs base of a child is its parent's: %d\n", base_of(GET_GS) == (unsigned long)own && at_gs() == 77);
        LOAD("ds", data);
        LOAD("es", data);
        LOAD("gs", data);
        give_turn(1), take_turn(0);
        say_segments("a child that has loaded some");
        sys(SYS_arch_prctl, SET_GS, other);
        printf("gs after a base was set: %x\n", READ("gs"));
        give_turn(1), take_turn(0);
        printf("gs of a child after its parent ran: %d\n", at_gs());
        finish();
    }
    take_turn(1);
    say_segments("the parent, after the child loaded some");
    printf("gs of the parent: %d\n", at_gs());
    give_turn(0), take_turn(1);
    printf("gs of the parent, after the child set its base: %d\n", at_gs());
    give_turn(0);
    wait_for_child();
    LOAD("gs", data);
    printf("gs base after a selector was loaded: %lx\n", base_of(GET_GS));
    LOAD("gs", 0);
}

/* Bases without a call, where the kernel says that it lets programs do that. */
static void own_bases(void) {
    unsigned long before = base_of(GET_FS), wanted = 0x123456789000, read = 1;
    unsigned eax, ebx = 0, ecx, edx;
    __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
    if (!(getauxval(AT_HWCAP2) & 2)) {
        printf("wrgsbase: promised %d\n", ebx & 1);
        return;
    }
    __asm__ volatile("wrgsbase %0" : : "r"(wanted));
    sched_yield();
    printf("wrgsbase: %lx\n", base_of(GET_GS));
    sys(SYS_arch_prctl, SET_GS, 0x1000);
    __asm__ volatile("rdgsbase %0" : "=r"(read));
    printf("rdgsbase: %lx\n", read);
    __asm__ volatile("rdfsbase %0" : "=r"(read));
    printf("rdfsbase: %d\n", read == before);
}

/* Bits of CPUID for what works only if the kernel saves its state (XSAVE), or turns it on. */
static void promises(void) {
    unsigned one[4] = { 0 }, seven[4] = { 0 };
    __get_cpuid(1, one, one + 1, one + 2, one + 3);
    __get_cpuid_count(7, 0, seven, seven + 1, seven + 2, seven + 3);
    unsigned saves = one[2] >> 27 & 1;
    /* FMA, XSAVE, AVX, F16C; AVX2, AVX-512F; VAES, VPCLMULQDQ. */
    unsigned needs = (one[2] & (1 << 12 | 1 << 26 | 1 << 28 | 1 << 29)) | (seven[1] & (1 << 5 | 1 << 16)) |
                     (seven[2] & (1 << 9 | 1 << 10));
    printf("bits of what needs XSAVE, without it: %x\n", saves ? 0 : needs);
    unsigned has_keys = seven[2] >> 3 & 1, uses_keys = seven[2] >> 4 & 1;
    printf("protection keys without the kernel: %d\n", has_keys && !uses_keys);
    if (one[2] & 1 << 28)
        __asm__ volatile("vpxor %%xmm0,%%xmm0,%%xmm0" : : : "xmm0");
    printf("AVX where it is promised: ok\n");
}

int main(int argc, char **argv) {
    data = READ("ss");
    if (argc > 1) {
        say_segments("a new program");
        printf("bases of a new program: gs %lx\ndone\n", base_of(GET_GS));
        return 0;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    pipe(turns[0]), pipe(turns[1]);
    say_segments("at the start");
    steps();
    keep_apart();
    own_bases();
    promises();
    sys(SYS_arch_prctl, SET_GS, 0x1000);
    LOAD("es", data);
    LOAD("ds", data);
    fflush(stdout);
    execl("/proc/self/exe", argv[0], "again", (char *)0);
    return 1;
}
