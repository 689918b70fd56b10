/* Questions about calls that are not about memory: files that are run or written, attributes, other processes, limits, and
   what /proc says and takes. "QUESTION: ANSWER", one a line. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/xattr.h>

static char program[] = "/tmp/othercalls-program", script[] = "/tmp/othercalls-script", link_to[] = "/tmp/othercalls-link";
static char file[] = "/tmp/othercalls-file";

/* A copy of this program, or a script that it interprets. */
static void make_program(void) {
    static char bytes[65536];
    int from = open("/proc/self/exe", O_RDONLY), to = open(program, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    for (long nr; (nr = read(from, bytes, sizeof bytes)) > 0;)
        write(to, bytes, nr);
    close(from), close(to);
    to = open(script, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    dprintf(to, "#!%s\n", program);
    close(to);
}

/* Runs it in a child: -1 with its errno, or 0. `empty` runs an open file. */
static int run(const char *path, const char *argument, int empty) {
    char *args[] = { "given", (char *)argument, 0 }, *env[] = { 0 };
    int status;
    pid_t pid = child();
    if (pid == 0) {
        if (empty < 0)
            execve(path, args, env);
        else
            sys(SYS_execveat, empty, "", args, env, AT_EMPTY_PATH);
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

/* A copy that runs until it is killed; it has begun when this returns. */
static pid_t begin(void) {
    int ends[2];
    char byte;
    pipe(ends);
    pid_t pid = child();
    if (pid == 0) {
        dup2(ends[1], 9);
        execl(program, program, "wait", (char *)0);
        _exit(1);
    }
    close(ends[1]);
    read(ends[0], &byte, 1);
    close(ends[0]);
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, 0, 0);
}

static int closed(int number) {
    if (number >= 0)
        close(number);
    return number < 0 ? -1 : 0;
}

static void busy_files(void) {
    make_program();
    int writer = open(program, O_WRONLY), reader = open(program, O_RDONLY), copy = dup(writer);
    ASK(run(program, "nothing", -1), "execve while open for writing");
    ASK(run(script, "nothing", -1), "execve of a script whose interpreter is open for writing");
    ASK(run(0, "nothing", reader), "execveat while open for writing");
    close(writer);
    ASK(run(program, "nothing", -1), "execve while a copy of the number is open");
    close(copy);
    ASK(run(program, "nothing", -1), "execve while open for reading");
    close(reader);
    writer = open(script, O_RDWR);
    ASK(run(script, "nothing", -1), "execve of a script that is open for writing");
    close(writer);
    ASK(run(script, "nothing", -1), "execve of a script");
    pid_t runs = begin();
    ASK(closed(open(program, O_WRONLY)), "open for writing of a program that runs");
    ASK(closed(open(program, O_RDWR | O_TRUNC)), "open with O_TRUNC of a program that runs");
    ASK(closed(open(program, O_RDONLY | O_TRUNC)), "open for reading with O_TRUNC of a program that runs");
    ASK(closed(open(program, O_RDONLY)), "open for reading of a program that runs");
    ASK(truncate(program, 0), "truncate of a program that runs");
    ASK(closed(open(script, O_WRONLY)), "open for writing of a script");
    symlink(program, link_to);
    ASK(closed(open(link_to, O_WRONLY)), "open for writing by a link of a program that runs");
    char moved[64];
    snprintf(moved, sizeof moved, "%s-moved", program);
    rename(program, moved);
    ASK(closed(open(moved, O_WRONLY)), "open for writing of a program that runs, renamed");
    make_program();
    ASK(closed(open(program, O_WRONLY)), "open for writing of another file in its place");
    rename(moved, program);
    pid_t second = begin();
    end(runs);
    ASK(closed(open(program, O_WRONLY)), "open for writing while one of two runs");
    end(second);
    ASK(closed(open(program, O_WRONLY)), "open for writing after the end");
    int memory = memfd_create("program", 0), from = open(program, O_RDONLY);
    static char bytes[65536];
    for (long nr; (nr = read(from, bytes, sizeof bytes)) > 0;)
        write(memory, bytes, nr);
    close(from);
    ASK(run(0, "nothing", memory), "execveat of a memfd");
    close(memory);
}

/* In a program of its own: its child runs the program on when this process has ended, and tells who it is. */
static int forked(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pid = getpid();
        write(9, &pid, sizeof pid);
        pause();
    }
    return 0;
}

static void forked_child_runs_on(void) {
    int ends[2];
    pid_t pid = 0;
    pipe(ends);
    pid_t parent = child();
    if (parent == 0) {
        dup2(ends[1], 9);
        execl(program, program, "fork", (char *)0);
        _exit(1);
    }
    close(ends[1]);
    waitpid(parent, 0, 0);
    read(ends[0], &pid, sizeof pid);
    ASK(closed(open(program, O_WRONLY)), "open for writing while a forked child runs it, and its parent has ended");
    if (pid > 0)
        kill(pid, SIGKILL);
    close(ends[0]);
}

static void say_name(const char *how) {
    char name[32] = { 0 };
    int number = open("/proc/self/comm", O_RDONLY);
    read(number, name, sizeof name - 1);
    printf("name of %s: %s", how, name);
}

static void names(void) {
    run(program, "name", -1);
    run(script, "name", -1);
    run(link_to, "name", -1);
    int number = open(program, O_RDONLY);
    run(0, "name", number);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", number);
    run(path, "name", -1);
    close(number);
}

static void attributes(const char *path, const char *what, int sets) {
    static const char *const all[] = { "user.a", "trusted.a", "security.selinux", "system.posix_acl_access",
                                       "system.x", "other", "", "user." };
    static char value[70000];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ASK(lgetxattr(path, all[i], value, 100), "lgetxattr %s %s", what, all[i]);
        ASK(lremovexattr(path, all[i]), "lremovexattr %s %s", what, all[i]);
        if (sets && !strstr(all[i], "posix"))
            ASK(lsetxattr(path, all[i], "x", 1, 0), "lsetxattr %s %s", what, all[i]);
    }
    ASK(getxattr(path, "user.a", 0, 0), "getxattr %s", what);
    ASK(llistxattr(path, value, 100), "llistxattr %s", what);
    ASK(listxattr(path, value, 100), "listxattr %s", what);
    ASK(lsetxattr(path, "user.a", "x", 1, 8), "lsetxattr %s flag 8", what);
    ASK(lsetxattr(path, "user.a", value, sizeof value, 0), "lsetxattr %s too large", what);
}

static void all_attributes(void) {
    static char name[300], value[100];
    memset(name, 'a', sizeof name - 1);
    memcpy(name, "user.", 5);
    int number = open(file, O_CREAT | O_RDWR, 0600), place = open(file, O_PATH), ends[2];
    pipe(ends);
    attributes(file, "of a file", 0);
    attributes("/tmp", "of a folder", 0);
    attributes("/proc/self/maps", "of /proc", 1);
    attributes("/proc/self", "of a link of /proc", 1);
    attributes("/no/such", "of nothing", 1);
    ASK(lgetxattr(file, name, value, 100), "lgetxattr of a long name");
    ASK(lgetxattr(file, (char *)1, value, 100), "lgetxattr of a bad name");
    ASK(lgetxattr((char *)1, "user.a", value, 100), "lgetxattr of a bad path");
    ASK(fgetxattr(number, "user.a", value, 100), "fgetxattr");
    ASK(fgetxattr(place, "user.a", value, 100), "fgetxattr of a place");
    ASK(fgetxattr(99, "user.a", value, 100), "fgetxattr of no file");
    ASK(fgetxattr(ends[0], "user.a", value, 100), "fgetxattr of a pipe");
    ASK(flistxattr(number, value, 100), "flistxattr");
    ASK(flistxattr(place, value, 100), "flistxattr of a place");
    ASK(flistxattr(ends[0], value, 100), "flistxattr of a pipe");
    ASK(fremovexattr(number, "user.a"), "fremovexattr");
    ASK(fsetxattr(ends[0], "user.a", "x", 1, 0), "fsetxattr of a pipe");
    ASK(fsetxattr(99, "user.a", "x", 1, 0), "fsetxattr of no file");
    ASK(lsetxattr(file, "user.a", (char *)1, 10, 0), "lsetxattr of a bad value");
    ASK(lsetxattr("/proc/self/maps", "user.a", (char *)1, 10, 0), "lsetxattr of a bad value in /proc");
    ASK(lsetxattr("/no/such", "user.a", (char *)1, 10, 0), "lsetxattr of a bad value of nothing");
    ASK(lsetxattr("/no/such", "user.a", (char *)1, 0, 0), "lsetxattr of a bad value without bytes");
    ASK(fsetxattr(99, "user.a", (char *)1, 10, 0), "fsetxattr of a bad value of no file");
    ASK(fsetxattr(99, "user.a", (char *)1, 70000, 0), "fsetxattr of a bad value that is too large");
    close(number), close(place), close(ends[0]), close(ends[1]);
}

static void affinity(void) {
    unsigned long all, mask = 0, one = 1, none = 0;
    sys(SYS_sched_getaffinity, 0, sizeof all, &all);
    pid_t pid = child();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    ASK(sys(SYS_sched_getaffinity, getpid(), 8, &mask), "sched_getaffinity of this process");
    ASK(sys(SYS_sched_getaffinity, pid, 8, &mask), "sched_getaffinity of a child");
    ASK(sys(SYS_sched_getaffinity, 1, 8, &mask), "sched_getaffinity of process 1");
    ASK(sys(SYS_sched_setaffinity, pid, 8, &none), "sched_setaffinity of a child to nothing");
    ASK(sys(SYS_sched_setaffinity, pid, 8, &one), "sched_setaffinity of a child");
    sys(SYS_sched_getaffinity, pid, 8, &mask);
    printf("the child's CPUs: %lx\n", mask);
    sys(SYS_sched_getaffinity, 0, 8, &mask);
    printf("this process's are as before: %d\n", mask == all);
    ASK(sys(SYS_sched_setaffinity, 0x3fffff, 8, &one), "sched_setaffinity of nobody");
    ASK(sys(SYS_sched_setaffinity, 0x3fffff, 8, &none), "sched_setaffinity of nobody to nothing");
    ASK(sys(SYS_sched_getaffinity, 0x3fffff, 8, &mask), "sched_getaffinity of nobody");
    ASK(sys(SYS_sched_getaffinity, -1, 8, &mask), "sched_getaffinity of -1");
    if (child() == 0) {
        setresuid(1000, 1000, 1000);
        ASK(sys(SYS_sched_getaffinity, pid, 8, &mask), "sched_getaffinity of root's");
        ASK(sys(SYS_sched_setaffinity, pid, 8, &one), "sched_setaffinity of root's");
        ASK(sys(SYS_sched_setaffinity, pid, 8, &none), "sched_setaffinity of root's to nothing");
        ASK(sys(SYS_sched_setaffinity, getpid(), 8, &one), "sched_setaffinity of a user's own");
        finish();
    }
    wait_for_child();
    end(pid);
}

/* The number behind `name` in a file of /proc. */
static unsigned long number_in(const char *path, const char *name) {
    static char text[8192];
    int number = open(path, O_RDONLY);
    long nr = read(number, text, sizeof text - 1);
    close(number);
    text[nr > 0 ? nr : 0] = 0;
    char *at = strstr(text, name);
    return at ? strtoul(at + strlen(name), 0, 10) : -1ul;
}

static void numbers(void) {
    struct sysinfo info;
    sysinfo(&info);
    printf("totalram is MemTotal: %d\n", info.totalram / 1024 * info.mem_unit == number_in("/proc/meminfo", "MemTotal:"));
    unsigned long most = number_in("/proc/sys/fs/nr_open", "");
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    static const struct {
        unsigned long soft, more;
        const char *what;
    } tries[] = { { 64, 1, "above nr_open" }, { 64, -1ul, "without end" } };
    for (int i = 0; i < 2; i++) {
        limit.rlim_cur = tries[i].soft;
        limit.rlim_max = tries[i].more == -1ul ? -1ul : most + tries[i].more;
        ASK(sys(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0), "RLIMIT_NOFILE %s", tries[i].what);
    }
    limit.rlim_cur = most + 2, limit.rlim_max = most + 1;
    ASK(sys(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0), "RLIMIT_NOFILE above nr_open and inverted");
    setrlimit(RLIMIT_NOFILE, &before);
}

static void line_of_status(const char *name) {
    static char text[8192];
    int number = open("/proc/self/status", O_RDONLY);
    long nr = read(number, text, sizeof text - 1);
    close(number);
    text[nr > 0 ? nr : 0] = 0;
    char *at = strstr(text, name), *rest = at ? strchr(at, '\n') : 0;
    if (rest)
        *rest = 0;
    printf("line of status: [%s]\n", at ? at : "none");
}

static void groups(void) {
    gid_t four[] = { 0, 1, 2, 3 };
    ASK(setgroups(0, four), "setgroups of none");
    line_of_status("Groups:");
    ASK(setgroups(4, four), "setgroups");
    line_of_status("Groups:");
    line_of_status("Kthread:");
}

static void read_only_files(void) {
    static const char *const all[] = {
        "/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/version", "/proc/sys/fs/file-nr",
        "/proc/meminfo",           "/proc/stat",                 "/proc/version",            "/proc/uptime",
        "/proc/cmdline",           "/proc/filesystems",          "/proc/self/maps",          "/proc/self/status",
        "/proc/self/stat",         "/proc/self/cmdline",         "/proc/self/environ",       "/proc/mounts",
        "/proc/self/pagemap",      "/sys/devices/system/cpu/online"
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int number;
        ASK(number = open(all[i], O_WRONLY), "open for writing of %s", all[i]);
        if (number >= 0)
            ASK(write(number, "1", 1), "write to %s", all[i]);
        close(number);
        ASK(closed(open(all[i], O_RDWR)), "open for both of %s", all[i]);
    }
}

static int *word;
static pid_t sleeper;

/* Ends once the other thread sleeps, with a word to clear that it may not write. */
static void *end_with_a_word(void *argument) {
    char path[64], state = 0;
    sys(SYS_set_tid_address, word);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", sleeper);
    while (state != 'S') {
        FILE *stat = fopen(path, "r");
        fscanf(stat, "%*d (%*[^)]) %c", &state);
        fclose(stat);
    }
    sys(SYS_exit, 0);
    return argument;
}

/* Whoever waits for the end of a thread is woken whether its word can be cleared or not. */
static void last_word(void) {
    struct timespec patience = { 60, 0 };
    pthread_t thread;
    int memory = memfd_create("word", 0);
    ftruncate(memory, 4096);
    word = mmap(0, 4096, PROT_READ, MAP_SHARED, memory, 0);
    sleeper = sys(SYS_gettid);
    pthread_create(&thread, 0, end_with_a_word, 0);
    ASK(sys(SYS_futex, word, 0, 0, &patience, 0, 0), "wait for a thread that cannot clear its word");
    printf("the word: %d\n", *word);
    munmap(word, 4096), close(memory);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        const char *wanted = argv[argc - 1];
        if (!strcmp(wanted, "wait")) {
            write(9, "", 1);
            pause();
        }
        if (!strcmp(wanted, "name"))
            say_name(argc > 2 ? "a script's interpreter" : "a program"), finish();
        return strcmp(wanted, "fork") ? 0 : forked();
    }
    busy_files();
    forked_child_runs_on();
    names();
    all_attributes();
    affinity();
    numbers();
    groups();
    read_only_files();
    last_word();
    unlink(program), unlink(script), unlink(link_to), unlink(file);
    puts("done");
    return 0;
}
