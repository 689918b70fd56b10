/* Asks what memory calls and execve answer at limits (RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_MEMLOCK,
   vm.max_map_count), what counts towards them, and what is answered of files in memory, their seals, and futexes.
   As memcalls. `memlimits PART` asks one part alone; `memlimits count LIMIT` sets vm.max_map_count. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* futex(2); musl has no header for it. */
enum {
    FUTEX_WAIT = 0,
    FUTEX_WAKE = 1,
    FUTEX_REQUEUE = 3,
    FUTEX_CMP_REQUEUE = 4,
    FUTEX_WAIT_BITSET = 9,
    FUTEX_WAKE_BITSET = 10,
    FUTEX_PRIVATE_FLAG = 128,
    FUTEX_CLOCK_REALTIME = 256
};

enum { ANON = MAP_PRIVATE | MAP_ANONYMOUS, SHANON = MAP_SHARED | MAP_ANONYMOUS };

static void set_limit(int which, unsigned long bytes) {
    struct rlimit limit = { bytes, RLIM_INFINITY };
    if (getrlimit(which, &limit) != 0)
        printf("no limit %d\n", which);
    limit.rlim_cur = bytes;
    if (setrlimit(which, &limit) != 0)
        printf("limit %d not set\n", which);
}

/* A number of /proc/self/status, which has it in KiB. Allocates nothing. */
static unsigned long status_bytes(const char *name) {
    static char text[4096];
    unsigned long kib = 0;
    int fd = open("/proc/self/status", O_RDONLY);
    long nr = read(fd, text, sizeof text - 1);
    close(fd);
    text[nr < 0 ? 0 : nr] = 0;
    const char *line = strstr(text, name);
    if (line)
        sscanf(line + strlen(name), ": %lu", &kib);
    return kib << 10;
}

static char *pages(unsigned long nr, unsigned long prot, unsigned long flags) {
    return (char *)sys_mmap(0, nr * PAGE, prot, flags, -1, 0);
}

/* Where the heap ends after a call that asks for `more` bytes; whether it has them. */
static long brk_by(unsigned long more) {
    unsigned long end = syscall(SYS_brk, 0);
    unsigned long got = syscall(SYS_brk, end + more);
    if (got == end + more)
        return syscall(SYS_brk, end) == (long)end ? 0 : -2;
    errno = ENOMEM;
    return -1;
}

static void ask_data(void) {
    char *readable = pages(17, PROT_READ, ANON), *grows = pages(4, RW, ANON), *stack = pages(1, RW, ANON);
    set_limit(RLIMIT_DATA, status_bytes("VmData") + 16 * PAGE);
    for (unsigned long nr = 16; nr < 18; nr++) {
        ASK_MAP(pages(nr, RW, ANON), nr * PAGE, "data: mmap %lu", nr);
        ASK_MAP(pages(nr, PROT_WRITE, ANON), nr * PAGE, "data: mmap %lu to write", nr);
        ASK_MAP(pages(nr, PROT_READ, ANON), nr * PAGE, "data: mmap %lu to read", nr);
        ASK_MAP(pages(nr, RW, SHANON), nr * PAGE, "data: mmap %lu shared", nr);
        ASK_MAP(pages(nr, RW, ANON | MAP_GROWSDOWN), nr * PAGE, "data: mmap %lu that grows down", nr);
        ASK_MAP(pages(nr, RW, ANON | MAP_NORESERVE), nr * PAGE, "data: mmap %lu without reserve", nr);
        ASK(brk_by(nr * PAGE), "data: brk %lu", nr);
        ASK(mprotect(readable, nr * PAGE, RW), "data: mprotect %lu", nr);
        ASK(mprotect(readable, nr * PAGE, PROT_READ), "data: mprotect %lu back", nr);
        ASK(grows = (char *)syscall(SYS_mremap, grows, 4 * PAGE, (4 + nr) * PAGE, 1, 0), "data: mremap by %lu", nr);
        if (nr == 16)
            grows = (char *)syscall(SYS_mremap, grows, (4 + nr) * PAGE, 4 * PAGE, 1, 0);
    }
    if (child() == 0) {
        ASK_MAP(pages(17, RW, ANON), 17 * PAGE, "data: mmap in a child");
        finish();
    }
    wait_for_child();
    ASK_MAP(pages(16, RW, ANON), 0, "data: the last pages");
    ASK(mprotect(stack, PAGE, RW), "data: mprotect of what is data");
    ASK(mprotect(readable, PAGE, RW), "data: mprotect of what is none");
    ASK(mprotect(readable, PAGE, PROT_READ | PROT_EXEC), "data: mprotect that makes none");
    ASK((long)sys_mmap(readable, PAGE, RW, ANON | MAP_FIXED, -1, 0), "data: mmap over what is none");
    ASK((long)sys_mmap(stack, PAGE, RW, ANON | MAP_FIXED, -1, 0), "data: mmap over what is data");
    ASK(brk_by(PAGE), "data: brk 1");
    set_limit(RLIMIT_DATA, 0);
    ASK_MAP(pages(1, RW, ANON), PAGE, "data: mmap with a limit of 0");
    ASK(brk_by(PAGE), "data: brk with a limit of 0");
    ASK(brk_by(-PAGE), "data: brk down with a limit of 0");
}

/* Whether the target of a move counts, and in which order the limits are asked. */
static void ask_as(void) {
    char *from = pages(8, RW, ANON), *to = pages(8, RW, ANON), *none = pages(8, PROT_NONE, ANON);
    set_limit(RLIMIT_AS, status_bytes("VmSize"));
    ASK_MAP(pages(1, PROT_READ, ANON), PAGE, "as: mmap 1");
    ASK_MAP(pages(1, RW, SHANON), PAGE, "as: mmap 1 shared");
    ASK(brk_by(PAGE), "as: brk 1");
    ASK(syscall(SYS_mremap, from, 8 * PAGE, 9 * PAGE, 1, 0), "as: mremap by 1");
    ASK((long)sys_mmap(to, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0), "as: mmap over what is there");
    ASK(syscall(SYS_mremap, from, 8 * PAGE, 8 * PAGE, 1 | 4, 0), "as: mremap that keeps the old");
    ASK(syscall(SYS_mremap, from, 8 * PAGE, 8 * PAGE, 1 | 2 | 4, to), "as: mremap that keeps the old, over the new");
    ASK(mprotect(none, PAGE, RW), "as: mprotect");
    set_limit(RLIMIT_DATA, status_bytes("VmData"));
    ASK(mprotect(none + PAGE, PAGE, RW), "as: mprotect at the limit on data, too");
    set_limit(RLIMIT_AS, 1 << 16);
    ASK(mprotect(none + 2 * PAGE, PAGE, RW), "as: mprotect far above both");
    set_limit(RLIMIT_AS, status_bytes("VmSize") + PAGE);
    ASK(mprotect(none + 3 * PAGE, 2 * PAGE, RW), "as: mprotect of 2 with room for 1");
    ASK(mprotect(none + 5 * PAGE, PAGE, RW), "as: mprotect of 1 with room for 1");
}

/* Prints how much each kind of mapping adds to the sizes in status. */
static void ask_sizes(void) {
    static const struct {
        const char *name;
        unsigned long prot, flags;
    } kinds[] = { { "rw", RW, ANON },           { "rwx", RW | PROT_EXEC, ANON },    { "rx", PROT_READ | PROT_EXEC, ANON },
                  { "r", PROT_READ, ANON },     { "shared", RW, SHANON },           { "down", RW, ANON | MAP_GROWSDOWN },
                  { "stack", RW, ANON | MAP_STACK }, { "down, r", PROT_READ, ANON | MAP_GROWSDOWN } };
    static const char *names[] = { "VmSize", "VmData", "VmStk" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int n = 0; n < 3; n++) {
            unsigned long before = status_bytes(names[n]);
            char *p = pages(256, kinds[i].prot, kinds[i].flags);
            printf("sizes: %s adds 0x%lx to %s\n", kinds[i].name, status_bytes(names[n]) - before, names[n]);
            munmap(p, 256 * PAGE);
        }
}

/* Whether a program begins that is larger than its limit. It is killed, or was never there. */
static void ask_exec(void) {
    static const unsigned long limits[] = { 64 << 10, 1 << 30 };
    for (int i = 0; i < 2; i++) {
        pid_t pid = child();
        if (pid == 0) {
            set_limit(RLIMIT_AS, limits[i]);
            execl("/proc/self/exe", "memlimits", "nothing", (char *)0);
            _exit(1);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        printf("exec: limit 0x%lx, began %d\n", limits[i], status == 0);
    }
}

/* The limit on the stack is asked when it grows. */
static void ask_stack(void) {
    static const unsigned long limits[] = { 1 << 20, 4 << 20, 16 << 20, ~0ul };
    static const unsigned long depths[] = { 512 << 10, 2 << 20, 6 << 20, 12 << 20, 20 << 20 };
    for (int l = 0; l < 4; l++)
        for (int d = 0; d < 5; d++) {
            pid_t pid = child();
            if (pid == 0) {
                volatile char here;
                set_limit(RLIMIT_STACK, limits[l]);
                *(&here - depths[d]) = 1;
                _exit(0);
            }
            int status = 0;
            waitpid(pid, &status, 0);
            printf("stack: limit 0x%lx, touched 0x%lx below: signal %d\n", limits[l], depths[d], WTERMSIG(status));
        }
}

/* CAP_IPC_LOCK, of which root has to be rid for the limit to count. */
static void drop_ipc_lock(void) {
    struct {
        unsigned version;
        int pid;
    } head = { 0x20080522, 0 };
    struct {
        unsigned effective, permitted, inheritable;
    } data[2];
    if (syscall(SYS_capget, &head, data) != 0)
        printf("no capabilities\n");
    data[0].effective &= ~(1u << 14);
    if (syscall(SYS_capset, &head, data) != 0)
        printf("capabilities not set\n");
}

static void ask_locked(void) {
    char *p = pages(8, RW, ANON), *grows = pages(2, RW, ANON);
    drop_ipc_lock();
    set_limit(RLIMIT_MEMLOCK, 4 * PAGE + 100);
    for (unsigned long nr = 4; nr < 6; nr++) {
        ASK(syscall(SYS_mlock, p, nr * PAGE), "locked: mlock %lu", nr);
        ASK(syscall(SYS_munlock, p, nr * PAGE), "locked: munlock %lu", nr);
        ASK(syscall(SYS_mlock2, p, nr * PAGE, 1), "locked: mlock2 %lu", nr);
        munlock(p, 8 * PAGE);
        ASK_MAP(pages(nr, RW, ANON | MAP_LOCKED), nr * PAGE, "locked: mmap %lu", nr);
        ASK_MAP(pages(nr, RW, SHANON | MAP_LOCKED), nr * PAGE, "locked: mmap %lu shared", nr);
        ASK_MAP(pages(nr, RW, ANON), nr * PAGE, "locked: mmap %lu unlocked", nr);
    }
    ASK(syscall(SYS_mlock, p, 3 * PAGE), "locked: mlock 3");
    ASK(syscall(SYS_mlock, p, 4 * PAGE), "locked: mlock 4, 3 of them again");
    ASK(syscall(SYS_mlock, p + PAGE, 4 * PAGE), "locked: mlock 4, 3 of them again, in all 5");
    ASK(syscall(SYS_mlock, p, PAGE), "locked: mlock 1 again");
    munlock(p, 8 * PAGE);
    mlock(grows, 2 * PAGE);
    ASK(syscall(SYS_mremap, grows, 2 * PAGE, 5 * PAGE, 1, 0), "locked: mremap by 3");
    ASK(grows = (char *)syscall(SYS_mremap, grows, 2 * PAGE, 4 * PAGE, 1, 0), "locked: mremap by 2");
    munmap(grows, 4 * PAGE);
    ASK(syscall(SYS_mlockall, 1), "locked: mlockall current");
    ASK(syscall(SYS_mlockall, 3), "locked: mlockall both");
    ASK(syscall(SYS_mlockall, 6), "locked: mlockall on fault");
    ASK_MAP(pages(4, RW, ANON), 4 * PAGE, "locked: mmap 4, all of it locked");
    ASK_MAP(pages(5, RW, ANON), 5 * PAGE, "locked: mmap 5, all of it locked");
    ASK(brk_by(4 * PAGE), "locked: brk 4");
    ASK(brk_by(5 * PAGE), "locked: brk 5");
    munlockall();
    set_limit(RLIMIT_MEMLOCK, 100);
    ASK(syscall(SYS_mlock, p, PAGE), "locked: mlock with a limit below a page");
    ASK_MAP(pages(1, RW, ANON | MAP_LOCKED), PAGE, "locked: mmap with a limit below a page");
    set_limit(RLIMIT_MEMLOCK, 0);
    ASK(syscall(SYS_mlock, p, PAGE), "locked: mlock with a limit of 0");
    ASK(syscall(SYS_mlock, p, 0), "locked: mlock of nothing with a limit of 0");
    ASK(syscall(SYS_mlock2, p, PAGE, 2), "locked: mlock2, wrong flag, with a limit of 0");
    ASK(syscall(SYS_munlock, p, PAGE), "locked: munlock with a limit of 0");
    ASK(syscall(SYS_mlockall, 2), "locked: mlockall with a limit of 0");
    ASK(syscall(SYS_mlockall, 8), "locked: mlockall, wrong flag, with a limit of 0");
    ASK(syscall(SYS_munlockall), "locked: munlockall with a limit of 0");
    ASK_MAP(pages(1, RW, ANON | MAP_LOCKED), PAGE, "locked: mmap with a limit of 0");
    ASK_MAP(pages(1, RW, ANON), PAGE, "locked: mmap unlocked with a limit of 0");
    munmap(p, 8 * PAGE);
}

static void say_ids(const char *when) {
    int real[3], group[3];
    struct {
        unsigned version;
        int pid;
    } head = { 0x20080522, 0 };
    unsigned sets[6] = { 0 };
    syscall(SYS_getresuid, &real[0], &real[1], &real[2]);
    syscall(SYS_getresgid, &group[0], &group[1], &group[2]);
    syscall(SYS_capget, &head, sets);
    printf("ids %s: users %d %d %d, groups %d %d %d, file system %ld %ld, may lock %u, could %u\n", when, real[0], real[1],
           real[2], group[0], group[1], group[2], syscall(SYS_setfsuid, -1), syscall(SYS_setfsgid, -1), sets[0] >> 14 & 1,
           sets[1] >> 14 & 1);
}

/* Who is not root keeps to RLIMIT_MEMLOCK, and raises no limit. Asked as root. */
static void ask_ids(void) {
    static const struct {
        const char *name;
        long call, args[3];
    } steps[] = {
        { "setresuid effective 5", SYS_setresuid, { -1, 5, -1 } },
        { "setresuid effective 0", SYS_setresuid, { -1, 0, -1 } },
        { "setresgid 1 2 3", SYS_setresgid, { 1, 2, 3 } },
        { "setreuid 7 0", SYS_setreuid, { 7, 0 } },
        { "setreuid -1 7", SYS_setreuid, { -1, 7 } },
        { "setregid -1 3", SYS_setregid, { -1, 3 } },
        { "setregid -1 9", SYS_setregid, { -1, 9 } },
        { "setgid 9", SYS_setgid, { 9 } },
        { "setgid 1", SYS_setgid, { 1 } },
        { "setfsuid 0", SYS_setfsuid, { 0 } },
        { "setuid 9", SYS_setuid, { 9 } },
        { "setuid 0", SYS_setuid, { 0 } },
        { "setuid -1", SYS_setuid, { -1 } },
        { "setgroups", SYS_setgroups, { 0, 0 } },
        { "setresuid 7 7 7", SYS_setresuid, { 7, 7, 7 } },
        { "setresuid 0 -1 -1", SYS_setresuid, { 0, -1, -1 } },
        { "setuid 0 at last", SYS_setuid, { 0 } },
    };
    struct rlimit limit;
    char *p = pages(8, RW, ANON);
    set_limit(RLIMIT_MEMLOCK, 4 * PAGE);
    say_ids("first");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ASK(syscall(steps[i].call, steps[i].args[0], steps[i].args[1], steps[i].args[2]), "ids %s", steps[i].name);
        say_ids(steps[i].name);
        ASK(syscall(SYS_mlock, p, 8 * PAGE), "ids %s, mlock 8", steps[i].name);
        ASK_MAP(pages(5, RW, ANON | MAP_LOCKED), 5 * PAGE, "ids %s, mmap 5", steps[i].name);
        munlock(p, 8 * PAGE);
    }
    getrlimit(RLIMIT_MSGQUEUE, &limit);
    limit.rlim_max += 1;
    ASK(setrlimit(RLIMIT_MSGQUEUE, &limit), "ids at last, raise a limit");
}

/* The value to set vm.max_map_count to, or null. */
static const char *limit;

/* A page of its own VMA: its neighbours have other rights. */
static char *another(void) {
    static int turn;
    char *p = pages(1, turn++ & 1 ? PROT_READ : RW, ANON);
    return p == MAP_FAILED ? 0 : p;
}

/* The limit itself is set where it is nobody else's. */
static void ask_count(void) {
    FILE *file = limit ? fopen("/proc/sys/vm/max_map_count", "w") : 0;
    if (limit && (!file || fprintf(file, "%s", limit) < 0 || fclose(file) != 0))
        printf("the limit was not set\n");
    enum { NR_SPARE = 16 };
    char *p = pages(64, PROT_NONE, ANON), *spare[NR_SPARE] = { 0 }, *last;
    /* Three pages each, which a call may split. */
    char *three[8];
    for (int i = 0; i < 8; i++)
        three[i] = (char *)sys_mmap(p + 4 * PAGE * (i + 1), 3 * PAGE, RW, ANON | MAP_FIXED, -1, 0);
    unsigned long nr = 0;
    while ((last = another()))
        spare[nr++ % NR_SPARE] = last;
    for (int step = 0; step < 2; step++) {
        /* First one VMA above the limit, then exactly as many as it says. */
        ASK_MAP(pages(1, PROT_EXEC, ANON), PAGE, "count: mmap, step %d", step);
        ASK(munmap(three[0] + PAGE, PAGE), "count: munmap in the middle, step %d", step);
        ASK(mprotect(three[1] + PAGE, PAGE, PROT_READ), "count: mprotect in the middle, step %d", step);
        ASK(mprotect(three[1], 3 * PAGE, RW), "count: mprotect of all, step %d", step);
        ASK(syscall(SYS_madvise, three[2] + PAGE, PAGE, MADV_DONTFORK), "count: madvise in the middle, step %d", step);
        ASK(syscall(SYS_madvise, three[2] + PAGE, PAGE, MADV_DONTNEED), "count: madvise without a split, step %d", step);
        ASK(syscall(SYS_mlock, three[3] + PAGE, PAGE), "count: mlock in the middle, step %d", step);
        ASK(sys_mmap(three[4] + PAGE, PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0), "count: mmap in the middle, step %d", step);
        ASK(syscall(SYS_mremap, three[5], 3 * PAGE, 16 * PAGE, 1, 0), "count: mremap, step %d", step);
        ASK(syscall(SYS_mremap, three[5], 3 * PAGE, PAGE, 0, 0), "count: mremap that shrinks, step %d", step);
        sys_mmap(three[5], 3 * PAGE, RW, ANON | MAP_FIXED, -1, 0);
        ASK(sys_mmap(three[6], 3 * PAGE, RW, ANON | MAP_FIXED, -1, 0), "count: mmap in place, step %d", step);
        ASK(munmap(spare[step], PAGE), "count: munmap of all, step %d", step);
    }
    /* From here on one VMA less each time: which move is the first that works? */
    int plain = -1, fixed = -1;
    for (int i = 2; i < NR_SPARE; i++) {
        if (fixed < 0 && syscall(SYS_mremap, three[6], PAGE, PAGE, 3, p + 60 * PAGE) != -1)
            fixed = i;
        if (plain < 0 && syscall(SYS_mremap, three[7], 3 * PAGE, 16 * PAGE, 1, 0) != -1)
            plain = i;
        munmap(spare[i], PAGE);
    }
    printf("count: a move works %d below the limit, to a place %d\n", plain, fixed);
    ASK(munmap(three[0] + PAGE, PAGE), "count: munmap in the middle below the limit");
    ASK(mprotect(three[1] + PAGE, PAGE, PROT_READ), "count: mprotect in the middle below the limit");
    ASK(brk_by(PAGE), "count: brk below the limit");
}

static int memfd(unsigned flags) {
    return syscall(SYS_memfd_create, "memlimits", flags);
}

static void ask_seals(const char *what, int fd) {
    char byte = 1;
    ASK(pwrite(fd, &byte, 1, 0), "seals %s: write", what);
    ASK(pwrite(fd, &byte, 1, 2 * PAGE), "seals %s: write at the end", what);
    ASK(ftruncate(fd, 3 * PAGE), "seals %s: grow", what);
    ASK(ftruncate(fd, 2 * PAGE), "seals %s: shrink", what);
    ASK(ftruncate(fd, 2 * PAGE), "seals %s: same size", what);
    ASK(syscall(SYS_fallocate, fd, 0, 0, PAGE), "seals %s: fallocate inside", what);
    ASK(syscall(SYS_fallocate, fd, 1, 0, 4 * PAGE), "seals %s: fallocate beyond, size kept", what);
    ASK(syscall(SYS_fallocate, fd, 0, 0, 4 * PAGE), "seals %s: fallocate beyond", what);
    ASK(syscall(SYS_fallocate, fd, 3, 0, PAGE), "seals %s: make a hole", what);
    ASK(fchmod(fd, 0600), "seals %s: chmod to no rights to execute", what);
    ASK(fchmod(fd, 0700), "seals %s: chmod to rights to execute", what);
    ASK_MAP(sys_mmap(0, PAGE, RW, MAP_SHARED, fd, 0), PAGE, "seals %s: map to write", what);
    ASK_MAP(sys_mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0), PAGE, "seals %s: map a copy", what);
    char *p = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    ASK((long)p, "seals %s: map to read", what);
    if (p != MAP_FAILED) {
        ASK(mprotect(p, PAGE, RW), "seals %s: mprotect", what);
        munmap(p, PAGE);
    }
    for (unsigned bit = 0; bit < 8; bit++)
        ASK(fcntl(fd, F_ADD_SEALS, 1u << bit), "seals %s: add 0x%x", what, 1u << bit);
    printf("seals %s afterwards: 0x%x\n", what, fcntl(fd, F_GET_SEALS));
}

static void ask_memfd(void) {
    char name[300];
    memset(name, 'x', sizeof name);
    for (int len = 248; len < 252; len++) {
        name[len] = 0;
        int fd;
        ASK(fd = syscall(SYS_memfd_create, name, 0), "memfd_create name of %d", len);
        close(fd);
        name[len] = 'x';
    }
    ASK(syscall(SYS_memfd_create, 0, 0), "memfd_create without a name");
    ASK(syscall(SYS_memfd_create, 0, 1u << 20), "memfd_create without a name, wrong flag");
    for (unsigned bit = 0; bit < 32; bit++) {
        int fd;
        ASK(fd = memfd(1u << bit), "memfd_create 0x%x", 1u << bit);
        struct stat stat = { 0 };
        if (fd >= 0)
            fstat(fd, &stat);
        printf("memfd_create 0x%x gives: mode 0%o, seals 0x%x, closes %d\n", 1u << bit, stat.st_mode, fcntl(fd, F_GET_SEALS),
               fcntl(fd, F_GETFD));
        close(fd);
    }
    ASK(memfd(8 | 16), "memfd_create executable and not");
    ASK(memfd(4 | 21u << 26), "memfd_create huge, 2 MiB");
    for (unsigned seals = 0; seals < 64; seals++) {
        int fd = memfd(2);
        char what[32];
        snprintf(what, sizeof what, "0x%x", seals);
        if (ftruncate(fd, 2 * PAGE) != 0)
            printf("no size\n");
        ASK(fcntl(fd, F_ADD_SEALS, seals), "seals %s: add", what);
        ask_seals(what, fd);
        close(fd);
    }
    int fd = memfd(0);
    ASK(ftruncate(fd, 2 * PAGE), "seals refused: size");
    ask_seals("refused", fd);
    close(fd);
    fd = memfd(8);
    ASK(ftruncate(fd, 2 * PAGE), "seals without execution: size");
    ask_seals("without execution", fd);
    close(fd);
    fd = memfd(2);
    ASK(ftruncate(fd, 2 * PAGE), "seals: size");
    static const struct {
        const char *name;
        int prot, flags, answer;
    } maps[] = { { "writable", RW, MAP_SHARED, 0 },
                 { "readable", PROT_READ, MAP_SHARED, 0 },
                 { "private", RW, MAP_PRIVATE, 0 } };
    char *p;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        p = (char *)sys_mmap(0, PAGE, maps[i].prot, maps[i].flags, fd, 0);
        if (maps[i].flags == MAP_PRIVATE)
            break;
        ASK(fcntl(fd, F_ADD_SEALS, 8), "seals: mapped %s", maps[i].name);
        ASK(fcntl(fd, F_ADD_SEALS, 32 | 8), "seals: mapped %s, execution, too", maps[i].name);
        if (child() == 0) {
            munmap(p, PAGE);
            ASK(fcntl(fd, F_ADD_SEALS, 8), "seals: mapped %s by the parent", maps[i].name);
            finish();
        }
        wait_for_child();
        munmap(p, PAGE);
    }
    ASK(fcntl(fd, F_ADD_SEALS, 8), "seals: mapped as a copy");
    p = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    ASK(fcntl(fd, F_ADD_SEALS, 8), "seals: again, mapped to read");
    close(fd);
    fd = memfd(2);
    ASK(ftruncate(fd, 2 * PAGE), "seals: another size");
    p = (char *)sys_mmap(0, PAGE, RW, MAP_SHARED, fd, 0);
    ASK(fcntl(fd, F_ADD_SEALS, 16), "seals: future writes, mapped writable");
    *p = 5;
    ASK(pwrite(fd, "x", 1, 0), "seals: a future write");
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reader = open(path, O_RDONLY);
    ASK(fcntl(reader, F_GET_SEALS), "seals: of a reader");
    ASK(fcntl(reader, F_ADD_SEALS, 4), "seals: by a reader");
    int ends[2];
    ASK(pipe(ends), "seals: pipe");
    ASK(fcntl(ends[0], F_GET_SEALS), "seals: of a pipe");
    ASK(fcntl(ends[0], F_ADD_SEALS, 1), "seals: for a pipe to read");
    ASK(fcntl(ends[1], F_ADD_SEALS, 1), "seals: for a pipe to write");
    ASK(fcntl(99, F_GET_SEALS), "seals: of nothing");
    munmap(p, PAGE);
}

static void ask_futex(void) {
    enum { NR_PLACES = 9 };
    static unsigned word;
    char *mapped = pages(2, RW, ANON);
    char *readable = pages(1, PROT_READ, ANON), *nothing = pages(1, PROT_NONE, ANON), *shared = pages(1, RW, SHANON);
    int fd = memfd(0);
    if (ftruncate(fd, PAGE) != 0)
        printf("no size\n");
    char *file = (char *)sys_mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    munmap(mapped + PAGE, PAGE);
    const struct {
        const char *name;
        void *addr;
    } places[NR_PLACES] = { { "word", &word },          { "unaligned", (char *)&word + 1 }, { "hole", mapped + PAGE },
                            { "read-only", readable },  { "none", nothing },                { "shared", shared },
                            { "file", file },           { "beyond the file", file + PAGE }, { "kernel", (void *)0xffff800000000000 } };
    static const int ops[] = { FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET };
    static const int flags[] = { 0, FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME };
    for (int p = 0; p < NR_PLACES; p++)
        for (int o = 0; o < 4; o++)
            for (int f = 0; f < 3; f++) {
                /* The value is another: nobody waits. */
                ASK(syscall(SYS_futex, places[p].addr, ops[o] | flags[f], 1, 0, 0, -1), "futex %s op %d flags %d", places[p].name,
                    ops[o], flags[f]);
                ASK(syscall(SYS_futex, places[p].addr, ops[o] | flags[f], 1, 0, 0, 0), "futex %s op %d flags %d without bits",
                    places[p].name, ops[o], flags[f]);
            }
    for (int f = 0; f < 3; f++)
        for (int p = 0; p < NR_PLACES; p++)
            for (int q = 0; q < NR_PLACES; q++)
                for (int op = FUTEX_REQUEUE; op <= FUTEX_CMP_REQUEUE; op++)
                    ASK(syscall(SYS_futex, places[p].addr, op | flags[f], 1, 1, places[q].addr, 0), "futex op %d flags %d, %s to %s", op,
                        flags[f], places[p].name, places[q].name);
    ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1, mapped, 7), "futex requeue, another value");
    ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, 1, mapped + PAGE, 7), "futex requeue to a hole, another value");
    ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, -1, 1, mapped, 0), "futex requeue, -1 to wake");
    ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE, 1, -1L, mapped, 0), "futex requeue, -1 to move");
    ASK(syscall(SYS_futex, &word, FUTEX_WAIT, 1, 8, 0, 0), "futex with a time nowhere");
    struct timespec {
        long s, ns;
    } times[] = { { -1, 0 }, { 0, -1 }, { 0, 1000000000 }, { 0, 1 } };
    for (int i = 0; i < 4; i++)
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &times[i], 0, 0), "futex with time %d", i);
    for (int op = 2; op < 20; op++)
        if (op > 13 || op == 2)
            ASK(syscall(SYS_futex, &word, op, 1, 0, 0, 0), "futex op %d", op);
}

/* Calls that are there or not. */
static void ask_others(void) {
    ASK(syscall(5000), "a call that there is not");
    ASK(syscall(SYS_remap_file_pages, 0, PAGE, 0, 0, 0), "remap_file_pages of nothing");
    char *p = pages(2, RW, SHANON);
    ASK(syscall(SYS_remap_file_pages, p, PAGE, 0, 1, 0), "remap_file_pages");
    ASK(syscall(SYS_remap_file_pages, p, PAGE, 1, 1, 0), "remap_file_pages with rights");
    ASK(syscall(440, -1, 0, 0, 0, 0), "process_madvise");
    ASK(syscall(324, 0, 0, 0), "membarrier");
    ASK(syscall(462, p, PAGE, 1), "mseal");
    ASK(syscall(323, 1 << 20), "userfaultfd");
    ASK(syscall(447, 1 << 20), "memfd_secret");
    ASK(syscall(448, -1, 0), "process_mrelease");
    ASK(syscall(453, 0, PAGE, 8), "map_shadow_stack");
    ASK(syscall(SYS_pkey_free, 20), "pkey_free");
    ASK(syscall(329, p, PAGE, RW, 20), "pkey_mprotect");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*ask)(void);
    } parts[] = { { "data", ask_data }, { "as", ask_as }, { "sizes", ask_sizes }, { "exec", ask_exec }, { "stack", ask_stack }, { "locked", ask_locked }, { "memfd", ask_memfd },
                  { "futex", ask_futex }, { "others", ask_others }, { "count", ask_count }, { "ids", ask_ids } };
    limit = argc > 2 ? argv[2] : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (argc >= 2 ? strcmp(argv[1], parts[i].name) != 0 : parts[i].ask == ask_count || parts[i].ask == ask_ids)
            continue;
        if (child() == 0) {
            parts[i].ask();
            finish();
        }
        wait_for_child();
    }
    printf("done\n");
    return 0;
}
