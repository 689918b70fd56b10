/* Mappings for the programs about huge pages; after hugefiles.h. */
#include <sys/mman.h>
#include <time.h>

#define HUGE (2 * MIB)
#define RW (PROT_READ | PROT_WRITE)

/* A mapping of its own of so many bytes, aligned to 2 MiB, without neighbours to merge with. */
static inline char *map(long bytes) {
    char *p = mmap(0, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    char *at = (char *)(((long)p + HUGE) & -HUGE);
    CHECK(mprotect(at, bytes, RW) == 0);
    return at;
}

/* Each page says which it is. Not in the order of addresses: small frames do not lie as they would in a huge page. */
static inline void fill(char *p, long bytes) {
    for (long nr = bytes / PAGE, i = 0; i < nr; i++) {
        long page = i * 389 % nr;
        *(long *)(p + page * PAGE) = page + 1;
    }
}

static inline int is_filled(const char *p, long bytes) {
    for (long page = 0; page < bytes / PAGE; page++)
        if (*(const long *)(p + page * PAGE) != page + 1)
            return 0;
    return 1;
}

static inline long free_kib(void) {
    return of_file("/proc/meminfo", "MemFree:");
}

static inline void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, 0);
}

/* Touches pages of a new mapping until there cannot be a free block; says how many bytes of it. A block that is in the
   hand of an idle CPU, which zeroes it, is not counted: not before huge pages were allowed for the first time. */
static inline char *take_all(long *bytes) {
    char *p = map(of_file("/proc/meminfo", "MemTotal:") * 1024);
    long free;
    *bytes = 0;
    while ((free = free_kib()) >= HUGE / 1024 - 100)
        for (long end = *bytes + (free > 4096 ? free / 2 : 64) * 1024; *bytes < end; *bytes += PAGE)
            p[*bytes] = 1;
    return p;
}
