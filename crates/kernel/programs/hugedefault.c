/* The default size of huge pages, which boot parameters name. Prints it in KiB, and the sizes of the pools, of 2 MiB and of 1 GiB.
   With an argument it has 1 GiB and one such page, and all calls that name no size use it. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemounts.h"
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define GIB (1L << 30)
#define OF(kib, name) "/sys/kernel/mm/hugepages/hugepages-" #kib "kB/" name
#define OVERCOMMIT "/proc/sys/vm/nr_overcommit_hugepages"
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB)
#define OF_2M (21 << 26)

static void mappings(void) {
    char *p = mmap(0, PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    CHECK(p != MAP_FAILED && (long)p % GIB == 0 && pool_is(1, 1, 1) && of_mapping(p, "KernelPageSize:") == 1048576);
    CHECK(mmap(0, PAGE, PROT_READ, FLAGS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(munmap(p, HUGE) == -1 && errno == EINVAL && munmap(p, GIB) == 0 && pool_is(1, 1, 0));
    CHECK(mmap(0, PAGE, PROT_READ, FLAGS | OF_2M, -1, 0) == MAP_FAILED && errno == ENOMEM);
}

static void files(void) {
    struct stat about;
    struct statfs fs;
    int fd = memfd_create("default", 4), small = memfd_create("small", 4u | OF_2M);
    CHECK(fstat(fd, &about) == 0 && about.st_blksize == GIB && ftruncate(fd, HUGE) == -1 && ftruncate(fd, GIB) == 0);
    CHECK(fstat(small, &about) == 0 && about.st_blksize == HUGE && close(fd) == 0 && close(small) == 0);
    CHECK(mkdir(AT, 0755) == 0 && mount("none", AT, "hugetlbfs", 0, "") == 0 && statfs(AT, &fs) == 0 && fs.f_bsize == GIB);
    CHECK(strstr(get("/proc/mounts"), ",pagesize=1024M ") && umount(AT) == 0);
    CHECK(mount("none", AT, "hugetlbfs", 0, "pagesize=2M") == 0 && statfs(AT, &fs) == 0 && fs.f_bsize == HUGE && umount(AT) == 0);
    CHECK(rmdir(AT) == 0);
}

static void segments(void) {
    int id = shmget(IPC_PRIVATE, 5, IPC_CREAT | SHM_HUGETLB | 0600);
    CHECK(id >= 0 && pool_is(1, 1, 1) && shmctl(id, IPC_RMID, 0) == 0 && pool_is(1, 1, 0));
    CHECK(shmget(IPC_PRIVATE, 5, IPC_CREAT | SHM_HUGETLB | OF_2M | 0600) == -1 && errno == ENOMEM);
}

static void numbers(void) {
    CHECK(of_file("/proc/meminfo", "Hugetlb:") == 1048576 && number_in(NR) == 1);
    CHECK(set(OVERCOMMIT, "3") == 0 && number_in(OF(1048576, "nr_overcommit_hugepages")) == 3);
    CHECK(number_in(OF(2048, "nr_overcommit_hugepages")) == 0 && set(OVERCOMMIT, "0") == 0);
    CHECK(set(OF(2048, "nr_hugepages"), "2") == 0 && pool_is(1, 1, 0) && number_in(NR) == 1);
    CHECK(of_file("/proc/meminfo", "Hugetlb:") == 1048576 + 4096 && set(OF(2048, "nr_hugepages"), "0") == 0);
    CHECK(set(NR, "0") == 0 && pool_is(0, 0, 0) && number_in(OF(1048576, "nr_hugepages")) == 0);
    CHECK(set(NR "_mempolicy", "1") == 0 && pool_is(1, 1, 0));
}

int main(int argc, char **argv) {
    long size = of_file("/proc/meminfo", "Hugepagesize:");
    printf("%ld: %ld", size, number_in(OF(2048, "nr_hugepages")));
    printf(" %ld\n", number_in(OF(1048576, "nr_hugepages")));
    if (argc == 1)
        return 0;
    CHECK(size == 1048576 && pool_is(1, 1, 0));
    mappings();
    files();
    segments();
    numbers();
    return 0;
}
