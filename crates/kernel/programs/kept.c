/* Values that a process sets about itself are checked as by Linux, kept, and told back. Prints "ok WHAT" for each
   part. Parts that only root can do say the same where the caller is not root. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))
#define NOWHERE ((void *)16)

enum { NO_PID = 0x3ffffff0 };
/* The version of capget(2)'s head; musl has no header for it. */
static const unsigned v3 = 0x20080522;

static void in_child(void (*part)(void)) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        part();
        exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* Runs this program again; `main` does the part of that name alone. */
static void run_again(char *part) {
    char *arguments[] = { "kept", part, 0 };
    execv("/proc/self/exe", arguments);
    CHECK(!"execv");
}

/* From here on the process is no longer root. */
static void become_a_user(void) {
    if (geteuid() == 0)
        CHECK(syscall(SYS_setresuid, 7, 7, 7) == 0);
}

/* A name is read up to its 15th byte, whatever follows. */
static void names(void) {
    enum { STRETCH = 1 << 20, NR_STRETCHES = 256 };
    char name[16] = "";
    int fd = syscall(SYS_memfd_create, "text", 0);
    CHECK(fd >= 0 && ftruncate(fd, STRETCH) == 0);
    char *text = mmap(0, NR_STRETCHES * (size_t)STRETCH + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(text != MAP_FAILED);
    for (long i = 0; i < NR_STRETCHES; i++)
        CHECK(mmap(text + i * STRETCH, STRETCH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == text + i * STRETCH);
    memset(text, 'x', STRETCH);
    char *end = text + NR_STRETCHES * (size_t)STRETCH;
    CHECK(prctl(PR_SET_NAME, text) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xxxxxxxxxxxxxxx") == 0);
    memcpy(text, "abcdefghijklmnopq", 17);
    CHECK(prctl(PR_SET_NAME, text) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "abcdefghijklmno") == 0);
    CHECK(prctl(PR_SET_NAME, end - 15) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xxxxxxxxxxxxxxx") == 0);
    CHECK(FAILS(prctl(PR_SET_NAME, end - 14), EFAULT));
    end[-1] = 0;
    CHECK(prctl(PR_SET_NAME, end - 3) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xx") == 0);
    CHECK(FAILS(prctl(PR_SET_NAME, 1), EFAULT));
    CHECK(munmap(text, NR_STRETCHES * (size_t)STRETCH + PAGE) == 0 && close(fd) == 0);
}

static void groups_are_inherited(void) {
    unsigned ids[3] = { 0 };
    CHECK(syscall(SYS_getgroups, 3, ids) == 3 && ids[0] == 1 && ids[1] == 5 && ids[2] == 9);
    become_a_user();
    CHECK(FAILS(syscall(SYS_setgroups, 1, ids), EPERM) && syscall(SYS_getgroups, 0, 0) == 3);
}

static void groups(void) {
    unsigned ids[4] = { 9, 1, 5, 77 };
    CHECK(FAILS(syscall(SYS_getgroups, -1, ids), EINVAL));
    if (syscall(SYS_setgroups, 3, ids) != 0) {
        CHECK(errno == EPERM);
        return;
    }
    CHECK(syscall(SYS_getgroups, 0, 0) == 3 && syscall(SYS_getgroups, 4, ids) == 3);
    CHECK(ids[0] == 1 && ids[1] == 5 && ids[2] == 9 && ids[3] == 77);
    CHECK(FAILS(syscall(SYS_getgroups, 2, ids), EINVAL) && FAILS(syscall(SYS_getgroups, 3, NOWHERE), EFAULT));
    CHECK(FAILS(syscall(SYS_setgroups, 2, NOWHERE), EFAULT) && FAILS(syscall(SYS_setgroups, 65537, ids), EINVAL));
    ids[1] = -1;
    CHECK(FAILS(syscall(SYS_setgroups, 2, ids), EINVAL) && FAILS(syscall(SYS_setgroups, -1, ids), EINVAL));
    in_child(groups_are_inherited);
    CHECK(syscall(SYS_setgroups, 0, 0) == 0 && syscall(SYS_getgroups, 3, ids) == 0);
}

static void after_exec(void) {
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    CHECK(syscall(SYS_getpriority, PRIO_PROCESS, 0) == 14);
}

static void flags_of_a_child(void) {
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(syscall(SYS_getpriority, PRIO_PROCESS, 0) == 15 && syscall(SYS_setpriority, PRIO_PROCESS, 0, 6) == 0);
    run_again("after_exec");
}

static void flags(void) {
    CHECK(FAILS(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL) && FAILS(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0), EINVAL));
    CHECK(FAILS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 1), EINVAL) && FAILS(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0), EINVAL));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(FAILS(prctl(PR_SET_DUMPABLE, 2, 0, 0, 0), EINVAL) && FAILS(prctl(PR_SET_DUMPABLE, -1, 0, 0, 0), EINVAL));
    CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 5) == 0 && syscall(SYS_getpriority, PRIO_PROCESS, 0) == 15);
    in_child(flags_of_a_child);
}

/* A nice value is told as 20 less itself. */
static void priorities(void) {
    const struct rlimit none = { 0, 0 };
    CHECK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 100) == 0 && syscall(SYS_getpriority, PRIO_PROCESS, getpid()) == 1);
    CHECK(FAILS(syscall(SYS_setpriority, 3, 0, 5), EINVAL) && FAILS(syscall(SYS_getpriority, 3, 0), EINVAL));
    CHECK(FAILS(syscall(SYS_setpriority, PRIO_PROCESS, NO_PID, 5), ESRCH));
    CHECK(FAILS(syscall(SYS_getpriority, PRIO_PGRP, NO_PID), ESRCH));
    CHECK(setpgid(0, 0) == 0 && syscall(SYS_getpriority, PRIO_PGRP, 0) == 1);
    CHECK(setrlimit(RLIMIT_NICE, &none) == 0);
    int is_user = geteuid() != 0;
    become_a_user();
    CHECK(FAILS(syscall(SYS_setpriority, PRIO_PROCESS, 0, 3), EACCES) && syscall(SYS_setpriority, PRIO_PROCESS, 0, 19) == 0);
    CHECK(is_user || FAILS(syscall(SYS_setpriority, PRIO_PROCESS, getppid(), 19), EPERM));
}

/* A number of a thread names its process, no matter which process asks. */
static void *of_a_thread(void *leader) {
    int got = 5, zero = 0, tid = syscall(SYS_gettid);
    unsigned head[2] = { v3, tid }, data[6];
    struct rlimit limit;
    CHECK(tid != *(int *)leader && syscall(SYS_sched_getscheduler, tid) == 0);
    CHECK(syscall(SYS_sched_getparam, tid, &got) == 0 && got == 0 && syscall(SYS_sched_setparam, tid, &zero) == 0);
    CHECK(syscall(SYS_capget, head, data) == 0 && syscall(SYS_prlimit64, tid, RLIMIT_NOFILE, 0, &limit) == 0);
    CHECK(syscall(SYS_getpriority, PRIO_PROCESS, tid) > 0);
    return 0;
}

static void threads(void) {
    pthread_t thread;
    int leader = getpid();
    CHECK(pthread_create(&thread, 0, of_a_thread, &leader) == 0 && pthread_join(thread, 0) == 0);
}

static int policy_of_parent;

static void policy_of_a_child(void) {
    CHECK(syscall(SYS_sched_getscheduler, 0) == policy_of_parent);
}

static void policies(void) {
    enum { OTHER, FIFO, RR, BATCH, RESET = 0x40000000 };
    int zero = 0, one = 1, hundred = 100, got = 5;
    CHECK(syscall(SYS_sched_setscheduler, 0, BATCH, &zero) == 0 && syscall(SYS_sched_getscheduler, getpid()) == BATCH);
    CHECK(syscall(SYS_sched_setparam, 0, &zero) == 0 && syscall(SYS_sched_getscheduler, 0) == BATCH);
    CHECK(FAILS(syscall(SYS_sched_setparam, 0, &one), EINVAL) && FAILS(syscall(SYS_sched_setscheduler, 0, OTHER, &one), EINVAL));
    CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, 4, &zero), EINVAL) && FAILS(syscall(SYS_sched_setscheduler, 0, -1, &zero), EINVAL));
    CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, OTHER, 0), EINVAL) && FAILS(syscall(SYS_sched_setparam, -1, &zero), EINVAL));
    CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, OTHER, NOWHERE), EFAULT) && FAILS(syscall(SYS_sched_setparam, 0, 0), EINVAL));
    CHECK(FAILS(syscall(SYS_sched_setscheduler, NO_PID, OTHER, &zero), ESRCH) && FAILS(syscall(SYS_sched_getscheduler, NO_PID), ESRCH));
    CHECK(FAILS(syscall(SYS_sched_getscheduler, -1), EINVAL) && FAILS(syscall(SYS_sched_getparam, 0, 0), EINVAL));
    CHECK(syscall(SYS_sched_getparam, 0, &got) == 0 && got == 0 && FAILS(syscall(SYS_sched_getparam, NO_PID, &got), ESRCH));
    for (int policy = FIFO; policy <= RR; policy++) {
        CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, policy, &zero), EINVAL));
        CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, policy, &hundred), EINVAL));
        /* A policy that was refused is not reported. */
        int granted = syscall(SYS_sched_setscheduler, 0, policy, &one) == 0;
        CHECK(granted || errno == EPERM);
        CHECK(syscall(SYS_sched_getscheduler, 0) == (granted ? policy : BATCH));
        CHECK(syscall(SYS_sched_setscheduler, 0, BATCH, &zero) == 0);
    }
    policy_of_parent = BATCH;
    CHECK(syscall(SYS_sched_setscheduler, 0, BATCH | RESET, &zero) == 0 && syscall(SYS_sched_getscheduler, 0) == (BATCH | RESET));
    in_child(policy_of_a_child);
    become_a_user();
    CHECK(FAILS(syscall(SYS_sched_setscheduler, 0, BATCH, &zero), EPERM));
}

static void personality_is_inherited(void) {
    CHECK(syscall(SYS_personality, -1) == 0x40000);
}

static void personalities(void) {
    CHECK(syscall(SYS_personality, -1) >= 0);
    /* Sandboxes refuse it. */
    if (syscall(SYS_personality, 0x40000) < 0)
        return;
    CHECK(syscall(SYS_personality, -1) == 0x40000);
    in_child(personality_is_inherited);
    CHECK(syscall(SYS_personality, 0) == 0x40000 && syscall(SYS_personality, -1) == 0);
}

struct head {
    unsigned version;
    int pid;
};

static void capabilities(void) {
    const unsigned v1 = 0x19980330, v2 = 0x20071026;
    struct head head = { v3, NO_PID };
    unsigned sets[6] = { 0 }, old[6] = { 7, 7, 7, 7, 7, 7 };
    CHECK(syscall(SYS_capget, &head, 0) == 0 && FAILS(syscall(SYS_capget, &head, sets), ESRCH));
    CHECK(FAILS(syscall(SYS_capset, &head, sets), EPERM));
    head.pid = -5;
    CHECK(syscall(SYS_capget, &head, 0) == 0 && FAILS(syscall(SYS_capget, &head, sets), EINVAL));
    CHECK(FAILS(syscall(SYS_capset, &head, sets), EPERM));
    head = (struct head) { v3, getpid() };
    CHECK(syscall(SYS_capget, &head, sets) == 0 && syscall(SYS_capset, &head, sets) == 0);
    head.version = v2;
    CHECK(syscall(SYS_capget, &head, old) == 0 && memcmp(old, sets, sizeof old) == 0);
    head = (struct head) { v1, 0 };
    memset(old, 7, sizeof old);
    CHECK(syscall(SYS_capget, &head, old) == 0 && memcmp(old, sets, 12) == 0 && old[3] == 0x07070707);
    /* The upper half is not in it, and gone. */
    CHECK(syscall(SYS_capset, &head, old) == 0);
    head = (struct head) { v3, 0 };
    CHECK(syscall(SYS_capget, &head, old) == 0 && old[0] == sets[0] && old[3] == 0 && old[4] == 0);
    head = (struct head) { 5, 0 };
    CHECK(FAILS(syscall(SYS_capget, &head, sets), EINVAL) && head.version == v3);
    head = (struct head) { 5, NO_PID };
    CHECK(syscall(SYS_capget, &head, 0) == 0 && head.version == v3);
    head = (struct head) { 5, NO_PID };
    CHECK(FAILS(syscall(SYS_capset, &head, sets), EINVAL) && head.version == v3);
    CHECK(FAILS(syscall(SYS_capget, NOWHERE, sets), EFAULT) && FAILS(syscall(SYS_capset, NOWHERE, sets), EFAULT));
}

/* Nobody hands on what he has not. */
static void inheritable_capabilities(void) {
    struct head head = { v3, 0 };
    unsigned sets[6] = { 0 };
    become_a_user();
    CHECK(syscall(SYS_capset, &head, sets) == 0);
    sets[2] = sets[5] = -1;
    CHECK(FAILS(syscall(SYS_capset, &head, sets), EPERM));
}

static void file_system_user_after_exec(void) {
    CHECK(syscall(SYS_setfsuid, -1) == 0 && syscall(SYS_setfsgid, -1) == 0);
}

static void file_system_users(void) {
    struct utsname name;
    int major, minor;
    CHECK(uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2);
    if (geteuid() != 0)
        return;
    CHECK(syscall(SYS_setfsgid, 4) == 0 && syscall(SYS_setfsgid, -1) == 4);
    CHECK(syscall(SYS_setfsuid, 3) == 0 && syscall(SYS_setfsuid, -1) == 3);
    /* Older ones set it whatever the call changes. */
    if (major > 6 || (major == 6 && minor >= 3)) {
        CHECK(syscall(SYS_setresuid, -1, -1, -1) == 0 && syscall(SYS_setfsuid, -1) == 3);
        CHECK(syscall(SYS_setresgid, 0, -1, 0) == 0 && syscall(SYS_setfsgid, -1) == 4);
    }
    run_again("file_system_user_after_exec");
}

static int word;

static void *wait_for_wake(void *unused) {
    CHECK(syscall(SYS_futex, &word, 0, 0, 0, 0, 0) == 0);
    return unused;
}

/* How many are woken is signed, and at least one. */
static void wakes(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], 0, wait_for_wake, 0) == 0);
    usleep(50000);
    for (int i = 0; i < 2; i++) {
        int nr;
        while ((nr = syscall(SYS_futex, &word, 1, -1, 0, 0, 0)) == 0)
            usleep(1000);
        CHECK(nr == 1);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
}

static void ranges_of_zeroes(void) {
    int fd = syscall(SYS_memfd_create, "zeroes", 0);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    CHECK(FAILS(syscall(SYS_fallocate, fd, 0x10, 0, PAGE), EOPNOTSUPP) && FAILS(syscall(SYS_fallocate, fd, 0x11, 0, PAGE), EOPNOTSUPP));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*part)(void);
    } parts[] = { { "names", names },
                  { "groups", groups },
                  { "flags", flags },
                  { "priorities", priorities },
                  { "threads", threads },
                  { "policies", policies },
                  { "personalities", personalities },
                  { "capabilities", capabilities },
                  { "inheritable capabilities", inheritable_capabilities },
                  { "file system users", file_system_users },
                  { "wakes", wakes },
                  { "ranges of zeroes", ranges_of_zeroes } };
    if (argc > 1) {
        strcmp(argv[1], "after_exec") == 0 ? after_exec() : file_system_user_after_exec();
        return 0;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        in_child(parts[i].part);
        printf("ok %s\n", parts[i].name);
    }
    printf("done\n");
    return 0;
}
