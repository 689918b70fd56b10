/* Handlers that return: registers and floating point survive, calls are
 * interrupted or restarted, masks hold, signals reach the thread that is meant. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static volatile int nr_handled;
static pthread_t handled_in;

static void count(int number) {
    (void)number;
    handled_in = pthread_self();
    volatile double spoil = 3.25;
    volatile long double spoil_more = 1.125L;
    spoil = spoil * spoil_more + nr_handled;
    nr_handled++;
}

static volatile int nr_spoiled;
static void spoiled(int number) {
    (void)number;
    nr_spoiled++;
}

static void repair(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    count(number);
    CHECK(mprotect((void *)((unsigned long)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void on(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(number, &action, 0) == 0);
}

static void faults_in_the_middle_of_arithmetic(void) {
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, 0) == 0);
    double *p = mmap(0, 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double sum = 0.5;
    long double wide = 0.25L;
    for (int i = 0; i < 64; i++) {
        sum = sum * 1.5 + p[i * (PAGE / sizeof *p)];
        wide = wide * 2;
        p[i * (PAGE / sizeof *p)] = 1;
    }
    double expected = 0.5;
    for (int i = 0; i < 64; i++)
        expected *= 1.5;
    CHECK(sum == expected && wide == 0x1p62L && nr_handled == 64);
}

static sem_t ready, done;
static volatile int sleep_errno;
static volatile long woken_early;

static void *sleeper(void *argument) {
    (void)argument;
    struct timespec rest, time = {.tv_sec = 30};
    sem_post(&ready);
    sleep_errno = nanosleep(&time, &rest) == 0 ? 0 : errno;
    woken_early = rest.tv_sec;
    while (sem_wait(&done) != 0)
        CHECK(errno == EINTR);
    return 0;
}

static void interrupts_calls(void) {
    pthread_t thread;
    struct timespec pause = {.tv_nsec = 20000000};
    on(SIGUSR1, count, 0);
    nr_handled = 0;
    CHECK(sem_init(&ready, 0, 0) == 0 && sem_init(&done, 0, 0) == 0);
    CHECK(pthread_create(&thread, 0, sleeper, 0) == 0);
    sem_wait(&ready);
    nanosleep(&pause, 0);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    while (woken_early == 0)
        nanosleep(&pause, 0);
    CHECK(sleep_errno == EINTR && nr_handled == 1 && pthread_equal(handled_in, thread));
    on(SIGUSR1, count, SA_RESTART);
    nanosleep(&pause, 0);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    while (nr_handled == 1)
        nanosleep(&pause, 0);
    sem_post(&done);
    CHECK(pthread_join(thread, 0) == 0);
}

static volatile int spinning;
static void *spin(void *argument) {
    (void)argument;
    spinning = 1;
    while (nr_handled == 0) {
    }
    return 0;
}

static void reaches_a_thread_that_makes_no_calls(void) {
    pthread_t thread;
    nr_handled = 0;
    CHECK(pthread_create(&thread, 0, spin, 0) == 0);
    while (!spinning)
        sched_yield();
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    CHECK(pthread_join(thread, 0) == 0 && pthread_equal(handled_in, thread));
}

static void masks_hold(void) {
    sigset_t set, old, pending;
    nr_handled = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    raise(SIGUSR1);
    CHECK(nr_handled == 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    CHECK(sigsuspend(&old) == -1 && errno == EINTR && nr_handled == 1);
    CHECK(sigprocmask(SIG_SETMASK, &old, &set) == 0 && sigismember(&set, SIGUSR1));
    on(SIGUSR1, SIG_IGN, 0);
    CHECK(kill(getpid(), SIGUSR1) == 0 && nr_handled == 1);
}

/* A handler that finds no stack becomes SIGSEGV, and that one's handler runs. */
static void without_a_stack(void) {
    nr_handled = 0;
    char *stack = mmap(0, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = 16 * PAGE}, none = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&alternate, 0) == 0);
    on(SIGUSR1, spoiled, SA_ONSTACK);
    on(SIGSEGV, count, 0);
    raise(SIGUSR1);
    CHECK(nr_handled == 1 && nr_spoiled == 0);
    CHECK(sigaltstack(&none, 0) == 0);
    raise(SIGUSR1);
    CHECK(nr_handled == 1 && nr_spoiled == 1);
}

static int queued_value;
static void take_value(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    queued_value = info->si_value.sival_int;
}

/* To one thread, with a value. */
static void queued_to_a_thread(void) {
    struct sigaction action = {.sa_sigaction = take_value, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR2, &action, 0) == 0);
    siginfo_t info = {.si_code = SI_QUEUE};
    info.si_value.sival_int = 815;
    CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR2, &info) == 0 && queued_value == 815);
    CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), 12345678, SIGUSR2, &info) == -1 && errno == ESRCH);
    info.si_code = SI_USER;
    CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), 12345678, SIGUSR2, &info) == -1 && errno == EPERM);
    CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGUSR2, &info) == 0);
}

static void nothing(int signal) {
    (void)signal;
}

/* A timer that goes off more often than anybody can handle: its program can be ended, and others get on. */
static void fastest_timer(void) {
    static void (*const handlers[])(int) = { nothing, SIG_IGN };
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct itimerval fast = { { 0, 1 }, { 0, 1 } };
            signal(SIGALRM, handlers[i]);
            setitimer(ITIMER_REAL, &fast, 0);
            for (;;) {
            }
        }
        struct timespec a_while = { 0, 50000000 };
        int status;
        CHECK(pid > 0 && nanosleep(&a_while, 0) == 0);
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL);
    }
}

int main(void) {
    faults_in_the_middle_of_arithmetic();
    interrupts_calls();
    reaches_a_thread_that_makes_no_calls();
    masks_hold();
    without_a_stack();
    queued_to_a_thread();
    fastest_timer();
    puts("signals ok");
    return 0;
}
