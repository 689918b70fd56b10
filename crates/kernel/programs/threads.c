/* Eight threads touch pages of one mapping, interleaved, and check those of a
 * neighbour; map, touch and unmap pages of their own; allocate. */
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define NR_THREADS 8
#define NR_PAGES 512
#define PAGE 4096L

static unsigned char *shared;
static pthread_barrier_t barrier;
static _Thread_local long my_number;

static void own_mappings(long me) {
    for (int round = 0; round < 30; round++) {
        unsigned char *own = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(own != MAP_FAILED);
        for (int i = 0; i < 64; i++) {
            CHECK(own[i * PAGE] == 0);
            own[i * PAGE] = me + round;
        }
        for (int i = 0; i < 64; i++)
            CHECK(own[i * PAGE] == (unsigned char)(me + round));
        CHECK(munmap(own, 64 * PAGE) == 0);
        size_t bytes = 1000 + round * 7777;
        unsigned char *heap = malloc(bytes);
        CHECK(heap != NULL);
        memset(heap, round, bytes);
        CHECK(heap[bytes - 1] == round);
        free(heap);
    }
}

static void *work(void *argument) {
    long me = my_number = (long)argument;
    for (long i = me; i < NR_THREADS * NR_PAGES; i += NR_THREADS)
        memset(shared + i * PAGE, me + 1, PAGE);
    pthread_barrier_wait(&barrier);
    long peer = (me + 1) % NR_THREADS;
    for (long i = peer; i < NR_THREADS * NR_PAGES; i += NR_THREADS)
        for (long j = 0; j < PAGE; j += 64)
            CHECK(shared[i * PAGE + j] == peer + 1);
    own_mappings(me);
    CHECK(my_number == me);
    return argument;
}

int main(void) {
    pthread_t threads[NR_THREADS];
    shared = mmap(0, NR_THREADS * NR_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(pthread_barrier_init(&barrier, 0, NR_THREADS) == 0);
    for (long i = 0; i < NR_THREADS; i++)
        CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
    for (long i = 0; i < NR_THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && (long)result == i);
    }
    puts("threads ok");
    return 0;
}
