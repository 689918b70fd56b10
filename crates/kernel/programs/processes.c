// Processes: fork, vfork, execve, wait, groups, signals between them. Prints one line per part; on Linux
// the lines are the same.
#define _GNU_SOURCE
#include "parts.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *self;
static volatile sig_atomic_t nr_children, nr_alarms, last_pid, last_status, last_code;

static void on_child(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    nr_children++;
    last_pid = info->si_pid, last_status = info->si_status, last_code = info->si_code;
}

static void on_alarm(int signal) { (void)signal, nr_alarms++; }

static void statuses(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(42);
    check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42, "exit status");
    pid = fork();
    if (pid == 0) {
        raise(SIGTERM);
        _exit(0);
    }
    check(wait(&status) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "killed by a signal");
    check(wait(&status) == -1 && errno == ECHILD, "no child left");
    pid = fork();
    if (pid == 0) pause();
    check(waitpid(pid, &status, WNOHANG) == 0, "WNOHANG finds nothing");
    kill(pid, SIGKILL);
    siginfo_t info = {0};
    check(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0 && info.si_pid == pid && info.si_code == CLD_KILLED &&
              info.si_status == SIGKILL, "waitid tells and keeps");
    check(waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL, "then the child is taken");
    check(waitpid(12345, &status, 0) == -1 && errno == ECHILD, "a stranger is no child");
    check(waitpid(-1, &status, 0x100) == -1 && errno == EINVAL, "unknown options");
}

static void memory(void) {
    enum { PAGES = 512 };
    char *private = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGES; i++) private[i * 4096] = (char)i;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < PAGES; i++) {
            if (private[i * 4096] != (char)i) _exit(1);
            private[i * 4096] = (char)~i;
        }
        shared[0] = 77;
        _exit(0);
    }
    for (int i = 0; i < PAGES; i += 2) private[i * 4096] = (char)(i + 1);
    check(waitpid(pid, &status, 0) == pid && status == 0, "the child saw what was there at fork");
    int ok = shared[0] == 77;
    for (int i = 0; i < PAGES; i++) ok &= private[i * 4096] == (char)(i + (i % 2 == 0));
    check(ok, "and neither saw the other's writes");
    munmap(private, PAGES * 4096), munmap(shared, 4096);
}

static void programs(void) {
    int status, ends[2];
    char text[64] = {0};
    check(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        char *args[] = {"called-so", "say", "a b", 0};
        char *env[] = {"KEY=value", 0};
        execve(self, args, env);
        _exit(127);
    }
    close(ends[1]);
    for (size_t n = 0; n < sizeof text - 1;) {
        ssize_t part = read(ends[0], text + n, sizeof text - 1 - n);
        if (part <= 0) break;
        n += (size_t)part;
    }
    close(ends[0]);
    check(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3, "execve, exit status");
    check(strcmp(text, "called-so say a b value\n") == 0, "arguments and environment");
    char *args[] = {"x", "exit", "9", 0};
    pid = vfork();
    if (pid == 0) {
        execve(self, args, environ);
        _exit(126);
    }
    check(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9, "vfork and execve");
    check(posix_spawn(&pid, self, 0, 0, args, environ) == 0, "posix_spawn");
    check(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9, "and its status");
    check(posix_spawn(&pid, "/no/such/program", 0, 0, args, environ) == ENOENT, "posix_spawn of nothing");
    check(execve("/no/such/program", args, environ) == -1 && errno == ENOENT, "execve of nothing");
    int fd = open(self, O_RDONLY);
    pid = fork();
    if (pid == 0) {
        syscall(SYS_execveat, fd, "", args, environ, AT_EMPTY_PATH);
        _exit(127);
    }
    check(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9, "execveat of an open file");
    check(syscall(SYS_execveat, fd, "x", args, environ, 0) == -1 && errno == ENOTDIR, "execveat in what is no directory");
    check(syscall(SYS_execveat, fd, "", args, environ, 0) == -1 && errno == ENOENT, "execveat of no name");
    close(fd);
    check(syscall(SYS_execveat, fd, "", args, environ, AT_EMPTY_PATH) == -1 && errno == EBADF, "execveat of a bad number");
    char **volatile wild = (char **)8;
    check(execve(self, wild, environ) == -1 && errno == EFAULT, "execve with wild arguments");
}

static void signals(void) {
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGCHLD, &action, 0);
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(5);
    check(waitpid(pid, &status, 0) == pid, "wait is restarted");
    check(nr_children == 1 && last_pid == pid && last_status == 5 && last_code == CLD_EXITED, "SIGCHLD says who and how");
    signal(SIGCHLD, SIG_IGN);
    pid = fork();
    if (pid == 0) _exit(5);
    check(waitpid(pid, &status, 0) == -1 && errno == ECHILD, "ignored children are not kept");
    signal(SIGCHLD, SIG_DFL);

    pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    kill(pid, SIGSTOP);
    check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "stopped");
    kill(pid, SIGCONT);
    check(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status), "continued");
    kill(pid, SIGKILL);
    check(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "killed");

    struct sigaction wake = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &wake, 0);
    alarm(1);
    check(pause() == -1 && errno == EINTR && nr_alarms == 1, "alarm");
    struct itimerval timer = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &timer, 0);
    while (nr_alarms < 5) pause();
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, 0);
    check(nr_alarms >= 5, "interval timer");

    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    union sigval value = {.sival_int = 4711};
    sigqueue(getpid(), SIGUSR1, value);
    siginfo_t info;
    check(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_value.sival_int == 4711, "sigwaitinfo");
    struct timespec soon = {0, 1000000};
    check(sigtimedwait(&set, &info, &soon) == -1 && errno == EAGAIN, "sigtimedwait");
}

static void groups(void) {
    int status;
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        for (int i = 0; i < 3; i++)
            if (fork() == 0)
                for (;;) pause();
        for (int i = 0; i < 3; i++) {
            if (wait(&status) < 0 || !WIFSIGNALED(status)) _exit(1);
        }
        _exit(0);
    }
    setpgid(leader, leader);
    check(getpgid(leader) == leader, "a group of its own");
    usleep(20000);
    check(kill(-leader, 0) == 0, "the group is there");
    check(waitpid(leader, &status, WNOHANG) == 0, "and lives");
    kill(-leader, SIGKILL);
    check(waitpid(-leader, &status, 0) == leader && WIFSIGNALED(status), "the group is killed");
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t late = fork();
    if (late == 0) {
        char *args[] = {"x", "pause", "0", 0};
        close(ends[0]);
        execve(self, args, environ);
        _exit(127);
    }
    close(ends[1]);
    check(read(ends[0], &status, 1) == 0, "the child runs its program");
    close(ends[0]);
    check(setpgid(late, late) == -1 && errno == EACCES, "too late for another group");
    kill(late, SIGKILL), waitpid(late, &status, 0);
    check(setsid() == -1 || getsid(0) == getpid(), "session");
}

static void orphans(void) {
    int ends[2], status;
    check(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            usleep(20000);
            pid_t parent = getppid();
            write(ends[1], &parent, sizeof parent);
            _exit(0);
        }
        _exit(0);
    }
    waitpid(pid, &status, 0);
    close(ends[1]);
    pid_t parent;
    check(read(ends[0], &parent, sizeof parent) == sizeof parent && parent != pid, "an orphan has another parent");
    close(ends[0]);
}

// Linux adds resident pages to a process's count in batches of each CPU, so that the peak lacks what was not added.
#define LATE_KIB 2048

static void usage(void) {
    struct rusage usage;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        char *p = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 8 << 20);
        _exit(0);
    }
    check(wait4(pid, &status, 0, &usage) == pid, "wait4");
    check(usage.ru_minflt >= 2048 && usage.ru_maxrss >= 8192 - LATE_KIB, "faults and peak size of a child");
    getrusage(RUSAGE_CHILDREN, &usage);
    check(usage.ru_minflt >= 2048 && usage.ru_maxrss >= 8192 - LATE_KIB, "and of all children");
}

static int thread_main(void *argument) {
    (void)argument;
    for (;;) pause();
    return 0;
}

static void exec_ends_threads(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        for (int i = 1; i <= 4; i++) clone(thread_main, stack + i * 16384, flags, 0);
        char *args[] = {"x", "exit", "11", 0};
        execve(self, args, environ);
        _exit(1);
    }
    check(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 11, "execve ends the other threads");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "say") == 0) {
        printf("%s %s %s %s\n", argv[0], argv[1], argv[2], getenv("KEY"));
        return 3;
    }
    if (argc == 3 && strcmp(argv[1], "pause") == 0)
        for (;;) pause();
    if (argc == 3 && strcmp(argv[1], "exit") == 0) return atoi(argv[2]);
    self = argv[0];
    statuses();
    memory();
    programs();
    signals();
    groups();
    orphans();
    usage();
    exec_ends_threads();
    puts("done");
    return 0;
}
