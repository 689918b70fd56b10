/* Threads that wake each other: bare futexes, condition variables (requeue),
 * timeouts, bit sets. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* linux/futex.h is not on musl's path */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define PRIVATE 128
#define FUTEX_WAIT_PRIVATE (FUTEX_WAIT | PRIVATE)
#define FUTEX_WAKE_PRIVATE (FUTEX_WAKE | PRIVATE)
#define FUTEX_CMP_REQUEUE_PRIVATE (4 | PRIVATE)

#define ROUNDS 5000
#define AGAIN 20000

static int ball;

static long futex(int *word, int op, int value, const void *timeout, int *other, int last) {
    return syscall(SYS_futex, word, op, value, timeout, other, last);
}

static void *player(void *argument) {
    int me = (int)(long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int turn;
        while ((turn = __atomic_load_n(&ball, __ATOMIC_ACQUIRE)) % 2 != me)
            futex(&ball, FUTEX_WAIT_PRIVATE, turn, 0, 0, 0);
        __atomic_store_n(&ball, turn + 1, __ATOMIC_RELEASE);
        futex(&ball, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
    return 0;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int nr_waiting, go, nr_gone;

static void *waiter(void *argument) {
    (void)argument;
    pthread_mutex_lock(&mutex);
    nr_waiting++;
    while (!go)
        pthread_cond_wait(&condition, &mutex);
    nr_gone++;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void broadcast(void) {
    pthread_t threads[16];
    for (int i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], 0, waiter, 0) == 0);
    for (int seen = 0; seen < 16;) {
        pthread_mutex_lock(&mutex);
        seen = nr_waiting;
        pthread_mutex_unlock(&mutex);
        sched_yield();
    }
    pthread_mutex_lock(&mutex);
    go = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 16; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(nr_gone == 16);
}

static int words[2];
static void *moved(void *argument) {
    (void)argument;
    return (void *)futex(&words[0], FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
}

static void requeue(void) {
    pthread_t threads[3];
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], 0, moved, 0) == 0);
    CHECK(futex(&words[0], FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)10, &words[1], 7) == -1 && errno == EAGAIN);
    long at_first = 0;
    while (at_first < 3) {
        nanosleep(&pause, 0);
        at_first += futex(&words[0], FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)10, &words[1], 0);
    }
    CHECK(futex(&words[0], FUTEX_WAKE_PRIVATE, 10, 0, 0, 0) == 0);
    CHECK(futex(&words[1], FUTEX_WAKE_PRIVATE, 10, 0, 0, 0) == 3);
    for (int i = 0; i < 3; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0 && result == 0);
    }
}

static int again_word, is_over, is_out;

static void *waits_again(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
        CHECK(futex(&again_word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0) == 0);
    __atomic_store_n(&is_out, 1, __ATOMIC_RELEASE);
    return 0;
}

/* One thread waits again as soon as it is woken: a call that wakes all has woken one, or none. */
static void again(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, waits_again, 0) == 0);
    for (int i = 0; i < AGAIN;) {
        long nr = futex(&again_word, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0, 0, 0);
        CHECK(nr == 0 || nr == 1);
        i += nr;
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&is_out, __ATOMIC_ACQUIRE)) {
        futex(&again_word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        sched_yield();
    }
    CHECK(pthread_join(thread, 0) == 0);
}

static long ns_of(struct timespec *t) {
    return t->tv_sec * 1000000000L + t->tv_nsec;
}

static void timeouts(void) {
    int word = 5;
    struct timespec before, after, wait = {.tv_nsec = 30000000};
    CHECK(futex(&word, FUTEX_WAIT, 6, 0, 0, 0) == -1 && errno == EAGAIN);
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(futex(&word, FUTEX_WAIT, 5, &wait, 0, 0) == -1 && errno == ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long passed = ns_of(&after) - ns_of(&before);
    CHECK(passed >= 30000000 && passed < 5000000000);
    struct timespec until = {.tv_nsec = 1};
    CHECK(futex(&word, FUTEX_WAIT_BITSET, 5, &until, 0, ~0) == -1 && errno == ETIMEDOUT);
    CHECK(futex(&word, FUTEX_WAIT_BITSET, 5, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(futex((int *)((char *)&word + 1), FUTEX_WAKE, 1, 0, 0, 0) == -1 && errno == EINVAL);
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], 0, player, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(ball == 2 * ROUNDS);
    broadcast();
    requeue();
    again();
    timeouts();
    puts("pingpong ok");
    return 0;
}
