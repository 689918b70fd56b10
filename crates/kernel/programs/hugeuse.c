/* Effects of the knobs of huge pages: who gets huge pages, and what the files say of them. With the argument `off`
   there is to be none at all. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemaps.h"
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static long huge_kib(const void *at) {
    return of_mapping(at, "AnonHugePages:");
}

/* Of the counters of a size; a Linux that has none counts huge pages elsewhere. */
static long allocated(void) {
    int has_sizes = access(SIZE(2048), F_OK) == 0;
    return has_sizes ? number_in(SIZE(2048) "stats/anon_fault_alloc") : of_file("/proc/vmstat", "thp_fault_alloc ");
}

static void faults(void) {
    long before = of_file("/proc/vmstat", "thp_fault_alloc "), of_size = allocated();
    long all_before = of_file("/proc/meminfo", "AnonHugePages:");
    char *p = map(4 * HUGE);
    fill(p, 4 * HUGE);
    CHECK(huge_kib(p) == 4 * HUGE / 1024 && of_mapping(p, "\nRss:") == 4 * HUGE / 1024);
    CHECK(of_file("/proc/vmstat", "thp_fault_alloc ") >= before + 4);
    CHECK(allocated() >= of_size + 4);
    CHECK(of_file("/proc/meminfo", "AnonHugePages:") >= all_before + 4 * HUGE / 1024);
    /* A part that goes splits, the whole does not. */
    long splits = of_file("/proc/vmstat", "thp_split_pmd ");
    CHECK(munmap(p + 3 * HUGE, HUGE) == 0 && of_file("/proc/vmstat", "thp_split_pmd ") == splits);
    CHECK(munmap(p + 2 * HUGE + HUGE / 2, HUGE / 2) == 0);
    CHECK(of_file("/proc/vmstat", "thp_split_pmd ") == splits + 1);
    CHECK(huge_kib(p) == 2 * HUGE / 1024 && is_filled(p, 2 * HUGE + HUGE / 2));
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(is_filled(p, 2 * HUGE + HUGE / 2) && huge_kib(p) == 2 * HUGE / 1024);
        fill(p, HUGE);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(is_filled(p, 2 * HUGE + HUGE / 2));
    CHECK(munmap(p, 2 * HUGE + HUGE / 2) == 0);
}

/* Reads share the huge zero page, unless they may not. */
static void zeroes(void) {
    volatile char *p = map(2 * HUGE);
    CHECK(p[HUGE - 1] == 0 && p[5] == 0 && of_mapping((char *)p, "\nRss:") == 0);
    CHECK(of_file("/proc/vmstat", "thp_zero_page_alloc ") == 1);
    p[7] = 1;
    CHECK(p[6] == 0 && p[7] == 1);
    CHECK(set(TOP "use_zero_page", "0") == 0);
    CHECK(p[HUGE] == 0 && set(TOP "use_zero_page", "1") == 0);
    CHECK(munmap((char *)p, 2 * HUGE) == 0);
}

/* Refused by advice, by the process, by the knob; allowed by advice. */
static void refusals(void) {
    char *p = map(HUGE), *q = map(HUGE), *r = map(HUGE), *s = map(HUGE);
    CHECK(madvise(p, HUGE, MADV_NOHUGEPAGE) == 0);
    fill(p, HUGE);
    CHECK(huge_kib(p) == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    fill(q, HUGE);
    CHECK(huge_kib(q) == 0 && prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
    CHECK(set(TOP "enabled", "madvise") == 0);
    fill(r, HUGE);
    CHECK(huge_kib(r) == 0 && madvise(s, HUGE, MADV_HUGEPAGE) == 0);
    fill(s, HUGE);
    CHECK(huge_kib(s) == HUGE / 1024 && set(TOP "enabled", "always") == 0);
    CHECK(is_filled(p, HUGE) && is_filled(q, HUGE) && is_filled(r, HUGE) && is_filled(s, HUGE));
    CHECK(munmap(p, HUGE) == 0 && munmap(q, HUGE) == 0 && munmap(r, HUGE) == 0 && munmap(s, HUGE) == 0);
}

/* Sizes between: one fault brings all of the stretch. */
static void sizes_between(void) {
    CHECK(set(SIZE(2048) "enabled", "never") == 0 && set(SIZE(64) "enabled", "always") == 0);
    long before = number_in(SIZE(64) "stats/anon_fault_alloc");
    char *p = map(HUGE);
    *(volatile char *)(p + 70000) = 1;
    CHECK(of_mapping(p, "\nRss:") == 64 && huge_kib(p) == 0);
    CHECK(number_in(SIZE(64) "stats/anon_fault_alloc") >= before + 1);
    fill(p, HUGE);
    CHECK(is_filled(p, HUGE) && of_mapping(p, "\nRss:") == HUGE / 1024);
    CHECK(munmap(p, HUGE) == 0);
    CHECK(set(SIZE(2048) "enabled", "inherit") == 0 && set(SIZE(64) "enabled", "never") == 0);
}

/* By advice, whatever the knobs say: unless the program itself has refused. */
static void collapses(void) {
    CHECK(set(TOP "enabled", "never") == 0);
    char *p = map(2 * HUGE);
    fill(p, 2 * HUGE);
    CHECK(huge_kib(p) == 0 && madvise(p, HUGE, MADV_COLLAPSE) == 0);
    CHECK(huge_kib(p) == HUGE / 1024 && is_filled(p, 2 * HUGE));
    CHECK(madvise(p, 2 * HUGE, MADV_COLLAPSE) == 0 && madvise(p, 2 * HUGE, MADV_COLLAPSE) == 0);
    CHECK(huge_kib(p) == 2 * HUGE / 1024 && is_filled(p, 2 * HUGE));
    CHECK(munmap(p, 2 * HUGE) == 0);
    p = map(HUGE);
    fill(p, HUGE);
    CHECK(madvise(p, HUGE, MADV_NOHUGEPAGE) == 0);
    CHECK(madvise(p, HUGE, MADV_COLLAPSE) == -1 && errno == EINVAL && huge_kib(p) == 0);
    CHECK(munmap(p, HUGE) == 0 && set(TOP "enabled", "always") == 0);
}

static void none_at_all(void) {
    CHECK(of_file("/proc/vmstat", "thp_fault_alloc ") == 0 && of_file("/proc/meminfo", "AnonHugePages:") == 0);
    char *p = map(4 * HUGE);
    CHECK(madvise(p, 4 * HUGE, MADV_HUGEPAGE) == 0);
    set(TOP "enabled", "always");
    fill(p, 4 * HUGE);
    CHECK(madvise(p, 4 * HUGE, MADV_COLLAPSE) == -1 && errno == EINVAL);
    CHECK(huge_kib(p) == 0 && of_file("/proc/meminfo", "AnonHugePages:") == 0);
    CHECK(of_file("/proc/vmstat", "blocks_zeroed_ahead ") == 0);
    CHECK(of_file("/proc/vmstat", "thp_fault_alloc ") == 0 && number_in(SIZE(2048) "stats/anon_fault_alloc") == 0);
    for (int kib = 16; kib <= 2048; kib *= 2) {
        char path[128];
        sprintf(path, TOP "hugepages-%dkB/stats/anon_fault_alloc", kib);
        CHECK(number_in(path) == 0);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "off") == 0) {
        none_at_all();
    } else {
        faults();
        zeroes();
        refusals();
        collapses();
        if (access(SIZE(64), F_OK) == 0)
            sizes_between();
    }
    puts("hugeuse ok");
}
