/* Private mappings of files of huge pages: they show the file until they are stored to, and have reservations of their own. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemounts.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

static volatile char *map(int fd, long pages, int prot, int flags) {
    return mmap(0, pages * HUGE, prot, flags, fd, 0);
}

/* Lets a child store. Returns its status: 0, 1 if it does not read the value back, or the signal. */
static int child_stores(volatile char *p, char value) {
    pid_t pid = fork();
    if (pid == 0) {
        *p = value;
        _exit(*p != value);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid);
    return WIFSIGNALED(result) ? WTERMSIG(result) : WEXITSTATUS(result);
}

static char in_file(int fd, long offset) {
    char byte = 0;
    CHECK(pread(fd, &byte, 1, offset) == 1);
    return byte;
}

static void stores(int fd) {
    const int rw = PROT_READ | PROT_WRITE;
    volatile char *shared = map(fd, 1, rw, MAP_SHARED), *p;
    CHECK(shared != MAP_FAILED && (shared[5] = 7) && pool_is(4, 3, 0));
    CHECK((p = map(fd, 2, rw, MAP_PRIVATE)) != MAP_FAILED && pool_is(4, 3, 2));
    struct stat about;
    CHECK(fstat(fd, &about) == 0 && about.st_size == 2 * HUGE);
    CHECK(p[5] == 7 && pool_is(4, 3, 2) && (shared[5] = 8) && p[5] == 8);
    CHECK(of_mapping((void *)p, "Private_Hugetlb:") + of_mapping((void *)p, "Shared_Hugetlb:") == 2048);
    p[6] = 1;
    CHECK(pool_is(4, 2, 1) && p[5] == 8 && (shared[5] = 9) && p[5] == 8 && in_file(fd, 5) == 9 && in_file(fd, 6) == 0);
    CHECK(of_mapping((void *)p, "Private_Hugetlb:") == 2048);
    /* A child stores to a page of its own, and to one of the file that it reserves nothing for. */
    CHECK(child_stores(p + 6, 2) == 0 && p[6] == 1 && in_file(fd, 6) == 0 && pool_is(4, 2, 1));
    /* The file has no second page, and gets none. */
    CHECK(p[HUGE] == 0 && pool_is(4, 1, 0));
    CHECK(pread(fd, (char[1]){1}, 1, HUGE) == 1 && fstat(fd, &about) == 0 && about.st_blocks == HUGE / 512);
    /* Holes drop copies, as sizes do; their places keep claims. */
    CHECK(fallocate(fd, PUNCH, 0, 2 * HUGE) == 0 && pool_is(4, 4, 2));
    CHECK(p[6] == 0 && p[5] == 0 && shared[5] == 0 && pool_is(4, 2, 1));
    CHECK(ftruncate(fd, HUGE) == 0 && pool_is(4, 2, 1) && p[6] == 0 && child_stores(p + HUGE, 3) == SIGBUS);
    CHECK(ftruncate(fd, 0) == 0 && pool_is(4, 4, 2) && child_stores(p, 3) == SIGBUS);
    CHECK(ftruncate(fd, HUGE) == 0 && p[6] == 0 && p[5] == 0 && pool_is(4, 3, 1));
    CHECK(munmap((void *)p, 2 * HUGE) == 0 && munmap((void *)shared, HUGE) == 0 && pool_is(4, 4, 0));
}

static void refusals(int fd) {
    const int rw = PROT_READ | PROT_WRITE;
    volatile char *p;
    CHECK(ftruncate(fd, 0) == 0 && map(fd, 5, rw, MAP_PRIVATE) == MAP_FAILED && errno == ENOMEM && pool_is(4, 4, 0));
    CHECK(mmap(0, HUGE, rw, MAP_PRIVATE, fd, PAGE) == MAP_FAILED && errno == EINVAL);
    /* A mapping that may not be written reserves, too, and leaves the file's size alone. */
    CHECK((p = map(fd, 2, PROT_READ, MAP_PRIVATE)) != MAP_FAILED && pool_is(4, 4, 2));
    struct stat about;
    CHECK(fstat(fd, &about) == 0 && about.st_size == 0 && child_stores(p, 1) == SIGSEGV && munmap((void *)p, 2 * HUGE) == 0);
    /* Without a reservation what others have reserved is not there. */
    CHECK((p = map(fd, 1, rw, MAP_PRIVATE | MAP_NORESERVE)) != MAP_FAILED && pool_is(4, 4, 0));
    volatile char *all = map(-1, 4, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    CHECK(all != MAP_FAILED && pool_is(4, 4, 4) && child_stores(p, 1) == SIGBUS);
    CHECK(munmap((void *)all, 4 * HUGE) == 0 && (p[0] = 1) && pool_is(4, 3, 0) && munmap((void *)p, HUGE) == 0);
    CHECK(pool_is(4, 4, 0));
}

/* A segment that is to go does so with its last attachment, also where another mapping takes its place. shmctl would end it
 * directly, so only the pool tells. */
static void replaced(void) {
    int first = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | 0600), second = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | 0600);
    char *p = shmat(first, 0, 0);
    CHECK(p != (char *)-1 && (p[0] = 1) && shmctl(first, IPC_RMID, 0) == 0 && pool_is(4, 3, 0));
    CHECK(shmat(second, p, SHM_REMAP) == p && pool_is(4, 4, 0));
    CHECK(shmdt(p) == 0 && shmctl(second, IPC_RMID, 0) == 0);
}

int main(void) {
    CHECK(set(NR, "4") == 0 && mkdir(AT, 0755) == 0 && mount("none", AT, "hugetlbfs", 0, 0) == 0);
    int fd = open(AT "/file", O_RDWR | O_CREAT, 0600), memory = memfd_create("huge", MFD_HUGETLB);
    CHECK(fd >= 0 && memory >= 0);
    for (int i = 0; i < 2; i++) {
        stores(i ? memory : fd);
        refusals(i ? memory : fd);
    }
    replaced();
    CHECK(close(fd) == 0 && close(memory) == 0 && umount(AT) == 0 && rmdir(AT) == 0 && set(NR, "0") == 0);
    CHECK(pool_is(0, 0, 0));
    puts("hugeprivate ok");
}
