/* More threads than CPUs, each with numbers of its own in every kind of
 * floating-point register: none may see another's. */
#include "check.h"
#include <pthread.h>

#define NR_THREADS 6

static void *work(void *argument) {
    long me = (long)argument;
    double a = me + 0.5, b = me * 2 + 0.25;
    long double wide = me + 0.125L;
    volatile double memory = 1;
    for (long i = 0; i < 3000000; i++) {
        a += memory;
        b += a - (memory + a);
        wide += 1;
        if (i % 100000 == 0)
            sched_yield();
    }
    CHECK(a == me + 0.5 + 3000000 && b == me * 2 + 0.25 - 3000000);
    CHECK(wide == me + 0.125L + 3000000);
    return 0;
}

int main(void) {
    pthread_t threads[NR_THREADS];
    for (long i = 0; i < NR_THREADS; i++)
        CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
    for (int i = 0; i < NR_THREADS; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    puts("numbers ok");
    return 0;
}
