/* Pages of 1 GiB: what becomes of the pool, and files, segments and mounts of them. The pool has two at the beginning. With
   an argument it is about surplus pages. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define GIB (1L << 30)
#define RW (PROT_READ | PROT_WRITE)
#define LOG_GIB (30 << 26)
#define OF_GIB (MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | LOG_GIB)
#define SIZES "/sys/kernel/mm/hugepages/"
#define NODE "/sys/devices/system/node/node0/hugepages/"
#define LARGE "hugepages-1048576kB/"
#define SMALL "hugepages-2048kB/"
#define AT "/tmp/gib"
#define PUNCH 3

/* Whether a pool has so many pages, free, reserved, surplus, and its node says the same. */
static int has(const char *pool, long nr, long free, long reserved, long surplus) {
    const char *names[] = {"nr_hugepages", "free_hugepages", "surplus_hugepages", "resv_hugepages"};
    long wanted[] = {nr, free, surplus, reserved};
    for (int i = 0; i < 4; i++) {
        char path[128], of_node[128];
        sprintf(path, SIZES "%s%s", pool, names[i]);
        sprintf(of_node, NODE "%s%s", pool, names[i]);
        long there = number_in(path);
        if (there != wanted[i] || (i < 3 && number_in(of_node) != there)) {
            printf("%s: %ld, not %ld\n", path, there, wanted[i]);
            return 0;
        }
    }
    return 1;
}

static int large(long free, long reserved) {
    return has(LARGE, 2, free, reserved, 0);
}

static char *map(long bytes, int flags, int fd) {
    return mmap(0, bytes, RW, flags, fd, 0);
}

static long in_pools(void) {
    return of_file("/proc/meminfo", "Hugetlb:");
}

/* A free page becomes 512 small ones. A page that is promised, or used, stays. The last part: descriptors of small pages that
   leave may take frames where the page of 1 GiB was, and do not move. */
static void demote(void) {
    char *p = map(GIB, OF_GIB, -1);
    CHECK(p != MAP_FAILED && large(2, 1) && has(SMALL, 0, 0, 0, 0) && in_pools() == 2 * GIB / 1024);
    CHECK(set(SIZES LARGE "demote", "0") == 0 && large(2, 1) && has(SMALL, 0, 0, 0, 0));
    CHECK(set(SIZES LARGE "demote", "5") == 0 && has(LARGE, 1, 1, 1, 0) && has(SMALL, 512, 512, 0, 0));
    CHECK(in_pools() == 2 * GIB / 1024 && of_file("/proc/meminfo", "HugePages_Total:") == 512);
    CHECK(set(NODE LARGE "demote", "1") == 0 && has(LARGE, 1, 1, 1, 0) && munmap(p, GIB) == 0);
    CHECK(set(NODE LARGE "demote", "1\n") == 0 && has(LARGE, 0, 0, 0, 0) && has(SMALL, 1024, 1024, 0, 0));
    CHECK(in_pools() == 2 * GIB / 1024 && number_in("/proc/sys/vm/nr_hugepages") == 1024);
    p = map(4 * MIB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
    CHECK(p != MAP_FAILED && (p[3 * MIB] = 1) && has(SMALL, 1024, 1023, 1, 0) && munmap(p, 4 * MIB) == 0);
    CHECK(map(GIB, OF_GIB, -1) == MAP_FAILED && errno == ENOMEM);
    CHECK(set(SIZES SMALL "nr_hugepages", "0") == 0 && has(SMALL, 0, 0, 0, 0));
}

/* Maps 2 GiB, of which the pool has one. The other one is free memory: a whole gigabyte, if nobody has taken a frame of it since it
   left the pool. If somebody has, the pool gets it again, which moves that frame away. */
static char *map_with_surplus(void) {
    char *p = MAP_FAILED;
    for (int tries = 0; p == MAP_FAILED && tries < 30; tries++) {
        CHECK(set(SIZES LARGE "nr_hugepages", "2") == 0 && set(SIZES LARGE "nr_hugepages", "1") == 0 && has(LARGE, 1, 1, 0, 0));
        p = map(2 * GIB, OF_GIB, -1);
    }
    return p;
}

/* Surplus pages come for a reservation, and go with it; so do those that a smaller pool has promised. */
static void surplus(void) {
    char *p = map(2 * GIB, OF_GIB, -1);
    CHECK(p != MAP_FAILED && large(2, 2) && set(NODE LARGE "nr_hugepages", "1") == 0 && has(LARGE, 2, 2, 2, 1));
    CHECK(set(SIZES LARGE "demote", "2") == 0 && has(LARGE, 2, 2, 2, 1) && munmap(p, 2 * GIB) == 0 && has(LARGE, 1, 1, 0, 0));
    CHECK(map(2 * GIB, OF_GIB, -1) == MAP_FAILED && errno == ENOMEM && set(SIZES LARGE "nr_overcommit_hugepages", "1") == 0);
    CHECK((p = map_with_surplus()) != MAP_FAILED && has(LARGE, 2, 2, 2, 1));
    CHECK(map(GIB, OF_GIB, -1) == MAP_FAILED && errno == ENOMEM && munmap(p, 2 * GIB) == 0 && has(LARGE, 1, 1, 0, 0));
    CHECK(set(SIZES LARGE "nr_overcommit_hugepages", "0") == 0 && map(2 * GIB, OF_GIB, -1) == MAP_FAILED && errno == ENOMEM);
}

static int dies(volatile char *p) {
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL);
        _exit(*p);
    }
    CHECK(waitpid(pid, &result, 0) == pid);
    return WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS;
}

static void file(void) {
    int fd = memfd_create("gib", MFD_HUGETLB | LOG_GIB);
    struct stat about;
    char byte = 0;
    CHECK(fd >= 0 && fstat(fd, &about) == 0 && about.st_blksize == GIB && about.st_size == 0);
    CHECK(ftruncate(fd, 2 * MIB) == -1 && errno == EINVAL && map(3 * GIB, MAP_SHARED, fd) == MAP_FAILED && errno == ENOMEM);
    char *p = map(PAGE, MAP_SHARED, fd);
    CHECK(p != MAP_FAILED && (long)p % GIB == 0 && large(2, 1) && fstat(fd, &about) == 0 && about.st_size == GIB);
    p[5] = 1, p[GIB - 1] = 3;
    CHECK(large(1, 0) && pread(fd, &byte, 1, GIB - 1) == 1 && byte == 3 && fstat(fd, &about) == 0 && about.st_blocks == GIB / 512);
    CHECK(fallocate(fd, PUNCH, GIB - PAGE, PAGE) == 0);
    CHECK(p[5] == 1 && p[GIB - 1] == 0 && large(1, 0));
    CHECK(ftruncate(fd, 0) == 0 && large(2, 0) && dies(p) && munmap(p, GIB) == 0 && close(fd) == 0 && large(2, 0));
}

static void segment(void) {
    const int flags = IPC_CREAT | SHM_HUGETLB | LOG_GIB | 0600;
    CHECK(shmget(IPC_PRIVATE, 2 * GIB + 1, flags) == -1 && errno == ENOMEM && large(2, 0));
    int id = shmget(IPC_PRIVATE, 2 * MIB + 5, flags);
    CHECK(id >= 0 && large(2, 1));
    char *p = shmat(id, 0, 0), *q = shmat(id, 0, SHM_RDONLY);
    CHECK(p != (void *)-1 && q != (void *)-1 && (long)p % GIB == 0 && (long)q % GIB == 0);
    p[GIB - 1] = 7;
    CHECK(q[GIB - 1] == 7 && large(1, 0) && shmctl(id, IPC_RMID, 0) == 0 && shmdt(p) == 0 && large(1, 0));
    CHECK(shmdt(q) == 0 && large(2, 0));
}

static void mounted(void) {
    struct statfs fs;
    CHECK(mkdir(AT, 0755) == 0 && mount("none", AT, "hugetlbfs", 0, "pagesize=1G,size=1G") == 0 && statfs(AT, &fs) == 0);
    CHECK(fs.f_bsize == GIB && fs.f_blocks == 1 && fs.f_bfree == 1);
    CHECK(strstr(get("/proc/mounts"), ",pagesize=1024M,size=1073741824 "));
    int fd = open(AT "/file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && fallocate(fd, 0, 0, 2 * GIB) == -1 && errno == ENOSPC && large(2, 0));
    CHECK(fallocate(fd, 0, 5, 1) == 0 && large(1, 0) && statfs(AT, &fs) == 0 && fs.f_bfree == 0);
    char *p = map(GIB, MAP_SHARED, fd);
    CHECK(p != MAP_FAILED && p[GIB - 1] == 0 && (p[0] = 4) && large(1, 0));
    CHECK(fallocate(fd, PUNCH, 0, PAGE) == 0 && p[0] == 0 && large(1, 0));
    CHECK(fallocate(fd, PUNCH, 0, GIB) == 0 && large(2, 0) && munmap(p, GIB) == 0 && close(fd) == 0);
    CHECK(umount(AT) == 0 && rmdir(AT) == 0 && large(2, 0));
}

int main(int argc, char **argv) {
    if (argc > 1) {
        surplus();
    } else {
        file();
        segment();
        mounted();
        demote();
    }
    printf("hugegibcalls ok\n");
    return 0;
}
