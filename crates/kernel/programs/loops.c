/* Short loops over one call each, on eight threads at once, as benchmarks of
   scaling run them; here each looks at what it gets. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define NR_THREADS 8
#define RW (PROT_READ | PROT_WRITE)

struct loop {
    const char *name;
    int nr_rounds;
    void (*round)(unsigned long who, int round);
};

static unsigned long mark(unsigned long who, int round, unsigned long page) {
    return who << 56 | (unsigned long)round << 32 | (page + 1);
}

static void *map(unsigned long bytes, int prot, int kind) {
    void *p = mmap(0, bytes, prot, kind | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* Each page is zero, takes a mark, and keeps it. */
static void fill(unsigned long *at, unsigned long nr_pages, unsigned long who, int round) {
    unsigned long step = PAGE / sizeof *at;
    for (unsigned long i = 0; i < nr_pages; i++) {
        CHECK(at[i * step] == 0 && at[i * step + step - 1] == 0);
        at[i * step] = mark(who, round, i);
    }
    for (unsigned long i = 0; i < nr_pages; i++)
        CHECK(at[i * step] == mark(who, round, i));
}

static void fault_private(unsigned long who, int round) {
    unsigned long *p = map(256 * PAGE, RW, MAP_PRIVATE);
    fill(p, 256, who, round);
    CHECK(munmap(p, 256 * PAGE) == 0);
}

static void fault_shared(unsigned long who, int round) {
    unsigned long *p = map(256 * PAGE, RW, MAP_SHARED);
    fill(p, 256, who, round);
    CHECK(munmap(p, 256 * PAGE) == 0);
}

static void map_unmap(unsigned long who, int round) {
    char *p = map(32 * PAGE, RW, MAP_PRIVATE);
    p[(who + round) % 32 * PAGE] = 1;
    CHECK(munmap(p, 32 * PAGE) == 0);
}

static void protect(unsigned long who, int round) {
    static unsigned long *ours[NR_THREADS];
    if (!ours[who])
        ours[who] = map(16 * PAGE, RW, MAP_PRIVATE);
    unsigned long *p = ours[who] + round % 16 * (PAGE / sizeof *p), old = *p;
    CHECK(mprotect(p, PAGE, PROT_READ) == 0 && *p == old);
    CHECK(mprotect(p, PAGE, PROT_NONE) == 0);
    CHECK(mprotect(p, PAGE, RW) == 0 && *p == old);
    *p = mark(who, round, 0);
}

/* Grows where it is or elsewhere, with its content. */
static void move(unsigned long who, int round) {
    unsigned long *p = map(8 * PAGE, RW, MAP_PRIVATE);
    fill(p, 8, who, round);
    unsigned long *q = mremap(p, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    for (unsigned long i = 0; i < 8; i++)
        CHECK(q[i * PAGE / sizeof *q] == mark(who, round, i));
    fill(q + 8 * PAGE / sizeof *q, 56, who, round);
    CHECK(munmap(q, 64 * PAGE) == 0);
}

static void throw_away(unsigned long who, int round) {
    static unsigned long *ours[NR_THREADS];
    if (!ours[who])
        ours[who] = map(32 * PAGE, RW, MAP_PRIVATE);
    fill(ours[who], 32, who, round);
    CHECK(madvise(ours[who], 32 * PAGE, MADV_DONTNEED) == 0);
}

static void allocate(unsigned long who, int round) {
    static const size_t sizes[] = {24, 3000, 70000, 600000};
    unsigned char *p[4];
    for (int i = 0; i < 4; i++) {
        CHECK((p[i] = malloc(sizes[i])) != 0);
        memset(p[i], (int)(who * 16 + round + i), sizes[i]);
    }
    for (int i = 0; i < 4; i++) {
        unsigned char want = (unsigned char)(who * 16 + round + i);
        CHECK(p[i][0] == want && p[i][sizes[i] / 2] == want && p[i][sizes[i] - 1] == want);
        free(p[i]);
    }
}

/* The break is everybody's, so only one of them moves it. */
static void heap(unsigned long who, int round) {
    static char *start;
    if (who != 0)
        return map_unmap(who, round);
    if (!start)
        start = (char *)((syscall(SYS_brk, 0) + PAGE - 1) & -PAGE);
    char *end = start + 16 * PAGE;
    CHECK((char *)syscall(SYS_brk, end) == end);
    fill((unsigned long *)start, 16, who, round);
    CHECK((char *)syscall(SYS_brk, start) == start);
}

/* One throws a page away, the others read it: what they find is what was
   written since the last time it is known to have gone, or zero. */
static atomic_ulong gone;
static void stale(unsigned long who, int round) {
    static _Atomic(unsigned long *) page;
    if (who == 0) {
        if (!page)
            page = map(PAGE, RW, MAP_PRIVATE);
        *(volatile unsigned long *)page = round + 1;
        CHECK(madvise(page, PAGE, MADV_DONTNEED) == 0);
        gone = round + 1;
        return;
    }
    for (int i = 0; page && i < 20; i++) {
        unsigned long before = gone, seen = *(volatile unsigned long *)page;
        CHECK(seen == 0 || (seen > before && seen <= gone + 1));
    }
}

static const struct loop loops[] = {
    {"private faults", 24, fault_private}, {"shared faults", 24, fault_shared},
    {"map and unmap", 600, map_unmap},     {"protect", 600, protect},
    {"move", 60, move},                    {"throw away", 120, throw_away},
    {"allocate", 60, allocate},            {"heap", 200, heap},
    {"stale", 3000, stale},
};

static pthread_barrier_t together;

static void *run(void *who) {
    for (unsigned i = 0; i < sizeof loops / sizeof *loops; i++) {
        pthread_barrier_wait(&together);
        for (int round = 0; round < loops[i].nr_rounds; round++)
            loops[i].round((unsigned long)who, round);
    }
    return who;
}

int main(void) {
    pthread_t threads[NR_THREADS];
    CHECK(pthread_barrier_init(&together, 0, NR_THREADS) == 0);
    for (unsigned long i = 0; i < NR_THREADS; i++)
        CHECK(pthread_create(&threads[i], 0, run, (void *)i) == 0);
    for (unsigned long i = 0; i < NR_THREADS; i++) {
        void *end;
        CHECK(pthread_join(threads[i], &end) == 0 && end == (void *)i);
    }
    CHECK(gone == 3000);
    puts("loops ok");
}
