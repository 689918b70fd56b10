// Signals to threads that wait in a system call: every call that waits, handlers with and without SA_RESTART,
// signals from threads and from processes. signal(7) says which call is made again. Prints one line per part; on Linux
// the lines are the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// linux/futex.h, which musl has not.
enum { FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET = 9 };
#define FUTEX_BITSET_MATCH_ANY 0xffffffffu

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif

enum { LEAST_SIGNALS = 25, TURNS = 300, LONG = 30 };

static void check(int ok, const char *what, const char *detail) {
    if (ok) return;
    printf("FAILED %s: %s, errno %d\n", what, detail, errno);
    exit(1);
}

// The memory that the two sides of a part share, also where they are processes.
struct shared {
    volatile int word, finished, done, nr_interrupted, nr_handled;
};
static struct shared *shared;
static __thread volatile int nr_handled;
static void on_signal(int signal) { (void)signal, nr_handled++, __sync_fetch_and_add(&shared->nr_handled, 1); }

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(signal, &action, 0);
}

static void block(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(how, &set, 0);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct timespec in_seconds(int seconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += seconds;
    return end;
}

static void rest_us(long us) {
    struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, 0);
}

// The calls: each with what makes it wait and what ends that.
static int pipe_fds[2], pair[2], counter, epoll, held, wanted;
static pid_t child;
static const char fifo[] = "/tmp/interrupts.fifo", locked[] = "/tmp/interrupts.lock";
static char page[4096];

static void make_pipe(void) { check(pipe(pipe_fds) == 0, "setup", "pipe"); }
static void close_pipe(void) { close(pipe_fds[0]), close(pipe_fds[1]); }
static void feed_pipe(void) { check(write(pipe_fds[1], "x", 1) == 1, "setup", "feed"); }
static long read_pipe(void) { return read(pipe_fds[0], page, 8); }
static long readv_pipe(void) {
    struct iovec part = {page, 8};
    return readv(pipe_fds[0], &part, 1);
}
static void fill_pipe(void) {
    make_pipe();
    fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK);
    while (write(pipe_fds[1], page, sizeof page) > 0) {}
    fcntl(pipe_fds[1], F_SETFL, 0);
}
static void empty_pipe(void) {
    for (int i = 0; i < 16; i++) check(read(pipe_fds[0], (char[4096]){0}, 4096) == 4096, "setup", "empty");
}
static long write_pipe(void) { return write(pipe_fds[1], page, sizeof page); }

static void make_pair(void) { check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "setup", "socketpair"); }
static void close_pair(void) { close(pair[0]), close(pair[1]); }
static void feed_pair(void) { check(write(pair[1], "x", 1) == 1, "setup", "feed"); }
static long read_pair(void) { return read(pair[0], page, 8); }

static void make_counter(void) { counter = eventfd(0, 0); }
static void close_counter(void) { close(counter); }
static void feed_counter(void) { check(eventfd_write(counter, 1) == 0, "setup", "feed"); }
static long read_counter(void) { return read(counter, page, 8); }

static void make_fifo(void) { unlink(fifo), check(mkfifo(fifo, 0600) == 0, "setup", "mkfifo"); }
static void remove_fifo(void) { unlink(fifo); }
// Stays open until its process ends or the part is over.
static void open_other_end(void) { wanted = open(fifo, O_RDWR); }
static long open_fifo(void) {
    int fd = open(fifo, O_RDONLY);
    if (fd >= 0) close(fd);
    return fd;
}

static void make_child(void) {
    make_pipe();
    child = fork();
    if (child == 0) {
        block(SIG_BLOCK, SIGUSR1);
        _exit(read(pipe_fds[0], page, 1) == 1 ? 7 : 8);
    }
}
static long wait_for_child(void) {
    int status = 0;
    long pid = wait4(child, &status, 0, 0);
    if (pid == child) check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "wait4", "status");
    return pid;
}
static long waitid_for_child(void) {
    siginfo_t info = {0};
    long result = waitid(P_PID, child, &info, WEXITED);
    if (result == 0) check(info.si_pid == child && info.si_status == 7, "waitid", "status");
    return result;
}

static void lock_file(void) {
    held = open(locked, O_RDWR | O_CREAT, 0600), wanted = open(locked, O_RDWR);
    check(held >= 0 && wanted >= 0 && flock(held, LOCK_EX) == 0, "setup", "flock");
}
static void unlock_file(void) { flock(held, LOCK_UN); }
static void close_files(void) { close(held), close(wanted), unlink(locked); }
static long take_lock(void) { return flock(wanted, LOCK_EX); }
static int part_lock(int fd, int command, int type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    return fcntl(fd, command, &lock);
}
static void lock_part(void) {
    held = open(locked, O_RDWR | O_CREAT, 0600), wanted = open(locked, O_RDWR);
    check(part_lock(held, F_OFD_SETLK, F_WRLCK) == 0, "setup", "F_OFD_SETLK");
}
static void unlock_part(void) { part_lock(held, F_OFD_SETLK, F_UNLCK); }
static long take_part(void) { return part_lock(wanted, F_SETLKW, F_WRLCK); }
static long take_part_by_file(void) { return part_lock(wanted, F_OFD_SETLKW, F_WRLCK); }

static void set_word(void) { shared->word = 0; }
static void wake_word(void) {
    shared->word = 1;
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, 0, 0, 0);
}
// A word that has changed already is as good as a wake.
static long or_changed(long result) { return result == -1 && errno == EAGAIN ? 0 : result; }
static long wait_for_word(void) { return or_changed(syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, 0, 0, 0)); }
static long wait_for_word_in_time(void) {
    struct timespec time = {.tv_sec = LONG};
    return or_changed(syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, &time, 0, 0));
}
static long wait_for_word_until(void) {
    struct timespec end = in_seconds(LONG);
    return or_changed(syscall(SYS_futex, &shared->word, FUTEX_WAIT_BITSET, 0, &end, 0, FUTEX_BITSET_MATCH_ANY));
}

static void nothing(void) {}
static long sleep_long(void) {
    struct timespec time = {.tv_sec = LONG}, rest = {0};
    long result = nanosleep(&time, &rest);
    if (result == -1 && errno == EINTR) check(rest.tv_sec >= LONG - 10 && rest.tv_sec <= LONG, "nanosleep", "the rest");
    return result;
}
static long sleep_until(void) {
    struct timespec end = in_seconds(LONG);
    errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0);
    return errno ? -1 : 0;
}
static long just_pause(void) { return pause(); }

static long poll_pipe(void) { return poll(&(struct pollfd){pipe_fds[0], POLLIN, 0}, 1, LONG * 1000); }
static long select_pipe(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipe_fds[0], &set);
    struct timeval time = {.tv_sec = LONG};
    return select(pipe_fds[0] + 1, &set, 0, 0, &time);
}
static void make_epoll(void) {
    make_pipe();
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_fds[0], &event) == 0, "setup", "epoll_ctl");
}
static void close_epoll(void) { close(epoll), close_pipe(); }
static long wait_epoll(void) { return epoll_wait(epoll, &(struct epoll_event){0}, 1, LONG * 1000); }

// With another mask: outside, the signal is blocked.
static sigset_t open_mask;
static long suspend(void) { return sigsuspend(&open_mask); }
static long ppoll_pipe(void) {
    struct timespec time = {.tv_sec = LONG};
    return ppoll(&(struct pollfd){pipe_fds[0], POLLIN, 0}, 1, &time, &open_mask);
}
static long pselect_pipe(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipe_fds[0], &set);
    struct timespec time = {.tv_sec = LONG};
    return pselect(pipe_fds[0] + 1, &set, 0, 0, &time, &open_mask);
}
static long pwait_epoll(void) { return epoll_pwait(epoll, &(struct epoll_event){0}, 1, -1, &open_mask); }
static long wait_for_other_signal(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    struct timespec time = {.tv_sec = LONG};
    // Not the library's: musl's makes the call again.
    return syscall(SYS_rt_sigtimedwait, &set, 0, &time, 8);
}

struct call {
    const char *name;
    void (*begin)(void);
    long (*make)(void);
    void (*end_wait)(void);
    void (*end)(void);
    // As SA_RESTART says; else it always fails.
    int restarts;
    // Nothing but a signal ends it.
    int endless;
    // The signal is blocked outside.
    int masks;
};

static const struct call calls[] = {
    {"read of a pipe", make_pipe, read_pipe, feed_pipe, close_pipe, 1, 0, 0},
    {"readv of a pipe", make_pipe, readv_pipe, feed_pipe, close_pipe, 1, 0, 0},
    {"write to a pipe", fill_pipe, write_pipe, empty_pipe, close_pipe, 1, 0, 0},
    {"read of a socket", make_pair, read_pair, feed_pair, close_pair, 1, 0, 0},
    {"read of an eventfd", make_counter, read_counter, feed_counter, close_counter, 1, 0, 0},
    {"open of a FIFO", make_fifo, open_fifo, open_other_end, remove_fifo, 1, 0, 0},
    {"wait4", make_child, wait_for_child, feed_pipe, close_pipe, 1, 0, 0},
    {"waitid", make_child, waitid_for_child, feed_pipe, close_pipe, 1, 0, 0},
    {"flock", lock_file, take_lock, unlock_file, close_files, 1, 0, 0},
    {"fcntl F_SETLKW", lock_part, take_part, unlock_part, close_files, 1, 0, 0},
    {"fcntl F_OFD_SETLKW", lock_part, take_part_by_file, unlock_part, close_files, 1, 0, 0},
    {"FUTEX_WAIT", set_word, wait_for_word, wake_word, nothing, 1, 0, 0},
    {"FUTEX_WAIT with a timeout", set_word, wait_for_word_in_time, wake_word, nothing, 0, 0, 0},
    {"FUTEX_WAIT_BITSET with a timeout", set_word, wait_for_word_until, wake_word, nothing, 0, 0, 0},
    {"nanosleep", nothing, sleep_long, nothing, nothing, 0, 1, 0},
    {"clock_nanosleep", nothing, sleep_until, nothing, nothing, 0, 1, 0},
    {"pause", nothing, just_pause, nothing, nothing, 0, 1, 0},
    {"poll", make_pipe, poll_pipe, feed_pipe, close_pipe, 0, 0, 0},
    {"select", make_pipe, select_pipe, feed_pipe, close_pipe, 0, 0, 0},
    {"epoll_wait", make_epoll, wait_epoll, feed_pipe, close_epoll, 0, 0, 0},
    {"sigtimedwait", nothing, wait_for_other_signal, nothing, nothing, 0, 1, 0},
    {"sigsuspend", nothing, suspend, nothing, nothing, 0, 1, 1},
    {"ppoll", make_pipe, ppoll_pipe, feed_pipe, close_pipe, 0, 0, 1},
    {"pselect", make_pipe, pselect_pipe, feed_pipe, close_pipe, 0, 0, 1},
    {"epoll_pwait", make_epoll, pwait_epoll, feed_pipe, close_epoll, 0, 0, 1},
};
enum { NR_CALLS = sizeof calls / sizeof *calls };

struct sender {
    const struct call *call;
    pid_t process, thread;
    int expects_failure;
};

// Signals at irregular moments, until the call was hit often enough; then what ends it.
static void *send_signals(void *argument) {
    const struct sender *sender = argument;
    unsigned random = (unsigned)now_ms() | 1;
    for (int nr = 0; !shared->done; nr++) {
        long sent = sender->thread ? syscall(SYS_tgkill, sender->process, sender->thread, SIGUSR1)
                                   : kill(sender->process, SIGUSR1);
        check(sent == 0, sender->call->name, "kill");
        random = random * 1103515245 + 12345;
        if (random >> 16 & 1) rest_us(random >> 20 & 127);
        if (!shared->finished && nr >= LEAST_SIGNALS && (shared->nr_interrupted || !sender->expects_failure)) {
            sender->call->end_wait();
            shared->finished = 1;
        }
        // An endless call needs one more; others are to be left alone.
        if (shared->finished) rest_us(2000);
    }
    return 0;
}

static void make_again_and_again(const struct call *call, int may_fail) {
    for (;;) {
        int before = nr_handled;
        errno = 0;
        long result = call->make();
        if (call->masks) {
            int error = errno;
            sigset_t mask;
            pthread_sigmask(SIG_BLOCK, 0, &mask);
            check(sigismember(&mask, SIGUSR1), call->name, "the mask did not come back");
            errno = error;
        }
        if (result >= 0) break;
        check(errno == EINTR, call->name, "fails");
        check(may_fail, call->name, "was not made again");
        check(nr_handled != before, call->name, "is interrupted, and no handler has run");
        shared->nr_interrupted++;
        if (call->endless && shared->finished) break;
    }
    shared->done = 1;
}

static void interrupt(const struct call *call, int flags, int from_process) {
    int may_fail = !(call->restarts && flags & SA_RESTART);
    handle(SIGUSR1, flags);
    call->begin();
    *shared = (struct shared){0};
    struct sender sender = {call, getpid(), from_process ? 0 : gettid(), may_fail};
    block(SIG_BLOCK, SIGUSR1);
    pthread_t thread;
    pid_t process = 0;
    if (!from_process)
        check(pthread_create(&thread, 0, send_signals, &sender) == 0, call->name, "pthread_create");
    else if ((process = fork()) == 0) {
        send_signals(&sender);
        _exit(0);
    }
    if (!call->masks) block(SIG_UNBLOCK, SIGUSR1);
    make_again_and_again(call, may_fail);
    block(SIG_BLOCK, SIGUSR1);
    int status = 0;
    if (from_process)
        check(waitpid(process, &status, 0) == process && status == 0, call->name, "the sender");
    else
        pthread_join(thread, 0);
    call->end();
    handle(SIGUSR1, 0);
    block(SIG_UNBLOCK, SIGUSR1);
}

// One signal, once the call sleeps: a wake-up that is lost is not made good by the next signal.
enum { PATIENCE_MS = 10000 };
static int sleeps(pid_t thread) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    int fd = open(path, O_RDONLY);
    check(fd >= 0, path, "open");
    long len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = 0;
    char *end = strrchr(text, ')');
    return end && end[1] == ' ' && end[2] == 'S';
}

// Some looks in a row: it may sleep for a moment elsewhere.
static void wait_until_asleep(const struct sender *sender) {
    long start = now_ms();
    for (int nr = 0; nr < 4; nr = sleeps(sender->thread) ? nr + 1 : 0) {
        check(now_ms() - start < PATIENCE_MS, sender->call->name, "does not sleep");
        rest_us(500);
    }
}

static void wait_for_flag(volatile int *flag, const char *name, const char *what) {
    for (long start = now_ms(); !*flag; rest_us(200)) check(now_ms() - start < PATIENCE_MS, name, what);
}

static void *send_one(void *argument) {
    const struct sender *sender = argument;
    const struct call *call = sender->call;
    wait_until_asleep(sender);
    if (sender->process)
        kill(sender->process, SIGUSR1);
    else
        syscall(SYS_tgkill, getpid(), sender->thread, SIGUSR1);
    if (sender->expects_failure) {
        wait_for_flag(&shared->done, call->name, "one signal does not end it");
    } else {
        wait_for_flag(&shared->nr_handled, call->name, "no handler runs while it sleeps");
        wait_until_asleep(sender);
        check(!shared->done, call->name, "was not made again after one signal");
        call->end_wait();
        wait_for_flag(&shared->done, call->name, "does not end after one signal");
    }
    return 0;
}

static void interrupt_once(const struct call *call, int flags, int by_process) {
    int fails = !(call->restarts && flags & SA_RESTART);
    handle(SIGUSR1, flags);
    call->begin();
    *shared = (struct shared){0};
    struct sender sender = {call, by_process ? getpid() : 0, gettid(), fails};
    block(SIG_BLOCK, SIGUSR1);
    pthread_t thread;
    check(pthread_create(&thread, 0, send_one, &sender) == 0, call->name, "pthread_create");
    if (!call->masks) block(SIG_UNBLOCK, SIGUSR1);
    errno = 0;
    long result = call->make();
    int error = errno;
    shared->done = 1;
    check(shared->nr_handled == 1, call->name, "not one handler has run");
    errno = error;
    check(fails ? result == -1 && error == EINTR : result >= 0, call->name, "after one signal");
    pthread_join(thread, 0);
    if (fails) {
        call->end_wait();
        if (call->make == wait_for_child || call->make == waitid_for_child) wait_for_child();
    }
    call->end();
    block(SIG_UNBLOCK, SIGUSR1);
}

// Two threads may take a signal to the process. The one that does not notices nothing.
static const struct call *both;
static void *one_of_two(void *argument) {
    (void)argument;
    while (!shared->finished) {
        int before = nr_handled;
        long result = both->make();
        check(result == -1 && errno == EINTR, both->name, "in one of two threads");
        check(nr_handled != before, both->name, "fails in the thread that took no signal");
        __sync_fetch_and_add(&shared->nr_interrupted, 1);
    }
    __sync_fetch_and_add(&shared->done, 1);
    return 0;
}

static void to_one_of_two(const struct call *call) {
    pthread_t threads[2];
    handle(SIGUSR1, 0);
    *shared = (struct shared){0};
    call->begin();
    both = call;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, one_of_two, 0);
    block(SIG_BLOCK, SIGUSR1);
    for (int nr = 0; shared->done < 2; nr++) {
        kill(getpid(), SIGUSR1);
        rest_us(100);
        if (nr >= LEAST_SIGNALS && shared->nr_interrupted) shared->finished = 1;
        if (shared->finished)
            for (int i = 0; i < 2; i++) pthread_kill(threads[i], SIGUSR1);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    call->end();
    block(SIG_UNBLOCK, SIGUSR1);
}

// A stop and a continuation: most calls go on, and end when they would have ended.
enum { SHORT_MS = 120, MOST_STOPS = 40 };
static long sleep_short(void) {
    struct timespec time = {.tv_nsec = SHORT_MS * 1000000L};
    return nanosleep(&time, 0);
}
static long poll_short(void) { return poll(0, 0, SHORT_MS); }
static long ppoll_short(void) {
    struct timespec time = {.tv_nsec = SHORT_MS * 1000000L};
    sigset_t other_mask = open_mask;
    sigaddset(&other_mask, SIGUSR2);
    return ppoll(0, 0, &time, &other_mask);
}
static long select_short(void) {
    struct timeval time = {.tv_usec = SHORT_MS * 1000L};
    return select(0, 0, 0, 0, &time);
}
static long futex_short(void) {
    struct timespec time = {.tv_nsec = SHORT_MS * 1000000L};
    long result = syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, &time, 0, 0);
    return result == -1 && errno == ETIMEDOUT ? 0 : result;
}

static void stopped(const char *name, long (*make)(void), void (*begin)(void), void (*end)(void), int goes_on) {
    *shared = (struct shared){0};
    begin();
    pid_t pid = fork();
    if (pid == 0) {
        long start = now_ms(), result = make();
        int interrupted = result == -1 && errno == EINTR;
        if (!goes_on) _exit(interrupted ? 0 : 1);
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, 0, &mask);
        if (sigismember(&mask, SIGUSR2)) _exit(4);
        _exit(result != 0 ? 2 : now_ms() - start < SHORT_MS ? 3 : 0);
    }
    // A call that began anew each time would not end before the stops do.
    int status = 0, left = MOST_STOPS;
    for (;;) {
        rest_us(SHORT_MS * 1000 / 3);
        if (left-- == 0) break;
        kill(pid, SIGSTOP);
        check(waitpid(pid, &status, WUNTRACED) == pid, name, "waitpid");
        if (!WIFSTOPPED(status)) break;
        kill(pid, SIGCONT);
    }
    errno = 0;
    check(left > 0, name, "does not end");
    end();
    check(WIFEXITED(status), name, "did not exit");
    check(WEXITSTATUS(status) != 1, name, "goes on after a stop");
    check(WEXITSTATUS(status) != 2, name, "fails after a stop");
    check(WEXITSTATUS(status) != 4, name, "the mask did not come back after a stop");
    check(WEXITSTATUS(status) == 0, name, "ends too early after a stop");
}

// SIGCONT that comes just after SIGSTOP is not lost.
static void stop_and_go(void) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;) shared->word++;
    for (int i = 0; i < TURNS; i++) {
        kill(pid, SIGSTOP);
        if (i & 1) rest_us(i & 63);
        kill(pid, SIGCONT);
        int before = shared->word;
        long start = now_ms();
        while (shared->word == before) check(now_ms() < start + 20000, "stop and go", "stays stopped");
    }
    kill(pid, SIGKILL);
    check(waitpid(pid, 0, 0) == pid, "stop and go", "waitpid");
}

// A caller that has heard of a child's end from wait4 has its SIGCHLD already.
static void children(void) {
    sigset_t set, pending;
    struct timespec no_time = {0};
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    block(SIG_BLOCK, SIGCHLD);
    for (int i = 0; i < TURNS; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        if (i & 1) check(waitpid(pid, 0, 0) == pid, "SIGCHLD", "waitpid");
        else
            while (waitpid(pid, 0, WNOHANG) == 0) {}
        sigpending(&pending);
        check(sigismember(&pending, SIGCHLD), "SIGCHLD", "comes after wait4 has returned");
        check(sigtimedwait(&set, 0, &no_time) == SIGCHLD, "SIGCHLD", "is gone");
    }
    for (int i = 0; i < TURNS; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        check(sigtimedwait(&set, 0, &(struct timespec){.tv_sec = LONG}) == SIGCHLD, "SIGCHLD", "does not come");
        check(waitpid(pid, 0, WNOHANG) == pid, "SIGCHLD", "comes before the child can be waited for");
    }
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < TURNS; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        check(waitpid(pid, 0, 0) == -1 && errno == ECHILD, "SIGCHLD", "is ignored, but wait4 tells");
    }
    signal(SIGCHLD, SIG_DFL);
    block(SIG_UNBLOCK, SIGCHLD);
}

// A timer that was taken back in time sends nothing.
static void alarms(void) {
    sigset_t set, pending;
    struct timespec no_time = {0};
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    block(SIG_BLOCK, SIGALRM);
    for (int i = 0; i < TURNS; i++) {
        struct itimerval time = {.it_value.tv_usec = 200}, none = {0}, left;
        setitimer(ITIMER_REAL, &time, 0);
        rest_us(i % 100);
        setitimer(ITIMER_REAL, &none, &left);
        int in_time = left.it_value.tv_sec || left.it_value.tv_usec;
        if (in_time && i & 1) rest_us(300);
        sigpending(&pending);
        if (in_time) check(!sigismember(&pending, SIGALRM), "alarms", "one came that was taken back");
        sigtimedwait(&set, 0, &no_time);
    }
    block(SIG_UNBLOCK, SIGALRM);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "setup", "mmap");
    pthread_sigmask(SIG_BLOCK, 0, &open_mask);
    for (int i = 0; i < NR_CALLS; i++) {
        for (int way = 0; way < 4; way++) interrupt(&calls[i], way & 1 ? SA_RESTART : 0, way & 2);
        printf("ok %s\n", calls[i].name);
    }
    for (int i = 0; i < NR_CALLS; i++)
        for (int way = 0; way < 4; way++) interrupt_once(&calls[i], way & 1 ? SA_RESTART : 0, way & 2);
    puts("ok one signal");
    // Linux may end epoll_wait and sigtimedwait in either thread; the others have masks of their own, or end.
    for (int i = 0; i < NR_CALLS; i++) {
        const struct call *call = &calls[i];
        int is_wait = call->make == wait_for_child || call->make == waitid_for_child;
        int is_of_one = call->make == wait_epoll || call->make == wait_for_other_signal || call->masks || is_wait;
        if (!is_of_one && call->make != write_pipe) to_one_of_two(call);
    }
    puts("ok one of two threads");
    stopped("nanosleep", sleep_short, nothing, nothing, 1);
    stopped("poll", poll_short, nothing, nothing, 1);
    stopped("ppoll", ppoll_short, nothing, nothing, 1);
    stopped("select", select_short, nothing, nothing, 1);
    stopped("FUTEX_WAIT", futex_short, set_word, nothing, 1);
    stopped("epoll_wait", wait_epoll, make_epoll, close_epoll, 0);
    stopped("sigtimedwait", wait_for_other_signal, nothing, nothing, 0);
    check(syscall(SYS_restart_syscall) == -1 && errno == EINTR, "restart_syscall", "nothing to go on with");
    puts("ok stopped and continued");
    stop_and_go();
    puts("ok stop and go");
    children();
    puts("ok children");
    alarms();
    puts("ok alarms");
    puts("done");
    return 0;
}
