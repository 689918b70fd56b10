// Rare orders of signals, ends, stops and waits. Prints one line per part; on Linux the lines are the same.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 100 };

static void check(int ok, const char *what, const char *detail) {
    if (ok) return;
    printf("FAILED %s: %s, errno %d\n", what, detail, errno);
    exit(1);
}

struct shared {
    volatile int word, pid, nr, done;
};
static struct shared *shared;
static volatile int nr_handled, nr_continued;
static void on_signal(int signal) { (void)signal, nr_handled++; }
static void on_child(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    nr_continued += info->si_code == CLD_CONTINUED;
}

static void block(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(how, &set, 0);
}

static int is_pending(int signal) {
    sigset_t set;
    sigpending(&set);
    return sigismember(&set, signal);
}

static void rest_us(long us) {
    struct timespec time = {.tv_nsec = us * 1000};
    while (nanosleep(&time, &time) != 0) {}
}

static int status_of(pid_t pid, const char *what) {
    int status = 0;
    pid_t found;
    while ((found = waitpid(pid, &status, 0)) == -1 && errno == EINTR) {}
    check(found == pid, what, "waitpid");
    return status;
}

// Two threads wait for one child: one has it, the other hears that there is none.
static pid_t child;
static void *wait_for_child(void *argument) {
    (void)argument;
    int status = 0;
    pid_t found = waitpid(child, &status, 0);
    check(found == child || (found == -1 && errno == ECHILD), "two waits", "fails");
    if (found == child) __sync_fetch_and_add(&shared->nr, 1);
    return 0;
}

static void two_waits(void) {
    for (int i = 0; i < TURNS; i++) {
        pthread_t threads[2];
        shared->word = shared->nr = 0;
        child = fork();
        if (child == 0) {
            while (shared->word == 0) {}
            _exit(0);
        }
        for (int j = 0; j < 2; j++) pthread_create(&threads[j], 0, wait_for_child, 0);
        if (i & 1) rest_us(100);
        shared->word = 1;
        for (int j = 0; j < 2; j++) pthread_join(threads[j], 0);
        check(shared->nr == 1, "two waits", "not just one has the child");
    }
}

// Whoever waits for stops alone does not wait for a child that has ended.
static void waits_without_ends(void) {
    siginfo_t info;
    for (int i = 0; i < 8; i++) {
        child = fork();
        if (child == 0) {
            rest_us(i & 1 ? 5000 : 0);
            _exit(0);
        }
        if (i & 2) rest_us(10000);
        int result = waitid(P_PID, child, &info, WSTOPPED | (i & 4 ? WCONTINUED : 0));
        check(result == -1 && errno == ECHILD, "waits without ends", "finds something");
        check(status_of(child, "waits without ends") == 0, "waits without ends", "status");
    }
}

// SIGKILL ends a stopped process, and does not continue it first.
static void kill_while_stopped(void) {
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO};
    sigaction(SIGCHLD, &action, 0);
    nr_continued = 0;
    for (int i = 0; i < TURNS; i++) {
        int status;
        shared->word = 0;
        pid_t pid = fork();
        if (pid == 0) {
            raise(SIGSTOP);
            shared->word = 1;
            _exit(0);
        }
        while (waitpid(pid, &status, WUNTRACED) == -1) check(errno == EINTR, "kill while stopped", "waitpid");
        check(WIFSTOPPED(status), "kill while stopped", "did not stop");
        kill(pid, SIGHUP);
        kill(pid, SIGKILL);
        status = status_of(pid, "kill while stopped");
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "kill while stopped", "status");
        check(shared->word == 0, "kill while stopped", "ran on");
    }
    check(nr_continued == 0, "kill while stopped", "SIGCHLD says that it was continued");
    signal(SIGCHLD, SIG_DFL);
}

// A stop that SIGKILL overtakes is not told.
static void kill_while_stopping(void) {
    for (int i = 0; i < TURNS; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            for (;;) shared->word++;
        if (i & 1) rest_us(i);
        kill(pid, SIGSTOP);
        if (i & 2) rest_us(i);
        kill(pid, SIGKILL);
        check(waitpid(pid, &status, WUNTRACED) == pid, "kill while stopping", "waitpid");
        check(WIFSIGNALED(status), "kill while stopping", "the stop is told");
    }
}

// SIGKILL ends a process with one thread, which waits in vfork(2).
static void kill_in_vfork(void) {
    for (int i = 0; i < 10; i++) {
        shared->pid = 0;
        pid_t pid = fork();
        if (pid == 0) {
            if (vfork() == 0) {
                shared->pid = getpid();
                for (;;) pause();
            }
            _exit(0);
        }
        while (shared->pid == 0) rest_us(100);
        kill(pid, SIGKILL);
        int status = status_of(pid, "kill in vfork");
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "kill in vfork", "status");
        kill(shared->pid, SIGKILL);
    }
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "setup", "mmap");
    two_waits();
    puts("ok two waits");
    waits_without_ends();
    puts("ok waits without ends");
    kill_while_stopped();
    puts("ok kill while stopped");
    kill_while_stopping();
    puts("ok kill while stopping");
    kill_in_vfork();
    puts("ok kill in vfork");
    puts("done");
    return 0;
}
