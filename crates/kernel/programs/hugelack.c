/* Memory without one free block of 2 MiB (T1): the same program, the same result, on small pages, and the fallback is
   counted; on huge ones once somebody has made blocks, as `defrag` says. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemaps.h"

#define BYTES (4 * HUGE)
/* Of so many pages one stays. */
#define STEP 32
#define COUNT(name) of_file("/proc/vmstat", name " ")

static char *all;
static long all_bytes;

/* All but one of each STEP pages free, and no block. */
static void fragment(void) {
    CHECK(set(TOP "enabled", "never") == 0);
    all = take_all(&all_bytes);
    for (long i = 0; i < all_bytes; i += STEP * PAGE)
        CHECK(madvise(all + i, (STEP - 1) * PAGE, MADV_DONTNEED) == 0);
    CHECK(free_kib() > 4 * BYTES / 1024);
    /* These keep what they have. */
    CHECK(madvise(all, all_bytes, MADV_NOHUGEPAGE) == 0);
    CHECK(set(TOP "enabled", "always") == 0);
}

static void unfragment(void) {
    for (long i = (STEP - 1) * PAGE; i < all_bytes; i += STEP * PAGE)
        CHECK(all[i] == 1);
    CHECK(munmap(all, all_bytes) == 0);
}

/* Uses memory; KiB of it that were huge. */
static long work(long bytes) {
    char *p = map(bytes);
    fill(p, bytes);
    CHECK(is_filled(p, bytes) && of_mapping(p, "\nRss:") == bytes / 1024);
    long huge = of_mapping(p, "AnonHugePages:");
    CHECK(munmap(p, bytes) == 0);
    return huge;
}

static void nobody_makes_blocks(void) {
    CHECK(set(TOP "defrag", "never") == 0);
    fragment();
    long fallbacks = COUNT("thp_fault_fallback");
    CHECK(work(BYTES) == 0);
    CHECK(COUNT("thp_fault_fallback") >= fallbacks + BYTES / HUGE);
    unfragment();
    CHECK(work(BYTES) == BYTES / 1024);
}

/* The fault itself, if it can in the time that it has: sooner or later. */
static void the_fault_does(void) {
    CHECK(set(TOP "defrag", "always") == 0);
    fragment();
    long made = COUNT("compact_success"), moved = COUNT("pgmigrate_success");
    /* It takes more than the blocks that idle CPUs may have reserved. */
    while (COUNT("compact_success") == made)
        work(BYTES);
    CHECK(COUNT("pgmigrate_success") > moved);
    unfragment();
}

/* Somebody else, later. */
static void kcompactd_does(void) {
    CHECK(set(TOP "defrag", "defer") == 0);
    fragment();
    long made = COUNT("compact_success");
    while (work(BYTES) == 0 || COUNT("compact_success") == made)
        pause_ms(5);
    unfragment();
}

/* khugepaged, if its own knob lets it; each knob that is set wakes it. */
static void khugepaged_does(void) {
    CHECK(set(TOP "defrag", "never") == 0 && set(TOP "enabled", "never") == 0);
    char *p = map(BYTES);
    fill(p, BYTES);
    long failed = COUNT("thp_collapse_alloc_failed"), stalls = COUNT("compact_stall");
    fragment();
    while (COUNT("thp_collapse_alloc_failed") == failed)
        pause_ms(5);
    CHECK(COUNT("compact_stall") == stalls);
    while (COUNT("compact_stall") == stalls || of_mapping(p, "AnonHugePages:") == 0) {
        CHECK(set(TOP "khugepaged/defrag", "1") == 0);
        pause_ms(30);
    }
    CHECK(is_filled(p, BYTES) && munmap(p, BYTES) == 0);
    unfragment();
}

int main(void) {
    /* It might make blocks before its turn. */
    CHECK(set(TOP "khugepaged/scan_sleep_millisecs", "4294967295") == 0);
    CHECK(set(TOP "khugepaged/alloc_sleep_millisecs", "4294967295") == 0);
    CHECK(set(TOP "khugepaged/defrag", "0") == 0);
    nobody_makes_blocks();
    the_fault_does();
    kcompactd_does();
    khugepaged_does();
    puts("hugelack ok");
}
