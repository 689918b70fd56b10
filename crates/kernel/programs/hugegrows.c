/* One program exits, another one's small pages become huge with no call of its own (T16): a child takes all memory that
   is left, so that there is no block of 2 MiB, and khugepaged, which would sleep for weeks, is woken by its end. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemaps.h"
#include <sys/wait.h>

#define BYTES (4 * HUGE)
#define WEEKS "4294967295"

/* Takes all memory and keeps it until it is told to end. */
static void be_child(int told, int tell) {
    char byte;
    long bytes;
    CHECK(read(told, &byte, 1) == 1);
    take_all(&bytes);
    CHECK(write(tell, "", 1) == 1);
    CHECK(read(told, &byte, 1) == 1);
    _exit(0);
}

static long failed(void) {
    return of_file("/proc/vmstat", "thp_collapse_alloc_failed ");
}

int main(void) {
    CHECK(set(TOP "enabled", "never") == 0 && set(TOP "khugepaged/alloc_sleep_millisecs", WEEKS) == 0);
    int to_child[2], to_parent[2], status;
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork();
    if (child == 0)
        be_child(to_child[0], to_parent[1]);
    char byte, *p = map(BYTES);
    fill(p, BYTES);
    CHECK(write(to_child[1], "", 1) == 1 && read(to_parent[0], &byte, 1) == 1);
    CHECK(free_kib() < HUGE / 1024 && of_file("/proc/meminfo", "AnonHugePages:") == 0);
    long before = failed(), collapsed = number_in(TOP "khugepaged/pages_collapsed");
    CHECK(set(TOP "enabled", "always") == 0);
    while (failed() == before)
        pause_ms(5);
    CHECK(of_file("/proc/meminfo", "AnonHugePages:") == 0 && is_filled(p, BYTES));
    CHECK(write(to_child[1], "", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    while (of_file("/proc/meminfo", "AnonHugePages:") < BYTES / 1024)
        pause_ms(5);
    CHECK(of_mapping(p, "AnonHugePages:") == BYTES / 1024 && is_filled(p, BYTES));
    CHECK(number_in(TOP "khugepaged/pages_collapsed") >= collapsed + BYTES / HUGE);
    puts("hugegrows ok");
}
