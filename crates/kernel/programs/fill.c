/* Eight threads fill memory together and look at all of it: private and shared,
   in turn, at random and page by page between the others', by touching and by
   asking for it beforehand. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE 4096UL
#define WORDS (PAGE / sizeof(unsigned long))
#define NR_THREADS 8UL
#define NR_PAGES 8192UL
#define RW (PROT_READ | PROT_WRITE)

static unsigned long *memory;
static unsigned long salt;
static pthread_barrier_t together;

static unsigned long scramble(unsigned long x) {
    x = (x ^ x >> 31) * 0x7fb5d329728ea185UL;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dUL;
    return x ^ x >> 33;
}

static void put(unsigned long page) {
    unsigned long *at = memory + page * WORDS;
    CHECK(at[0] == 0 && at[WORDS / 2] == 0 && at[WORDS - 1] == 0);
    at[0] = scramble(salt ^ page);
    at[WORDS - 1] = ~at[0];
}

static void look(unsigned long page) {
    unsigned long *at = memory + page * WORDS, want = scramble(salt ^ page);
    CHECK(at[0] == want && at[WORDS / 2] == 0 && at[WORDS - 1] == ~want);
}

/* The pages of thread `who`, each once. */
static unsigned long in_a_row(unsigned long who, unsigned long i) { return who * (NR_PAGES / NR_THREADS) + i; }
static unsigned long between(unsigned long who, unsigned long i) { return i * NR_THREADS + who; }
static unsigned long at_random(unsigned long who, unsigned long i) {
    /* An odd factor permutes a power of two. */
    return in_a_row(who, i * 389 % (NR_PAGES / NR_THREADS));
}

static unsigned long (*const orders[])(unsigned long, unsigned long) = {in_a_row, between, at_random};

/* By thread 0: memory for the next round. */
static void prepare(int kind, int before, unsigned long round) {
    memory = mmap(0, NR_PAGES * PAGE, RW, kind | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    if (before)
        CHECK(madvise(memory, NR_PAGES * PAGE, MADV_POPULATE_WRITE) == 0);
    salt = scramble(round);
}

static void *run(void *arg) {
    unsigned long who = (unsigned long)arg;
    for (unsigned long round = 0; round < 12; round++) {
        unsigned long (*order)(unsigned long, unsigned long) = orders[round % 3];
        if (who == 0)
            prepare(round % 2 ? MAP_SHARED : MAP_PRIVATE, round >= 6, round);
        pthread_barrier_wait(&together);
        for (unsigned long i = 0; i < NR_PAGES / NR_THREADS; i++)
            put(order(who, i));
        pthread_barrier_wait(&together);
        /* Pages of the other threads, too. */
        for (unsigned long i = who; i < NR_PAGES; i += 3)
            look(i);
        pthread_barrier_wait(&together);
        /* Each gives back what lies in a row for it, all at once. */
        CHECK(munmap(memory + in_a_row(who, 0) * WORDS, NR_PAGES / NR_THREADS * PAGE) == 0);
        pthread_barrier_wait(&together);
    }
    return arg;
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
    puts("fill ok");
}
