/* Asks every flag of every memory call. Prints "CALL: ok" or "CALL: ERRNO" line by line; the test compares the
   lines with Linux's and knows each difference with its reason. `memcalls PART` asks one part alone. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum { ANON = MAP_PRIVATE | MAP_ANONYMOUS, SHANON = MAP_SHARED | MAP_ANONYMOUS };

/* The memory that a call is asked about: two pages of it, the first touched. */
enum kind { PRIVATE, PROTNONE, READONLY, SHARED, STACK, COPY, FILE_RW, FILE_RO, LOCKED, HOLE, ZERO, NR_KINDS };
static const char *const kind_names[] = { "private", "none",    "read-only", "shared", "stack",
                                          "copy",    "file-rw", "file-ro",   "locked", "hole",   "zero" };

static int file_rw, file_ro, file_wo, file_path, folder, zero_rw, zero_ro, null, pipes[2], event;

static void make_files(void) {
    /* In memory on both: other file systems have flags of their own. */
    char path[32];
    file_rw = memfd_create("memcalls", 0);
    if (file_rw < 0 || ftruncate(file_rw, 8 * PAGE) != 0)
        printf("no file\n");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file_rw);
    file_ro = open(path, O_RDONLY);
    file_wo = open(path, O_WRONLY);
    file_path = open(path, O_PATH);
    folder = open("/tmp", O_RDONLY);
    zero_rw = open("/dev/zero", O_RDWR);
    zero_ro = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_RDWR);
    event = eventfd(0, 0);
    if (pipe(pipes) != 0 || event < 0 || zero_ro < 0 || file_path < 0)
        printf("no files\n");
}

static char *map(enum kind kind) {
    int prot = kind == PROTNONE ? PROT_NONE : kind == READONLY || kind == FILE_RO ? PROT_READ : RW;
    int flags = kind == SHARED || kind == FILE_RW || kind == FILE_RO ? MAP_SHARED : MAP_PRIVATE;
    int fd = kind == FILE_RO ? file_ro : kind == FILE_RW || kind == COPY ? file_rw : kind == ZERO ? zero_rw : -1;
    flags |= fd < 0 ? MAP_ANONYMOUS : 0;
    flags |= kind == STACK ? MAP_GROWSDOWN : 0;
    /* Room on both sides, so that nothing merges and growth is possible. */
    char *room = (char *)sys_mmap(0, 34 * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    char *p = room + 16 * PAGE;
    munmap(room, 34 * PAGE);
    if ((char *)sys_mmap(p, 2 * PAGE, prot, flags | MAP_FIXED, fd, 0) != p)
        printf("no mapping of kind %s\n", kind_names[kind]);
    if (kind == LOCKED)
        mlock(p, 2 * PAGE);
    if (prot & PROT_WRITE)
        *(volatile char *)p = 1;
    if (kind == HOLE)
        munmap(p + PAGE, PAGE);
    return p;
}

static void unmap(char *p) {
    munmap(p, 2 * PAGE);
}

static void ask_mmap_flags(void) {
    static const struct {
        const char *name;
        int *fd;
    } files[] = { { "no file", 0 },      { "rw", &file_rw },   { "ro", &file_ro }, { "wo", &file_wo },     { "path", &file_path },
                  { "folder", &folder }, { "zero", &zero_rw }, { "null", &null },  { "pipe", &pipes[0] }, { "event", &event } };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        int fd = files[f].fd ? *files[f].fd : -1;
        int anonymous = files[f].fd ? 0 : MAP_ANONYMOUS;
        for (int type = 0; type < 16; type++)
            ASK_MAP(sys_mmap(0, PAGE, RW, type | anonymous, fd, 0), PAGE, "mmap %s type %d", files[f].name, type);
        for (int prot = 0; prot < 8; prot++)
            for (int type = MAP_SHARED; type <= MAP_SHARED_VALIDATE; type++)
                ASK_MAP(sys_mmap(0, PAGE, prot, type | anonymous, fd, 0), PAGE, "mmap %s type %d prot %d",
                        files[f].name, type, prot);
        for (int bit = 6; bit < 40; bit++)
            /* At address 0 MAP_FIXED_NOREPLACE asks who the caller is. */
            for (int type = MAP_SHARED; type <= MAP_SHARED_VALIDATE && 1ul << bit != MAP_FIXED_NOREPLACE; type++)
                ASK_MAP(sys_mmap(0, PAGE, PROT_READ, (unsigned long)type | anonymous | 1ul << bit, fd, 0), PAGE,
                        "mmap %s type %d flag 0x%lx", files[f].name, type, 1ul << bit);
        for (int bit = 3; bit < 34; bit++)
            ASK_MAP(sys_mmap(0, PAGE, 1ul << bit, MAP_PRIVATE | anonymous, fd, 0), PAGE, "mmap %s prot 0x%lx",
                    files[f].name, 1ul << bit);
    }
}

static void ask_mmap_places(void) {
    char *p = map(PRIVATE);
    unsigned long at = (unsigned long)p;
    const unsigned long lens[] = { 0,         1,         PAGE, end_of_user,  end_of_user + 1,
                                   1ul << 47, 1ul << 62, ~0ul, ~0ul - 4094, ~0ul - 4095 };
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        ASK_MAP(sys_mmap(0, lens[i], PROT_NONE, ANON | MAP_NORESERVE, -1, 0), lens[i], "mmap length 0x%lx", lens[i]);
        ASK_MAP(sys_mmap(0, lens[i], PROT_READ, MAP_SHARED, file_ro, 0), lens[i], "mmap of file, length 0x%lx", lens[i]);
        ASK_MAP(sys_mmap((void *)(at + 4 * PAGE), lens[i], PROT_NONE, ANON | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0), lens[i],
                "mmap at a place, length 0x%lx", lens[i]);
    }
    ASK_MAP(sys_mmap(p + 1, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0), PAGE, "mmap fixed unaligned");
    ASK_MAP(sys_mmap(p + 1, PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0), PAGE, "mmap noreplace unaligned");
    ASK_MAP(sys_mmap(p, PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0), PAGE, "mmap noreplace occupied");
    ASK_MAP(sys_mmap(p + 1, PAGE, PROT_NONE, ANON, -1, 0), PAGE, "mmap hint unaligned");
    ASK_MAP(sys_mmap((void *)end_of_user, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0), PAGE, "mmap fixed at the end");
    ASK_MAP(sys_mmap((void *)-4096l, PAGE, PROT_NONE, ANON, -1, 0), PAGE, "mmap hint above");
    static const unsigned long offsets[] = { 1, PAGE, 1ul << 40, 1ul << 62, 1ul << 63, ~0ul - 4095 };
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_SHARED, file_ro, offsets[i]), PAGE, "mmap offset 0x%lx", offsets[i]);
        ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file_ro, offsets[i]), PAGE, "mmap private offset 0x%lx", offsets[i]);
        ASK_MAP(sys_mmap(0, PAGE, PROT_READ, ANON, -1, offsets[i]), PAGE, "mmap anonymous offset 0x%lx", offsets[i]);
    }
    ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_SHARED, 99, 0), PAGE, "mmap of no file");
    const unsigned long low[] = { PAGE, 16 << 20, 512 << 20, 2ul << 30 };
    for (int i = 0; i < 4; i++)
        ASK_MAP(sys_mmap(0, low[i], PROT_NONE, ANON | MAP_32BIT | MAP_NORESERVE, -1, 0), low[i], "mmap below 2 GiB, 0x%lx",
                low[i]);
    ASK_MAP(sys_mmap((void *)(1ul << 40), PAGE, PROT_NONE, ANON | MAP_32BIT, -1, 0), PAGE, "mmap below 2 GiB, hint above");
    ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_SHARED | MAP_32BIT, file_ro, 0), PAGE, "mmap of file below 2 GiB");
    ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_32BIT, file_ro, 0), PAGE, "mmap copy below 2 GiB");
    ASK_MAP(sys_mmap(0, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0), PAGE, "mmap shared below 2 GiB");
    unmap(p);
}

static void ask_munmap(void) {
    char *p = map(PRIVATE);
    ASK(munmap(p + 1, PAGE), "munmap unaligned");
    ASK(sys(SYS_munmap, p, 0), "munmap nothing");
    ASK(sys(SYS_munmap, p, 1), "munmap one byte");
    ASK(sys(SYS_munmap, p, ~0ul), "munmap wraps");
    ASK(sys(SYS_munmap, p, end_of_user), "munmap beyond the end");
    ASK(sys(SYS_munmap, end_of_user, PAGE), "munmap behind the end");
    ASK(munmap(p, 2 * PAGE), "munmap a hole");
}

static void ask_mprotect(void) {
    for (enum kind kind = 0; kind < NR_KINDS; kind++) {
        for (unsigned long bit = 0; bit < 36; bit++) {
            char *p = map(kind);
            ASK(sys(SYS_mprotect, p, 2 * PAGE, 1ul << bit), "mprotect %s 0x%lx", kind_names[kind], 1ul << bit);
            unmap(p);
        }
        for (int prot = 0; prot < 16; prot++) {
            char *p = map(kind);
            ASK(sys(SYS_mprotect, p, 2 * PAGE, prot), "mprotect %s %d", kind_names[kind], prot);
            ASK(sys(SYS_mprotect, p + PAGE, PAGE, prot | PROT_GROWSDOWN), "mprotect %s %d down", kind_names[kind], prot);
            ASK(sys(SYS_pkey_mprotect, p, PAGE, prot, -1), "pkey_mprotect %s %d", kind_names[kind], prot);
            unmap(p);
        }
        char *p = map(kind);
        ASK(sys(SYS_mprotect, p, 2 * PAGE, RW | PROT_GROWSDOWN | PROT_GROWSUP), "mprotect %s both ways", kind_names[kind]);
        ASK(sys(SYS_pkey_mprotect, p, PAGE, RW, 5), "pkey_mprotect %s no key", kind_names[kind]);
        unmap(p);
    }
    char *p = map(PRIVATE);
    ASK(sys(SYS_mprotect, p + 1, PAGE, RW), "mprotect unaligned");
    ASK(sys(SYS_mprotect, p, 0, 1 << 20), "mprotect nothing, wrong rights");
    ASK(sys(SYS_mprotect, p, 1, RW), "mprotect one byte");
    ASK(sys(SYS_mprotect, p, ~0ul, RW), "mprotect wraps to nothing");
    ASK(sys(SYS_mprotect, p, ~0ul - 3 * PAGE, RW), "mprotect wraps");
    ASK(sys(SYS_mprotect, p, 8 * PAGE, RW), "mprotect past the end");
    unmap(p);
    /* A file that was opened for reading: shared it stays so, a copy may be written. */
    char *q = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_SHARED, zero_ro, 0);
    ASK(mprotect(q, PAGE, RW), "mprotect of /dev/zero, shared and read-only");
    munmap(q, PAGE);
    q = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_PRIVATE, zero_ro, 0);
    ASK(mprotect(q, PAGE, RW), "mprotect of /dev/zero, private and read-only");
    munmap(q, PAGE);
    q = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file_ro, 0);
    ASK(mprotect(q, PAGE, RW), "mprotect of a copy, read-only");
    munmap(q, PAGE);
    q = (char *)sys_mmap(0, PAGE, PROT_NONE, MAP_SHARED_VALIDATE, file_ro, 0);
    ASK(mprotect(q, PAGE, PROT_WRITE), "mprotect of a file, validated, read-only");
    ASK(mprotect(q, PAGE, PROT_READ | PROT_EXEC), "mprotect of a file to execute");
    char *r = mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    ASK(mprotect(r, PAGE, PROT_WRITE), "mprotect of a file that has moved");
    if (child() == 0) {
        ASK(mprotect(r, PAGE, PROT_WRITE), "mprotect of a file, in a child");
        finish();
    }
    wait_for_child();
    munmap(r, 2 * PAGE);
}

static void ask_madvise(void) {
    for (enum kind kind = 0; kind < NR_KINDS; kind++)
        /* 100 and 101 would take frames of the host out of use. */
        for (int advice = -1; advice < 112; advice++)
            if (advice != 100 && advice != 101) {
                char *p = map(kind);
                ASK(sys(SYS_madvise, p, 2 * PAGE, advice), "madvise %s %d", kind_names[kind], advice);
                ASK(sys(SYS_madvise, p, 0, advice), "madvise %s %d of nothing", kind_names[kind], advice);
                unmap(p);
            }
    char *p = map(PRIVATE);
    ASK(sys(SYS_madvise, p + 1, PAGE, 0), "madvise unaligned");
    ASK(sys(SYS_madvise, p, ~0ul, 4), "madvise wraps to nothing");
    ASK(sys(SYS_madvise, p, ~0ul - 3 * PAGE, 4), "madvise wraps");
    ASK(sys(SYS_madvise, p, 8 * PAGE, 4), "madvise past the end");
    ASK(sys(SYS_madvise, p, 8 * PAGE, 1000), "madvise past the end, no advice");
    unmap(p);
}

static void ask_mremap(void) {
    for (enum kind kind = 0; kind < NR_KINDS; kind++)
        for (int flags = 0; flags < 17; flags++) {
            static const unsigned long sizes[][2] = { { 1, 1 }, { 2, 1 }, { 1, 3 }, { 0, 1 }, { 1, 0 }, { 2, 12 }, { 3, 3 } };
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                /* Locked memory that MREMAP_DONTUNMAP leaves behind is counted twice. */
                if (kind == LOCKED && flags & 4)
                    continue;
                char *p = map(kind), *to = p + 64 * PAGE;
                long r;
                ASK(r = sys(SYS_mremap, p, sizes[i][0] * PAGE, sizes[i][1] * PAGE, flags, to), "mremap %s flags %d, %lu to %lu", kind_names[kind], flags, sizes[i][0], sizes[i][1]);
                if (r != -1)
                    munmap((void *)r, sizes[i][1] * PAGE);
                unmap(p);
            }
        }
    char *p = map(PRIVATE);
    ASK(sys(SYS_mremap, p + 1, PAGE, PAGE, 0, 0), "mremap unaligned");
    ASK(sys(SYS_mremap, p, PAGE, PAGE, 3, p + 64 * PAGE + 1), "mremap to an unaligned place");
    ASK(sys(SYS_mremap, p, 2 * PAGE, PAGE, 3, p + PAGE), "mremap onto itself");
    ASK(sys(SYS_mremap, p, PAGE, PAGE, 3, end_of_user), "mremap behind the end");
    ASK(sys(SYS_mremap, p, PAGE, end_of_user + 1, 1, 0), "mremap too large");
    ASK(sys(SYS_mremap, p, ~0ul, PAGE, 1, 0), "mremap of everything");
    ASK(sys(SYS_mremap, p + 8 * PAGE, PAGE, PAGE, 1, 0), "mremap of nothing");
    ASK(sys(SYS_mremap, p, PAGE, PAGE, 1ul << 32, 0), "mremap high flags");
    unmap(p);
}

static void ask_msync_and_mincore(void) {
    unsigned char pages[8];
    for (enum kind kind = 0; kind < NR_KINDS; kind++) {
        char *p = map(kind);
        for (int flags = 0; flags < 17; flags++)
            ASK(sys(SYS_msync, p, 2 * PAGE, flags), "msync %s %d", kind_names[kind], flags);
        ASK(sys(SYS_mincore, p, 2 * PAGE, pages), "mincore %s", kind_names[kind]);
        unmap(p);
    }
    char *p = map(PRIVATE);
    ASK(sys(SYS_msync, p + 1, PAGE, 4), "msync unaligned");
    ASK(sys(SYS_msync, p, 0, 4), "msync nothing");
    ASK(sys(SYS_msync, p, ~0ul, 4), "msync wraps to nothing");
    ASK(sys(SYS_msync, p, ~0ul - 3 * PAGE, 4), "msync wraps");
    ASK(sys(SYS_msync, p, 8 * PAGE, 4), "msync past the end");
    ASK(sys(SYS_mincore, p + 1, PAGE, pages), "mincore unaligned");
    ASK(sys(SYS_mincore, p, 0, pages), "mincore nothing");
    ASK(sys(SYS_mincore, p, 8 * PAGE, pages), "mincore past the end");
    ASK(sys(SYS_mincore, p, ~0ul, pages), "mincore of everything");
    ASK(sys(SYS_mincore, p, 2 * PAGE, 8), "mincore to nowhere");
    ASK(sys(SYS_mincore, p, 2 * PAGE, end_of_user), "mincore behind the end");
    ASK(sys(SYS_mincore, end_of_user, PAGE, pages), "mincore of behind the end");
    unmap(p);
}

static void ask_locks(void) {
    for (enum kind kind = 0; kind < NR_KINDS; kind++) {
        char *p = map(kind);
        ASK(sys(SYS_mlock, p, 2 * PAGE), "mlock %s", kind_names[kind]);
        ASK(sys(SYS_munlock, p, 2 * PAGE), "munlock %s", kind_names[kind]);
        for (int flags = 0; flags < 5; flags++)
            ASK(sys(SYS_mlock2, p, 2 * PAGE, flags), "mlock2 %s %d", kind_names[kind], flags);
        sys(SYS_munlock, p, 2 * PAGE);
        unmap(p);
    }
    char *p = map(PRIVATE);
    ASK(sys(SYS_mlock, p + 1, 1), "mlock a byte");
    ASK(sys(SYS_mlock, p, 0), "mlock nothing");
    ASK(sys(SYS_mlock, p, ~0ul), "mlock wraps to nothing");
    ASK(sys(SYS_munlock, p, ~0ul - 3 * PAGE), "munlock wraps");
    ASK(sys(SYS_munlock, p, 8 * PAGE), "munlock past the end");
    unmap(p);
    /* The last of each is a call that locks nothing that is not there. */
    for (int flags = 0; flags < 17; flags++) {
        if (!(flags & MCL_CURRENT))
            ASK(sys(SYS_mlockall, flags), "mlockall %d", flags);
        sys(SYS_munlockall);
    }
    ASK(sys(SYS_munlockall), "munlockall");
}

static void ask_segments(void) {
    struct shmid_ds status = { 0 };
    for (unsigned bit = 9; bit < 32; bit++) {
        int id;
        ASK(id = shmget(IPC_PRIVATE, 2 * PAGE, 1u << bit | 0600), "shmget 0x%x", 1u << bit);
        if (id >= 0)
            shmctl(id, IPC_RMID, 0);
    }
    static const unsigned long sizes[] = { 0, 1, PAGE, ~0ul };
    for (int i = 0; i < 4; i++) {
        int id;
        ASK(id = shmget(IPC_PRIVATE, sizes[i], 0600), "shmget of 0x%lx", sizes[i]);
        if (id >= 0)
            shmctl(id, IPC_RMID, 0);
    }
    int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
    char *p = map(PRIVATE);
    for (unsigned bit = 9; bit < 20; bit++) {
        char *at;
        ASK(at = shmat(id, 0, 1 << bit), "shmat 0x%x", 1 << bit);
        if (at != (void *)-1) {
            ASK(mprotect(at, PAGE, RW), "shmat 0x%x, mprotect", 1 << bit);
            ASK(mprotect(at, PAGE, PROT_READ | PROT_EXEC), "shmat 0x%x, mprotect to execute", 1 << bit);
            ASK(shmdt(at), "shmdt 0x%x", 1 << bit);
        }
        ASK(at = shmat(id, p + 8 * PAGE, 1 << bit), "shmat at a place 0x%x", 1 << bit);
        if (at != (void *)-1)
            shmdt(at);
        ASK(at = shmat(id, p + 8 * PAGE + 1, 1 << bit), "shmat at an unaligned place 0x%x", 1 << bit);
        if (at != (void *)-1)
            shmdt(at);
        ASK(at = shmat(id, p, 1 << bit), "shmat at a place that is taken 0x%x", 1 << bit);
        if (at != (void *)-1)
            shmdt(at);
    }
    ASK(shmat(id, (void *)end_of_user, 0), "shmat at the end");
    ASK(shmat(-1, 0, 0), "shmat of no segment");
    ASK(shmdt(p + 8 * PAGE), "shmdt of nothing");
    ASK(shmdt(p + 1), "shmdt unaligned");
    for (int command = -1; command < 20; command++)
        /* Numbers of the whole system are its own. */
        if (command != IPC_RMID && (command < 13 || command > 15))
            ASK(shmctl(id, command, &status), "shmctl %d", command);
    ASK(sys(SYS_shmctl, id, IPC_STAT, 8), "shmctl to nowhere");
    ASK(shmctl(id, IPC_RMID, 0), "shmctl: remove");
    ASK(shmctl(id, IPC_RMID, 0), "shmctl: remove again");
    ASK(shmat(id, 0, 0), "shmat of what was removed");
    unmap(p);
}

static void ask_policies(void) {
    unsigned long one = 1, two = 2, none = 0, nodes[64];
    int mode;
    char *p = map(PRIVATE);
    const struct {
        const char *name;
        unsigned long *mask, max;
    } sets[] = { { "none", 0, 0 }, { "empty", &none, 64 }, { "node 0", &one, 64 }, { "node 1", &two, 64 }, { "one bit", &one, 2 } };
    for (int s = 0; s < 5; s++) {
        for (int policy = -1; policy < 10; policy++)
            for (int flag = 12; flag < 17; flag++) {
                unsigned long asked = policy < 0 ? 1u << 30 : flag == 12 ? policy : policy | 1 << flag;
                ASK(sys(SYS_set_mempolicy, asked, sets[s].mask, sets[s].max), "set_mempolicy 0x%lx %s", asked, sets[s].name);
                ASK(sys(SYS_mbind, p, PAGE, asked, sets[s].mask, sets[s].max, 0), "mbind 0x%lx %s", asked, sets[s].name);
            }
        for (int bit = 0; bit < 5; bit++)
            ASK(sys(SYS_mbind, p, PAGE, 2, sets[s].mask, sets[s].max, 1 << bit), "mbind %s flag 0x%x", sets[s].name, 1 << bit);
    }
    sys(SYS_set_mempolicy, 0, 0, 0);
    for (int flags = 0; flags < 9; flags++)
        for (int place = 0; place < 3; place++) {
            void *at = place == 0 ? 0 : place == 1 ? p : p + 8 * PAGE;
            ASK(sys(SYS_get_mempolicy, &mode, 0, 0, at, flags), "get_mempolicy %d, place %d", flags, place);
            ASK(sys(SYS_get_mempolicy, 0, nodes, 4096, at, flags), "get_mempolicy %d, place %d, with a mask", flags, place);
        }
    ASK(sys(SYS_get_mempolicy, 8, 0, 0, 0, 0), "get_mempolicy to nowhere");
    ASK(sys(SYS_mbind, p + 1, PAGE, 0, 0, 0, 0), "mbind unaligned");
    ASK(sys(SYS_mbind, p, 0, 0, 0, 0, 0), "mbind of nothing");
    ASK(sys(SYS_mbind, p, ~0ul - 3 * PAGE, 0, 0, 0, 0), "mbind wraps");
    ASK(sys(SYS_mbind, p, 8 * PAGE, 0, 0, 0, 0), "mbind past the end");
    ASK(sys(SYS_mbind, p, 8 * PAGE, 2, &one, 64, 0), "mbind past the end, with a policy");
    ASK(sys(SYS_mbind, p + 4 * PAGE, PAGE, 0, 0, 0, 0), "mbind of a hole");
    ASK(sys(SYS_mbind, p + 4 * PAGE, 0, 0, 0, 0, 0), "mbind of nothing in a hole");
    ASK(sys(SYS_mbind, p + 4 * PAGE, PAGE, 2, &one, 64, 0), "mbind of a hole, with a policy");
    ASK(sys(SYS_mbind, p, PAGE, 2, 8, 64, 0), "mbind with a mask nowhere");
    ASK(sys(SYS_mbind, p, PAGE, 2, &one, 1ul << 40, 0), "mbind with a mask too long");
    unmap(p);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*ask)(void);
    } parts[] = { { "mmap-flags", ask_mmap_flags }, { "mmap-places", ask_mmap_places }, { "munmap", ask_munmap },
                  { "mprotect", ask_mprotect },     { "madvise", ask_madvise },         { "mremap", ask_mremap },
                  { "msync", ask_msync_and_mincore }, { "locks", ask_locks },
                  { "segments", ask_segments }, { "policies", ask_policies } };
    make_files();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc < 2 || strcmp(argv[1], parts[i].name) == 0)
            parts[i].ask();
    printf("done\n");
    return 0;
}
