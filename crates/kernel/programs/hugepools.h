/* The pools of huge pages: their files, mappings of them, files of memfd_create(2). After hugefiles.h. */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HUGE (2 * MIB)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define LARGEST "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define NR "/proc/sys/vm/nr_hugepages"
#define NODE "/sys/devices/system/node/node0/hugepages"
#define GROUP "/proc/sys/vm/hugetlb_shm_group"
#define OVERCOMMIT "/proc/sys/vm/nr_overcommit_hugepages"
#define SHARED_HUGE (MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB)
#define MFD_OF_HUGE 4
#define LOG_SHIFT 26
#define PUNCH 3
#ifndef SHM_NORESERVE
#define SHM_NORESERVE 010000
#endif
#ifndef SHM_HUGETLB
#define SHM_HUGETLB 04000
#endif
#define KEEP_SIZE 1

/* Whether the pool has so many pages, free, reserved, surplus: in all files that say so. */
static int pool_is(long nr, long free, long reserved, long surplus) {
    const char *names[] = {"nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"};
    const char *lines[] = {"HugePages_Total:", "HugePages_Free:", "HugePages_Rsvd:", "HugePages_Surp:"};
    long wanted[] = {nr, free, reserved, surplus};
    for (int i = 0; i < 4; i++) {
        char path[128];
        sprintf(path, POOL "%s", names[i]);
        long there = number_in(path), said = of_file("/proc/meminfo", lines[i]);
        if (there != wanted[i] || said != wanted[i]) {
            printf("%s: %ld, %ld, not %ld\n", names[i], there, said, wanted[i]);
            return 0;
        }
    }
    return number_in(NR) == nr - surplus && of_file("/proc/meminfo", "Hugetlb:") == nr * 2048;
}

static char *map_huge(int fd, long pages, int flags, long offset) {
    return mmap(0, pages * HUGE, PROT_READ | PROT_WRITE, flags, fd, offset);
}

/* The only smaller size is 2 MiB, in whatever way it is written. A pool of the smallest pages has none. */
static void pool_demote_size(const char *folder) {
    const char *good[] = {"2M", "2048kB\n", "2097152", "0x200000", "2m and more", 0};
    const char *wrong[] = {"1G", "4M", "2", "4096", " 2M", "-2M", "\n", "all", 0};
    char path[128];
    sprintf(path, "%s/hugepages-1048576kB/demote_size", folder);
    CHECK(mode(path) == 0644);
    for (int i = 0; good[i]; i++)
        CHECK(set(path, good[i]) == 0 && strcmp(get(path), "2048kB") == 0);
    for (int i = 0; wrong[i]; i++)
        CHECK(set(path, wrong[i]) == EINVAL && strcmp(get(path), "2048kB") == 0);
    sprintf(path, "%s/hugepages-1048576kB/demote", folder);
    CHECK(mode(path) == 0200 && set(path, "1") == 0 && set(path, "x") == EINVAL);
    sprintf(path, "%s/hugepages-2048kB/demote", folder);
    CHECK(access(path, F_OK) == -1 && errno == ENOENT);
}

static void pool_files(void) {
    CHECK(of_file("/proc/meminfo", "Hugepagesize:") == 2048);
    CHECK(mode(NR) == 0644 && mode(POOL "nr_hugepages") == 0644 && mode(POOL "free_hugepages") == 0444);
    CHECK(set(POOL "free_hugepages", "1") == EACCES && set(NR, "x") == EINVAL && set(POOL "nr_hugepages", "-1") == EINVAL);
    CHECK(number_in("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages") == 0);
    pool_demote_size("/sys/kernel/mm/hugepages");
    pool_demote_size(NODE);
    CHECK(access(NODE "/hugepages-1048576kB/resv_hugepages", F_OK) == -1 && errno == ENOENT);
    CHECK(access(NODE "/hugepages-1048576kB/nr_overcommit_hugepages", F_OK) == -1 && errno == ENOENT);
    CHECK(set(POOL "nr_hugepages", "3\n") == 0 && pool_is(3, 3, 0, 0));
    CHECK(number_in(NODE "/hugepages-2048kB/free_hugepages") == 3);
    /* One node: what memory policy says makes no difference. */
    CHECK(mode(NR "_mempolicy") == 0644 && number_in(NR "_mempolicy") == 3 && set(NR "_mempolicy", "4") == 0);
    CHECK(pool_is(4, 4, 0, 0) && set(POOL "nr_hugepages_mempolicy", "3") == 0 && pool_is(3, 3, 0, 0));
    CHECK(mode(POOL "nr_hugepages_mempolicy") == 0644 && number_in(POOL "nr_hugepages_mempolicy") == 3);
    CHECK(set(NR, "4") == 0 && pool_is(4, 4, 0, 0));
}

/* Numbers are read as Linux reads them: in sysfs nothing but digits, in /proc/sys any base with space around it. */
static void pool_numbers(void) {
    const char *wrong[] = {" 3", "3 ", "3\n\n", "0x3", "3x", "-3", "++3", "+", "\n", "3\t", 0};
    const char *wrong_there[] = {"3x", "08", "0x", "-3", "+3", " ", "\n", "18446744073709551616", "000000000000000000003", 0};
    const char *same_there[] = {" \t3", "3 \n", "0x3", "03", "\n3\t\n", "00000000000000000003", 0};
    for (int i = 0; wrong[i]; i++)
        CHECK(set(POOL "nr_hugepages", wrong[i]) == EINVAL && set(POOL "nr_overcommit_hugepages", wrong[i]) == EINVAL);
    for (int i = 0; wrong_there[i]; i++)
        CHECK(set(NR, wrong_there[i]) == EINVAL && set(OVERCOMMIT, wrong_there[i]) == EINVAL);
    CHECK(set(POOL "nr_hugepages", "18446744073709551616") == ERANGE && set(POOL "nr_hugepages", "99999999999999999999x") == ERANGE);
    CHECK(set(LARGEST "demote", "18446744073709551616") == ERANGE && set(LARGEST "demote", " 1") == EINVAL && pool_is(4, 4, 0, 0));
    for (int i = 0; same_there[i]; i++)
        CHECK(set(NR, same_there[i]) == 0 && pool_is(3, 3, 0, 0) && set(POOL "nr_hugepages", "+4\n") == 0 && pool_is(4, 4, 0, 0));
    CHECK(set(NR, "") == 0 && set(POOL "nr_hugepages", "") == 0 && pool_is(4, 4, 0, 0));
    int fd = open(NR, O_WRONLY);
    CHECK(write(fd, "3 5", 3) == 2 && write(fd, "5", 1) == 1 && close(fd) == 0 && pool_is(3, 3, 0, 0));
    CHECK(set(NR, "4") == 0 && pool_is(4, 4, 0, 0));
}

/* A reservation is kept, what cannot be promised is refused, surplus pages come and go. */
static void pool_mappings(void) {
    char *p = map_huge(-1, 2, SHARED_HUGE | MAP_SHARED_VALIDATE, 0);
    CHECK(p != MAP_FAILED && (long)p % HUGE == 0 && pool_is(4, 4, 2, 0));
    CHECK(map_huge(-1, 1, SHARED_HUGE | MAP_SHARED_VALIDATE | MAP_SYNC, 0) == MAP_FAILED && errno == EOPNOTSUPP);
    CHECK(map_huge(-1, 3, SHARED_HUGE, 0) == MAP_FAILED && errno == ENOMEM && pool_is(4, 4, 2, 0));
    CHECK(map_huge(-1, 1, SHARED_HUGE | 22 << LOG_SHIFT, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(map_huge(-1, 1, SHARED_HUGE | 30 << LOG_SHIFT, 0) == MAP_FAILED && errno == ENOMEM);
    p[HUGE + 5] = 7;
    CHECK(pool_is(4, 3, 1, 0));
    pid_t pid = fork();
    if (pid == 0) {
        p[0] = p[HUGE + 5] + 1;
        _exit(0);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid && result == 0 && p[0] == 8 && pool_is(4, 2, 0, 0));
    CHECK(set(NR, "1") == 0 && pool_is(2, 0, 0, 1));
    CHECK(munmap(p, 2 * HUGE) == 0 && pool_is(1, 1, 0, 0));
    p = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, SHARED_HUGE | MAP_NORESERVE | 21 << LOG_SHIFT, -1, 0);
    CHECK(p != MAP_FAILED && p[0] == 0 && pool_is(1, 0, 0, 0));
    /* A page that was not reserved can be refused. */
    if ((pid = fork()) == 0) {
        signal(SIGBUS, SIG_DFL);
        p[HUGE] = 1;
        _exit(0);
    }
    CHECK(waitpid(pid, &result, 0) == pid && WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS);
    CHECK(munmap(p, 2 * HUGE) == 0 && set(OVERCOMMIT, "2") == 0 && number_in(POOL "nr_overcommit_hugepages") == 2);
    /* The limit is kept as it was set, whatever is possible. */
    CHECK(set(OVERCOMMIT, "18446744073709551615") == 0 && strcmp(get(POOL "nr_overcommit_hugepages"), "18446744073709551615") == 0);
    p = map_huge(-1, 3, SHARED_HUGE, 0);
    CHECK(p != MAP_FAILED && pool_is(3, 3, 3, 2) && munmap(p, 3 * HUGE) == 0 && pool_is(1, 1, 0, 0));
    CHECK(set(POOL "nr_overcommit_hugepages", "2") == 0 && strcmp(get(OVERCOMMIT), "2") == 0);
    p = map_huge(-1, 3, SHARED_HUGE | MAP_POPULATE, 0);
    CHECK(p != MAP_FAILED && pool_is(3, 0, 0, 2));
    CHECK(map_huge(-1, 1, SHARED_HUGE, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(munmap(p, 3 * HUGE) == 0 && pool_is(1, 1, 0, 0) && set(OVERCOMMIT, "0") == 0);
    CHECK(set(NR, "4") == 0 && pool_is(4, 4, 0, 0));
}

/* Private pages: the mapping reserves, a child shares and copies, and where the pool has no page for that it is the child that fails. */
static void pool_private(void) {
#define PRIVATE_HUGE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB)
    char *p = map_huge(-1, 2, PRIVATE_HUGE, 0);
    CHECK(p != MAP_FAILED && (long)p % HUGE == 0 && pool_is(4, 4, 2, 0));
    CHECK(map_huge(-1, 3, PRIVATE_HUGE, 0) == MAP_FAILED && errno == ENOMEM);
    p[5] = 7;
    CHECK(pool_is(4, 3, 1, 0));
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        int was = p[5];
        p[5] = 8;
        _exit(was == 7 && p[5] == 8 && p[HUGE] == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &result, 0) == pid && result == 0 && p[5] == 7 && pool_is(4, 3, 1, 0));
    CHECK(madvise(p, HUGE, MADV_DONTNEED) == 0 && pool_is(4, 4, 2, 0) && p[5] == 0 && pool_is(4, 3, 1, 0));
    CHECK(munmap(p, PAGE) == -1 && errno == EINVAL && mprotect(p + PAGE, PAGE, PROT_READ) == -1 && errno == EINVAL);
    p[5] = 9, p[HUGE] = 1;
    CHECK(set(NR, "2") == 0 && pool_is(2, 0, 0, 0));
    pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL);
        p[5] = 1;
        _exit(0);
    }
    CHECK(waitpid(pid, &result, 0) == pid && WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS);
    p[5]++;
    CHECK(p[5] == 10 && munmap(p, HUGE) == 0 && pool_is(2, 1, 0, 0) && munmap(p + HUGE, HUGE) == 0 && pool_is(2, 2, 0, 0));
    CHECK(set(NR, "4") == 0 && pool_is(4, 4, 0, 0));
}

/* A file: it grows with its mappings, is read, has holes, pages without a mapping, and an end. */
static void pool_file(void) {
    char name[] = "pool", byte = 0;
    CHECK(memfd_create(name, MFD_OF_HUGE | 22u << LOG_SHIFT) == -1 && errno == ENODEV);
    int fd = memfd_create(name, MFD_OF_HUGE | 21u << LOG_SHIFT), small = memfd_create(name, 0);
    struct stat about;
    CHECK(fd >= 0 && fstat(fd, &about) == 0 && about.st_size == 0 && about.st_blksize == HUGE);
    CHECK(ftruncate(fd, PAGE) == -1 && errno == EINVAL && write(fd, "x", 1) == -1 && errno == EINVAL);
    CHECK(ftruncate(small, HUGE) == 0);
    CHECK(map_huge(small, 1, MAP_SHARED | MAP_HUGETLB, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(map_huge(fd, 1, MAP_SHARED, PAGE) == MAP_FAILED && errno == EINVAL);
    CHECK(map_huge(fd, 5, MAP_SHARED, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 0 && pool_is(4, 4, 0, 0));
    /* What is refused ends no claim beyond the end. */
    char *far = mmap(0, 2 * HUGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(far != MAP_FAILED && pool_is(4, 4, 2, 0) && map_huge(fd, 5, MAP_SHARED, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(fallocate(fd, 0, 0, 5 * HUGE) == -1 && errno == ENOSPC && pool_is(4, 4, 2, 0));
    CHECK(fstat(fd, &about) == 0 && about.st_size == 0 && munmap(far, 2 * HUGE) == 0);
    CHECK(ftruncate(fd, 2 * HUGE) == 0 && ftruncate(fd, 0) == 0 && pool_is(4, 4, 0, 0));
    /* Less than a page is a page. */
    char *p = mmap(0, 2 * HUGE - PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_HUGETLB, fd, 0);
    CHECK(p != MAP_FAILED && (long)p % HUGE == 0 && pool_is(4, 4, 2, 0));
    p[0] = 1, p[2 * HUGE - 1] = 2;
    CHECK(fstat(fd, &about) == 0 && about.st_size == 2 * HUGE && about.st_blocks == 2 * HUGE / 512);
    CHECK(pread(fd, &byte, 1, 2 * HUGE - 1) == 1 && byte == 2 && pool_is(4, 2, 0, 0));
    CHECK(fallocate(fd, PUNCH, HUGE, HUGE) == 0 && pool_is(4, 3, 0, 0) && p[0] == 1);
    CHECK(p[2 * HUGE - 1] == 0 && pool_is(4, 2, 0, 0));
    CHECK(fallocate(fd, PUNCH, PAGE, HUGE) == 0 && p[0] == 1 && pool_is(4, 2, 0, 0));
    CHECK(fallocate(fd, 0, 3 * HUGE, 1) == 0 && pool_is(4, 1, 0, 0));
    CHECK(fstat(fd, &about) == 0 && about.st_size == 4 * HUGE);
    CHECK(fallocate(fd, 0, 0, 5 * HUGE) == -1 && errno == ENOSPC && fallocate(fd, KEEP_SIZE, 0, 4 * HUGE) == 0);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 4 * HUGE && pool_is(4, 0, 0, 0) && p[0] == 1);
    CHECK(ftruncate(fd, HUGE) == 0 && pool_is(4, 3, 0, 0));
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL);
        p[HUGE] = 1;
        _exit(0);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid && WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS);
    CHECK(munmap(p, 2 * HUGE) == 0 && pool_is(4, 3, 0, 0));
    CHECK(close(fd) == 0 && close(small) == 0 && pool_is(4, 4, 0, 0));
}

/* The call itself: a C library may refuse such lengths. */
static long map_len(long len, int flags, int fd) {
    return syscall(SYS_mmap, 0, len, PROT_READ, flags, fd, 0);
}

/* Of several bad arguments the one is told that Linux tells: size, length and place come before flags. */
static int refuses(long at, long len, int flags, int fd) {
    CHECK(syscall(SYS_mmap, at, len, PROT_READ, flags, fd, 0) == -1);
    return errno;
}

static void pool_orders(int fd) {
    const int unknown = MAP_SHARED_VALIDATE | MAP_SYNC, anonymous = unknown | MAP_ANONYMOUS | MAP_HUGETLB;
    const long top = (1L << 47) - HUGE;
    const int kinds[] = {unknown, anonymous};
    for (int i = 0; i < 2; i++) {
        int of = i ? -1 : fd;
        CHECK(refuses(0, HUGE, kinds[i], of) == EOPNOTSUPP && refuses(0, 0, kinds[i], of) == EINVAL);
        CHECK(refuses(0, -1, kinds[i], of) == EINVAL && refuses(0, -HUGE, kinds[i], of) == ENOMEM);
        CHECK(refuses(top + PAGE, HUGE, kinds[i] | MAP_FIXED, of) == EINVAL && refuses(top, HUGE, kinds[i] | MAP_FIXED, of) == ENOMEM);
        CHECK(refuses(16 * HUGE, HUGE, kinds[i] | MAP_FIXED, of) == EOPNOTSUPP);
    }
    CHECK(refuses(0, HUGE, anonymous | 22 << LOG_SHIFT, -1) == EINVAL && refuses(0, HUGE, MAP_ANONYMOUS | MAP_HUGETLB, -1) == EINVAL);
}

/* Offsets have 63 bits: what lies beyond is refused, and nothing before it is. */
static void pool_offsets(void) {
    const long most = INT64_MAX, last = most - HUGE + 1;
    int fd = memfd_create("far", MFD_OF_HUGE);
    char byte = 0;
    struct stat about;
    CHECK(ftruncate(fd, most) == -1 && errno == EINVAL && ftruncate(fd, INT64_MIN) == -1 && errno == EINVAL);
    CHECK(ftruncate(fd, 1L << 43) == 0 && ftruncate(fd, last) == 0 && fstat(fd, &about) == 0 && about.st_size == last);
    CHECK(pread(fd, &byte, 1, most - 1) == 0 && pread(fd, &byte, 1, most) == -1 && errno == EINVAL);
    CHECK(pread(fd, &byte, 1, last - 1) == 1 && byte == 0 && pwrite(fd, &byte, 0, 0) == -1 && errno == EINVAL);
    /* All of it is data, as on Linux. 3 and 4 are SEEK_DATA and SEEK_HOLE. */
    CHECK(lseek(fd, PAGE, 3) == PAGE && lseek(fd, PAGE, 4) == last && lseek(fd, last, 3) == -1 && errno == ENXIO);
    CHECK(lseek(fd, most, SEEK_SET) == most && lseek(fd, 1, SEEK_CUR) == -1 && errno == EINVAL && ftruncate(fd, 0) == 0);
    int kinds[] = {MAP_SHARED, MAP_PRIVATE};
    for (int i = 0; i < 2; i++) {
        CHECK(map_huge(fd, 1, kinds[i], last) == MAP_FAILED && errno == EOVERFLOW);
        CHECK(mmap(0, PAGE, PROT_READ, kinds[i], fd, last) == MAP_FAILED && errno == EOVERFLOW);
        CHECK(map_huge(fd, 2, kinds[i], last - HUGE) == MAP_FAILED && errno == EOVERFLOW);
        CHECK(map_huge(fd, 1, kinds[i], INT64_MIN) == MAP_FAILED && errno == EOVERFLOW);
        CHECK(map_huge(fd, 1, kinds[i], -HUGE) == MAP_FAILED && errno == EOVERFLOW);
        CHECK(map_len(-1L, kinds[i], fd) == -1 && errno == EINVAL);
        CHECK(map_len(-HUGE, kinds[i], fd) == -1 && errno == ENOMEM);
        CHECK(map_huge(fd, 1L << 25, kinds[i], 0) == MAP_FAILED && errno == ENOMEM);
        CHECK(map_len(-1L, kinds[i] | MAP_ANONYMOUS | MAP_HUGETLB, -1) == -1 && errno == EINVAL);
        CHECK(map_len(-HUGE, kinds[i] | MAP_ANONYMOUS | MAP_HUGETLB, -1) == -1 && errno == ENOMEM);
    }
    CHECK(fstat(fd, &about) == 0 && about.st_size == 0 && pool_is(4, 4, 0, 0));
    pool_orders(fd);
    char *p = map_huge(fd, 1, MAP_SHARED, last - HUGE), *q = map_huge(fd, 1, MAP_PRIVATE, last - HUGE);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && pool_is(4, 4, 2, 0) && fstat(fd, &about) == 0 && about.st_size == last);
    p[5] = 7;
    CHECK(q[5] == 7 && pread(fd, &byte, 1, last - HUGE + 5) == 1 && byte == 7 && pool_is(4, 3, 1, 0));
    CHECK(mremap(p, HUGE, 2 * HUGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(fallocate(fd, 0, most, 1) == -1 && errno == EFBIG && fallocate(fd, PUNCH, 1, most) == -1 && errno == EFBIG);
    CHECK(fallocate(fd, 0, last - 2 * HUGE, HUGE) == 0 && pool_is(4, 2, 1, 0));
    CHECK(fallocate(fd, PUNCH, 0, most) == 0 && pool_is(4, 4, 1, 0) && munmap(p, HUGE) == 0 && munmap(q, HUGE) == 0);
    CHECK(close(fd) == 0 && pool_is(4, 4, 0, 0));
}

/* Who may make a segment of huge pages: who may lock memory, and a group. It is user 1000 of group 1000. */
static int segment_errno(gid_t further, long pages, int flags) {
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setgroups(1, &further) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
        int id = shmget(IPC_PRIVATE, pages * HUGE, IPC_CREAT | SHM_HUGETLB | flags | 0600);
        _exit(id >= 0 ? shmctl(id, IPC_RMID, 0) : errno);
    }
    CHECK(waitpid(pid, &result, 0) == pid && WIFEXITED(result));
    return WEXITSTATUS(result);
}

static void pool_segment_group(void) {
    CHECK(mode(GROUP) == 0644 && strcmp(get(GROUP), "0") == 0);
    CHECK(segment_errno(5, 1, 0) == EPERM && segment_errno(0, 1, 0) == 0 && segment_errno(5, 1, 22 << LOG_SHIFT) == EINVAL);
    CHECK(segment_errno(5, 0, 0) == EINVAL && segment_errno(5, 1000, 0) == EPERM && segment_errno(0, 1000, 0) == ENOMEM);
    CHECK(set(GROUP, "5") == 0 && segment_errno(5, 1, 0) == 0 && segment_errno(0, 1, 0) == EPERM);
    CHECK(set(GROUP, "1000") == 0 && segment_errno(5, 1, 0) == 0);
    CHECK(set(GROUP, "-1") == 0 && strcmp(get(GROUP), "-1") == 0 && segment_errno(0, 1, 0) == EPERM);
    CHECK(set(GROUP, "2147483648") == EINVAL && set(GROUP, "x") == EINVAL && set(GROUP, "0") == 0 && pool_is(4, 4, 0, 0));
}

/* A segment of System V: its pages are promised when it is made. */
static void pool_segment(void) {
    CHECK(shmget(IPC_PRIVATE, 5 * HUGE, IPC_CREAT | SHM_HUGETLB | 0600) == -1 && errno == ENOMEM);
    CHECK(shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | 22 << LOG_SHIFT | 0600) == -1 && errno == EINVAL);
    int id = shmget(IPC_PRIVATE, HUGE + 5, IPC_CREAT | SHM_HUGETLB | 0600);
    struct shmid_ds status;
    CHECK(id >= 0 && pool_is(4, 4, 2, 0) && shmctl(id, IPC_STAT, &status) == 0 && status.shm_segsz == HUGE + 5);
    char *p = shmat(id, 0, 0), *q = shmat(id, 0, SHM_RDONLY);
    CHECK(p != (void *)-1 && q != (void *)-1 && (long)p % HUGE == 0 && pool_is(4, 4, 2, 0));
    p[HUGE + 7] = 3;
    CHECK(q[HUGE + 7] == 3 && pool_is(4, 3, 1, 0) && shmctl(id, IPC_STAT, &status) == 0 && status.shm_nattch == 2);
    CHECK(shmat(id, p + 16 * HUGE + PAGE, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmctl(id, IPC_RMID, 0) == 0 && shmdt(p) == 0 && pool_is(4, 3, 1, 0));
    CHECK(shmdt(q) == 0 && pool_is(4, 4, 0, 0));
    id = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600);
    CHECK(id >= 0 && pool_is(4, 4, 0, 0) && shmctl(id, IPC_RMID, 0) == 0);
}

/* `first` pages are there at the beginning, and in the end. */
static void pools(const char *first) {
    CHECK(pool_is(atol(first), atol(first), 0, 0) && number_in(OVERCOMMIT) == 0);
    pool_files();
    pool_numbers();
    pool_mappings();
    pool_private();
    pool_file();
    pool_offsets();
    pool_segment();
    pool_segment_group();
    CHECK(set(NR, first) == 0 && pool_is(atol(first), atol(first), 0, 0));
}
