/* CPUs that have nothing to do zero blocks ahead: what was full of bytes and is given again is zero. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemaps.h"

#define BYTES (8 * HUGE)
#define ROUNDS 5

static long zeroed(void) {
    return of_file("/proc/vmstat", "blocks_zeroed_ahead ");
}

int main(void) {
    CHECK(set(TOP "enabled", "always") == 0);
    for (int round = 0; round < ROUNDS; round++) {
        char *p = map(BYTES);
        for (long i = 0; i < BYTES; i += sizeof(long)) {
            CHECK(*(long *)(p + i) == 0);
            *(long *)(p + i) = -1;
        }
        CHECK(of_mapping(p, "AnonHugePages:") == BYTES / 1024);
        long before = zeroed();
        CHECK(munmap(p, BYTES) == 0);
        while (zeroed() == before)
            pause_ms(5);
    }
    puts("hugeahead ok");
}
