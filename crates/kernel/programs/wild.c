/* Bad pointers and bad numbers to every system call: an error at worst, never a
 * kernel that fails. Calls that end, stop or move the caller are left out. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const long left_out[] = {
    SYS_exit,        SYS_exit_group,   SYS_pause,        SYS_rt_sigreturn, SYS_fork,           SYS_vfork,
    SYS_clone,       SYS_kill,         SYS_tkill,        SYS_tgkill,       SYS_rt_sigsuspend,  SYS_arch_prctl,
    SYS_munmap,      SYS_mprotect,     SYS_mremap,       SYS_brk,          SYS_madvise,        SYS_set_robust_list,
    SYS_sigaltstack, SYS_rt_sigaction, SYS_write,        SYS_writev,       SYS_nanosleep,      SYS_clock_nanosleep,
    SYS_poll,        SYS_mmap,         SYS_rt_sigprocmask, SYS_set_tid_address, SYS_ppoll,     SYS_close,
    SYS_dup2,        SYS_dup3,         SYS_select,       SYS_pselect6,     SYS_rt_sigtimedwait, SYS_clone3,
    SYS_alarm,       SYS_setitimer,    SYS_setrlimit,    SYS_prlimit64,    SYS_close_range,
};

static int is_left_out(long number) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (left_out[i] == number)
            return 1;
    return 0;
}

static const unsigned long wild[] = {
    0,
    1,
    0xdeadbeef000,
    0x7fffffffffff,
    0x7ffffffff000,
    0x800000000000,
    0x8000000000000000,
    0xffff800000000000,
    0xffffffff80106000,
    0xfffffffffffffff8,
    0xffffffffffffffff,
};
#define NR_WILD (sizeof wild / sizeof *wild)

static void pointers_that_are_read(void) {
    for (size_t i = 0; i < NR_WILD; i++) {
        CHECK(syscall(SYS_write, 1, wild[i], 10) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_writev, 1, wild[i], 3) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_futex, wild[i], 0, 0, 0, 0, 0) == -1 && (errno == EFAULT || errno == EINVAL));
        CHECK(syscall(SYS_futex, wild[i], 1, 1, 0, 0, 0) <= 0);
        if (wild[i] != 0) {
            CHECK(syscall(SYS_rt_sigprocmask, 0, wild[i], 0, 8) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_rt_sigaction, 10, wild[i], 0, 8) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_rt_sigaction, 10, 0, wild[i], 8) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_sigaltstack, wild[i], 0) == -1 && errno == EFAULT);
            CHECK(syscall(SYS_sigaltstack, 0, wild[i]) == -1 && errno == EFAULT);
        }
        CHECK(syscall(SYS_nanosleep, wild[i], 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_poll, wild[i], 2, 0) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_clock_gettime, 0, wild[i]) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_uname, wild[i]) == -1 && errno == EFAULT);
        CHECK(syscall(SYS_getrandom, wild[i], 16, 0) == -1 && errno == EFAULT);
    }
}

static void edges(void) {
    /* a buffer that runs from a page into none */
    char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(p + 4096, 4096) == 0);
    CHECK(syscall(SYS_uname, p + 4096 - 100) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_clock_gettime, 0, p + 4096 - 16) == 0);
    CHECK(syscall(SYS_clock_gettime, 0, p + 4096 - 8) == -1 && errno == EFAULT);
    CHECK(mprotect(p, 4096, PROT_READ) == 0);
    CHECK(syscall(SYS_clock_gettime, 0, p) == -1 && errno == EFAULT);
    CHECK(mprotect(p, 4096, PROT_NONE) == 0);
    CHECK(syscall(SYS_write, 1, p, 1) == -1 && errno == EFAULT);
}

int main(void) {
    pointers_that_are_read();
    edges();
    for (long number = 0; number < 600; number++) {
        if (is_left_out(number))
            continue;
        for (size_t i = 0; i < NR_WILD; i++) {
            unsigned long w = wild[i];
            syscall(number, w, w, w, w, w, w);
            syscall(number, 0, w, 8, w, w, w);
            syscall(number, w, 8, w, 8, w, 8);
            syscall(number, 1, w, 1UL << 20, 1, 1, 1);
        }
    }
    syscall(-1L, 1, 2, 3, 4, 5, 6);
    syscall(1L << 40, 1, 2, 3, 4, 5, 6);
    for (size_t i = 0; i < NR_WILD; i++)
        for (size_t j = 0; j < NR_WILD; j++) {
            long calls[] = {SYS_mprotect, SYS_madvise, SYS_mremap, SYS_munmap, SYS_mincore};
            for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
                if (wild[i] > 0x7fffffffffff || wild[j] > 0x7fffffffffff || k == 4)
                    CHECK(syscall(calls[k], wild[i] & ~4095UL, wild[j], wild[j], 0x7fff, wild[i], 0) <= 0);
        }
    puts("wild ok");
    return 0;
}
