/* Memory without one free block of 2 MiB (T1): the same program, the same result, on small pages, and the fallback is
   counted; on huge ones again once there are blocks. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemaps.h"

#define BYTES (4 * HUGE)
/* Of so many pages one stays. */
#define STEP 32

static void work(long huge) {
    char *p = map(BYTES);
    fill(p, BYTES);
    CHECK(is_filled(p, BYTES) && of_mapping(p, "AnonHugePages:") == huge && of_mapping(p, "\nRss:") == BYTES / 1024);
    CHECK(munmap(p, BYTES) == 0);
}

int main(void) {
    /* Whoever might make blocks sleeps. */
    CHECK(set(TOP "khugepaged/scan_sleep_millisecs", "4294967295") == 0);
    CHECK(set(TOP "khugepaged/alloc_sleep_millisecs", "4294967295") == 0);
    CHECK(set(TOP "enabled", "never") == 0);
    long bytes;
    char *all = take_all(&bytes);
    for (long i = 0; i < bytes; i += STEP * PAGE)
        CHECK(madvise(all + i, (STEP - 1) * PAGE, MADV_DONTNEED) == 0);
    CHECK(free_kib() > 4 * BYTES / 1024);
    /* These keep what they have. */
    CHECK(madvise(all, bytes, MADV_NOHUGEPAGE) == 0);
    CHECK(set(TOP "defrag", "never") == 0 && set(TOP "enabled", "always") == 0);
    long fallbacks = of_file("/proc/vmstat", "thp_fault_fallback ");
    work(0);
    CHECK(of_file("/proc/vmstat", "thp_fault_fallback ") >= fallbacks + BYTES / HUGE);
    for (long i = (STEP - 1) * PAGE; i < bytes; i += STEP * PAGE)
        CHECK(all[i] == 1);
    CHECK(munmap(all, bytes) == 0);
    work(BYTES / 1024);
    puts("hugelack ok");
}
