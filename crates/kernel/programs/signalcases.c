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

// A wait for stops alone does not wait for a child that has ended.
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

// A signal that another mask lets through for this call alone comes although the time is over at once.
static void masks_without_time(void) {
    sigset_t open_mask;
    struct timespec no_time = {0}, short_time = {.tv_nsec = 1};
    pthread_sigmask(SIG_BLOCK, 0, &open_mask);
    signal(SIGUSR1, on_signal);
    block(SIG_BLOCK, SIGUSR1);
    nr_handled = 0;
    check(ppoll(0, 0, &no_time, &open_mask) == 0 && nr_handled == 0, "masks", "ppoll with nothing pending");
    for (int i = 0; i < 4; i++) {
        const struct timespec *time = i & 1 ? &short_time : &no_time;
        raise(SIGUSR1);
        int result = i & 2 ? pselect(0, 0, 0, 0, time, &open_mask) : ppoll(0, 0, time, &open_mask);
        check(result == -1 && errno == EINTR, "masks", i & 2 ? "pselect" : "ppoll");
        check(nr_handled == i + 1 && !is_pending(SIGUSR1), "masks", "no handler has run");
    }
    raise(SIGUSR1);
    int epoll = epoll_create1(0);
    struct epoll_event event;
    check(epoll_pwait(epoll, &event, 1, 0, &open_mask) == 0, "masks", "epoll_pwait");
    check(nr_handled == 4 && is_pending(SIGUSR1), "masks", "epoll_pwait without time lets it through");
    check(poll(0, 0, 0) == 0 && is_pending(SIGUSR1), "masks", "poll lets it through");
    close(epoll);
    block(SIG_UNBLOCK, SIGUSR1);
    check(nr_handled == 5, "masks", "it did not come in the end");
    signal(SIGUSR1, SIG_DFL);
}

// A signal that comes to be ignored while it waits is discarded, no matter which target it was sent to.
static void discards(int number, void (*action)(int), int to_thread) {
    signal(number, on_signal);
    block(SIG_BLOCK, number);
    nr_handled = 0;
    if (to_thread)
        raise(number);
    else
        kill(getpid(), number);
    check(is_pending(number), "discards", "was not pending");
    signal(number, action);
    check(!is_pending(number), "discards", "is still pending");
    signal(number, on_signal);
    block(SIG_UNBLOCK, number);
    check(nr_handled == 0, "discards", "is handled later");
    signal(number, SIG_DFL);
}

static void ignored(void) {
    for (int to_thread = 0; to_thread < 2; to_thread++) {
        discards(SIGUSR1, SIG_IGN, to_thread);
        discards(SIGCHLD, SIG_DFL, to_thread);
        discards(SIGWINCH, SIG_DFL, to_thread);
    }
    // One that is ignored and blocked waits; to pass over it is no delivery, which SA_RESETHAND counts.
    struct sigaction action = {.sa_handler = SIG_IGN, .sa_flags = SA_RESETHAND};
    sigaction(SIGUSR1, &action, 0);
    block(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    check(is_pending(SIGUSR1), "ignored", "does not wait while it is blocked");
    block(SIG_UNBLOCK, SIGUSR1);
    check(!is_pending(SIGUSR1), "ignored", "waits for ever");
    sigaction(SIGUSR1, 0, &action);
    check(action.sa_handler == SIG_IGN, "ignored", "has another action now");
    signal(SIGUSR1, SIG_DFL);
    // The end of a child, of which nobody hears, is no signal either.
    block(SIG_BLOCK, SIGCHLD);
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < TURNS; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        check(waitpid(pid, 0, 0) == -1 && errno == ECHILD, "ignored", "a child can be waited for");
        check(!is_pending(SIGCHLD), "ignored", "SIGCHLD waits");
    }
    struct sigaction no_wait = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGCHLD, &no_wait, 0);
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    check(waitpid(pid, 0, 0) == -1 && errno == ECHILD && is_pending(SIGCHLD), "ignored", "SA_NOCLDWAIT");
    signal(SIGCHLD, SIG_DFL);
    block(SIG_UNBLOCK, SIGCHLD);
}

static void spin_us(long us) {
    struct timespec now, start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < us);
}

// A timer that was stopped sends nothing more; what it sends would kill.
static void stopped_timers(void) {
    pid_t pid = fork();
    if (pid == 0) {
        struct itimerval once = {.it_value.tv_usec = 200}, none = {0}, left;
        struct itimerval often = {{0, 200}, {0, 200}};
        for (int i = 0; i < 10 * TURNS; i++) {
            signal(SIGALRM, on_signal);
            setitimer(ITIMER_REAL, i & 1 ? &once : &often, 0);
            spin_us(150 + i % 100);
            setitimer(ITIMER_REAL, &none, 0);
            signal(SIGALRM, SIG_DFL);
            spin_us(i % 8 ? 0 : 500);
            getitimer(ITIMER_REAL, &left);
            if (left.it_value.tv_sec || left.it_value.tv_usec) _exit(1);
        }
        _exit(0);
    }
    int status = status_of(pid, "stopped timers");
    check(!WIFSIGNALED(status), "stopped timers", "a signal comes");
    check(status == 0, "stopped timers", "a timer runs again");
}

// A thread that runs one program after the other has all signals that were sent to it meanwhile.
enum { FIRST = 36, NR_SENT = 29, NR_PROGRAMS = 60 };
static void block_all(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, 0);
}

static int next_program(char **argv) {
    int left = atoi(argv[2]);
    sigset_t set;
    char byte, text[16];
    sprintf(text, "%d", left - 1);
    char *args[] = {argv[0], "next", text, 0}, *env[] = {0};
    if (left > 0) {
        execve(argv[0], args, env);
        return 99;
    }
    while (read(0, &byte, 1) == 1) {}
    sigpending(&set);
    for (int i = 0; i < NR_SENT; i++)
        if (!sigismember(&set, FIRST + i)) return 1 + i;
    return 0;
}

static void sent_during_execve(const char *self) {
    for (int turn = 0; turn < 4; turn++) {
        int ends[2];
        check(pipe(ends) == 0, "execve", "pipe");
        shared->word = 0;
        pid_t pid = fork();
        if (pid == 0) {
            char *args[] = {(char *)self, "next", "60", 0}, *env[] = {0};
            block_all();
            dup2(ends[0], 0);
            close(ends[0]), close(ends[1]);
            shared->word = 1;
            execve(self, args, env);
            _exit(98);
        }
        close(ends[0]);
        while (shared->word == 0) {}
        for (int i = 0; i < NR_SENT; i++) {
            check(syscall(SYS_tgkill, pid, pid, FIRST + i) == 0, "execve", "tgkill");
            spin_us(500 + 37 * i % 300);
        }
        close(ends[1]);
        int status = status_of(pid, "execve");
        check(WIFEXITED(status) && WEXITSTATUS(status) < 98, "execve", "status");
        check(status == 0, "execve", "a signal was lost");
    }
}

// Small pages that make fork(2) take a while.
static void grow_to_fork_slowly(long size) {
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, size, MADV_NOHUGEPAGE);
    memset(p, 1, size);
}

// A signal to a group reaches everybody in it, also children that are just being forked. By the call itself: fork(3) may
// block signals, and a child has none that waited blocked.
static void groups(void) {
    enum { MOST = 12 };
    for (int turn = 0; turn < 60; turn++) {
        int ends[2];
        check(pipe(ends) == 0, "groups", "pipe");
        shared->word = 0;
        pid_t leader = fork();
        if (leader == 0) {
            setpgid(0, 0);
            close(ends[0]);
            if (turn % 4 >= 2) grow_to_fork_slowly(16 << 20);
            shared->word = 1;
            for (int i = 0; i < MOST; i++)
                if (syscall(SYS_fork) == 0) break;
            for (;;) pause();
        }
        close(ends[1]);
        while (shared->word == 0) {}
        spin_us(turn * 37 % (turn % 4 >= 2 ? 15000 : 1500));
        check(kill(-leader, turn % 8 < 4 ? SIGTERM : SIGKILL) == 0, "groups", "kill");
        check(WIFSIGNALED(status_of(leader, "groups")), "groups", "status");
        // Hangs up when all have ended.
        struct pollfd end = {ends[0], POLLIN, 0};
        check(poll(&end, 1, 10000) == 1 && end.revents == POLLHUP, "groups", "somebody is left");
        close(ends[0]);
    }
}

// A signal that a parent has handled does not reach its next child, though the sender is not done with the group.
static volatile int nr_handled;
static void count_and_fork(int signal) {
    (void)signal;
    if (nr_handled++ == 0 && syscall(SYS_fork) == 0) {
        rest_us(2000);
        _exit(nr_handled);
    }
}
static void *sleep_on(void *argument) {
    (void)argument;
    for (;;) pause();
    return 0;
}

static void handled_before_fork(void) {
    for (int turn = 0; turn < 40; turn++) {
        shared->word = 0;
        pid_t leader = fork();
        if (leader == 0) {
            struct sigaction action = {.sa_handler = count_and_fork, .sa_flags = SA_NODEFER};
            pthread_t other;
            int status = 0;
            setpgid(0, 0);
            // The other thread is looked at, too, and takes no signal.
            sigset_t all, none;
            sigfillset(&all);
            sigprocmask(SIG_SETMASK, &all, &none);
            pthread_create(&other, 0, sleep_on, 0);
            sigprocmask(SIG_SETMASK, &none, 0);
            sigaction(SIGUSR2, &action, 0);
            shared->word = 1;
            while (nr_handled == 0) rest_us(100);
            while (waitpid(-1, &status, 0) < 0 && errno == EINTR) {}
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
        }
        while (shared->word == 0) {}
        check(kill(-leader, SIGUSR2) == 0, "handled before fork", "kill");
        int status = status_of(leader, "handled before fork");
        check(WIFEXITED(status) && WEXITSTATUS(status) == 1, "handled before fork", "the child had it, too");
    }
}

// fork(2) fails for no signal, whatever SA_RESTART says, and gets on although it takes longer than the next signal.
static void forks_and_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    pid_t pid = fork();
    if (pid == 0) {
        sigaction(SIGALRM, &action, 0);
        pid_t self = getpid(), sender = fork();
        while (sender == 0) {
            if (kill(self, SIGALRM) != 0) _exit(0);
            spin_us(500);
        }
        for (int i = 0; i < TURNS; i++) {
            if (i == TURNS - 5) grow_to_fork_slowly(64 << 20);
            pid_t one = syscall(SYS_fork);
            if (one == 0) _exit(0);
            if (one < 0) _exit(1);
            while (waitpid(one, 0, 0) != one)
                if (errno != EINTR) _exit(2);
        }
        kill(sender, SIGKILL);
        // Its last signal may come during the wait.
        while (waitpid(sender, 0, 0) != sender)
            if (errno != EINTR) _exit(3);
        _exit(0);
    }
    check(status_of(pid, "forks and signals") == 0, "forks and signals", "status");
}

// A stop: all threads, also those that sleep, and before the parent hears of it.
static int stopped_pipe[2];
static void *read_one(void *argument) {
    char byte;
    (void)argument;
    shared->nr = 1;
    if (read(stopped_pipe[0], &byte, 1) == 1) shared->done = 1;
    return 0;
}
static void *count_on(void *argument) {
    (void)argument;
    for (;;) shared->word++;
    return 0;
}

static pid_t stop_child_with(void *(*thread_main)(void *)) {
    int status;
    shared->word = shared->nr = shared->done = 0;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, 0, thread_main, 0);
        for (;;) pause();
    }
    while (shared->word == 0 && shared->nr == 0) rest_us(100);
    rest_us(3000);
    kill(pid, SIGSTOP);
    check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "stops", "waitpid");
    return pid;
}

static void stops(void) {
    check(pipe(stopped_pipe) == 0, "stops", "pipe");
    for (int i = 0; i < 10; i++) {
        int nr, status;
        pid_t pid = stop_child_with(read_one);
        check(write(stopped_pipe[1], "x", 1) == 1, "stops", "write");
        rest_us(3000);
        check(ioctl(stopped_pipe[0], FIONREAD, &nr) == 0 && nr == 1, "stops", "a sleeping thread goes on");
        kill(pid, SIGCONT);
        check(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status), "stops", "not continued");
        while (!shared->done) rest_us(100);
        kill(pid, SIGKILL);
        status_of(pid, "stops");
    }
    for (int i = 0; i < 30; i++) {
        pid_t pid = stop_child_with(count_on);
        int before = shared->word;
        spin_us(500);
        check(shared->word == before, "stops", "a running thread goes on");
        kill(pid, SIGKILL);
        status_of(pid, "stops");
    }
}

// A group that nobody would continue is not stopped by SIGTSTP, and not left stopped.
static void on_hang_up(int signal) { shared->nr |= signal == SIGHUP ? 1 : 2; }

static void member_of_orphaned_group(void) {
    setpgid(0, 0);
    signal(SIGHUP, on_hang_up), signal(SIGCONT, on_hang_up);
    raise(SIGTSTP);
    // It goes on when its parent has ended.
    while (shared->nr != 3) rest_us(100);
    raise(SIGTSTP), raise(SIGTTIN), raise(SIGTTOU);
    shared->done = 1;
    _exit(0);
}

static void orphaned_groups(void) {
    for (int i = 0; i < 10; i++) {
        shared->nr = shared->done = 0;
        pid_t pid = fork();
        if (pid == 0) {
            int status;
            setsid();
            pid_t member = fork();
            if (member == 0) member_of_orphaned_group();
            if (waitpid(member, &status, WUNTRACED) != member) _exit(1);
            _exit(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP && shared->nr == 0 ? 0 : 2);
        }
        check(status_of(pid, "orphaned groups") == 0, "orphaned groups", "SIGTSTP does not stop");
        for (int left = 5000; !shared->done; left--) {
            check(left > 0, "orphaned groups", shared->nr == 3 ? "stopped again" : "stays stopped");
            rest_us(1000);
        }
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "next") == 0) return next_program(argv);
    setvbuf(stdout, 0, _IOLBF, 0);
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "setup", "mmap");
    alarm(60); // so that a part that hangs fails
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
    masks_without_time();
    puts("ok masks without time");
    ignored();
    puts("ok ignored");
    stopped_timers();
    puts("ok stopped timers");
    sent_during_execve(argv[0]);
    puts("ok sent during execve");
    groups();
    puts("ok groups");
    handled_before_fork();
    puts("ok handled before fork");
    forks_and_signals();
    puts("ok forks and signals");
    stops();
    puts("ok stops");
    orphaned_groups();
    puts("ok orphaned groups");
    puts("done");
    return 0;
}
