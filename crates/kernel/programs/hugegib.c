/* Pages of 1 GiB: one entry each, shared and private. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define GIB (1L << 30)
#define OF_GIB (MAP_ANONYMOUS | MAP_HUGETLB | 30 << 26)
#define POOL "/sys/kernel/mm/hugepages/hugepages-1048576kB/"

static int pool_is(long free, long reserved) {
    return number_in(POOL "free_hugepages") == free && number_in(POOL "resv_hugepages") == reserved;
}

static volatile char *map(int kind) {
    volatile char *p = mmap(0, GIB, PROT_READ | PROT_WRITE, kind | OF_GIB, -1, 0);
    CHECK(p != MAP_FAILED && (long)p % GIB == 0);
    return p;
}

/* The child stores to all that it is given, and sees what is there. */
static int child_stores(volatile char *p) {
    pid_t pid = fork();
    if (pid == 0) {
        p[5] = 2;
        _exit(p[GIB - 1] == 3 && p[GIB / 2] == 0 && p[5] == 2 ? 0 : 1);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid);
    return result;
}

int main(void) {
    CHECK(pool_is(2, 0));
    for (int private = 0; private < 2; private++) {
        volatile char *p = map(private ? MAP_PRIVATE : MAP_SHARED);
        CHECK(pool_is(2, 1) && (p[5] = 1) && (p[GIB - 1] = 3) && p[GIB / 2] == 0 && pool_is(1, 0));
        CHECK(of_mapping((void *)p, "KernelPageSize:") == 1048576 && of_mapping((void *)p, "MMUPageSize:") == 1048576);
        CHECK(of_mapping((void *)p, private ? "Private_Hugetlb:" : "Shared_Hugetlb:") +
                  of_mapping((void *)p, private ? "Shared_Hugetlb:" : "Private_Hugetlb:") ==
              1048576);
        CHECK(child_stores(p) == 0 && p[5] == (private ? 1 : 2) && pool_is(1, 0));
        CHECK(mprotect((void *)p, GIB, PROT_READ) == 0 && p[GIB - 1] == 3);
        CHECK(munmap((void *)p, GIB / 2) == -1 && munmap((void *)p, GIB) == 0 && pool_is(2, 0));
    }
    printf("hugegib ok\n");
    return 0;
}
