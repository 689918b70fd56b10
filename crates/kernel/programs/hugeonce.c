/* Who reserves pages of a pool, and how often: a segment when it is made, or never, and each mapping of a file what the file lacks.
   The same on Linux, whose pool has to be empty before. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2 * MIB)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define PAGES 8
#define HUGETLB 04000
#define NO_RESERVE 010000

static sigjmp_buf back;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    siglongjmp(back, 1);
}

static int store(volatile char *p) {
    if (sigsetjmp(back, 1))
        return -1;
    *p = 1;
    return 0;
}

static int is_left(long free, long reserved) {
    return number_in(POOL "nr_hugepages") == PAGES && number_in(POOL "surplus_hugepages") == 0 &&
           number_in(POOL "free_hugepages") == free && number_in(POOL "resv_hugepages") == reserved;
}

/* Whether smaps says that the mapping reserves nothing. */
static int shows_no_reserve(const char *p) {
    char line[64];
    get("/proc/self/smaps");
    sprintf(line, "\n%lx-", (long)p);
    char *flags = strstr(text, line);
    CHECK(flags && (flags = strstr(flags, "VmFlags:")));
    *strchr(flags, '\n') = 0;
    return strstr(flags, " nr") != 0;
}

static int segment(long pages, int flags) {
    int id = shmget(IPC_PRIVATE, pages * HUGE, IPC_CREAT | 0600 | HUGETLB | flags);
    CHECK(id >= 0);
    return id;
}

static char *attach(int id, int flags) {
    char *p = shmat(id, 0, flags);
    CHECK(p != (char *)-1);
    return p;
}

static void end(int id, char *p, char *again) {
    CHECK(shmctl(id, IPC_RMID, 0) == 0 && shmdt(p) == 0 && (!again || shmdt(again) == 0) && is_left(PAGES, 0));
}

/* A child that stores to the page and ends. */
static void child_stores(char *p) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(store(p) != 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* A segment larger than the pool: nothing is reserved, and its pages are had as long as there are any. */
static void segment_without_reservation(void) {
    int id = segment(20, NO_RESERVE);
    CHECK(is_left(8, 0));
    char *p = attach(id, 0), *again = attach(id, SHM_RDONLY);
    CHECK(is_left(8, 0) && !shows_no_reserve(p) && !shows_no_reserve(again));
    CHECK(store(p) == 0 && is_left(7, 0));
    child_stores(p + HUGE);
    CHECK(is_left(6, 0) && p[HUGE] == 1 && again[HUGE] == 1);
    for (int i = 2; i < PAGES; i++)
        CHECK(store(p + i * HUGE) == 0);
    CHECK(is_left(0, 0) && store(p + PAGES * HUGE) == -1 && is_left(0, 0));
    CHECK(mremap(p, 2 * HUGE, 2 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 40 * HUGE) == p + 40 * HUGE && p[40 * HUGE] == 1);
    CHECK(is_left(0, 0) && munmap(p + 40 * HUGE, 2 * HUGE) == 0);
    end(id, p, again);
}

/* What a segment has reserved is its own: a hole takes only pages that were there, and no attachment takes them again. */
static void segment_with_reservation(void) {
    int id = segment(3, 0);
    CHECK(is_left(8, 3));
    char *p = attach(id, 0);
    CHECK(is_left(8, 3) && madvise(p, 3 * HUGE, MADV_REMOVE) == 0 && is_left(8, 3));
    CHECK(store(p) == 0 && is_left(7, 2) && madvise(p, 3 * HUGE, MADV_REMOVE) == 0 && is_left(8, 2));
    CHECK(shmdt(p) == 0 && is_left(8, 2));
    p = attach(id, 0);
    char *again = attach(id, SHM_RDONLY);
    CHECK(is_left(8, 2) && !shows_no_reserve(p));
    child_stores(p + HUGE);
    CHECK(is_left(7, 1) && store(p) == 0 && is_left(6, 1) && munmap(p, HUGE) == 0 && is_left(6, 1));
    end(id, p, again);
}

/* All of the pool is one segment's, which is attached often. */
static void whole_pool(void) {
    int id = segment(PAGES, 0);
    char *p = attach(id, 0), *again = attach(id, 0);
    CHECK(is_left(8, 8) && store(p) == 0 && madvise(p, HUGE, MADV_REMOVE) == 0 && is_left(8, 7));
    int other = segment(1, 0);
    CHECK(is_left(8, 8) && shmdt(again) == 0);
    again = attach(id, 0);
    CHECK(is_left(8, 8) && store(again) == -1 && store(again + HUGE) == 0 && is_left(7, 7));
    CHECK(shmctl(other, IPC_RMID, 0) == 0 && is_left(7, 6) && store(again) == 0);
    end(id, p, again);
}

/* A file has a reservation from the first mapping of a page that reserves. Mappings that do not use it, too. */
static void file(void) {
    int fd = memfd_create("once", MFD_HUGETLB);
    CHECK(fd >= 0 && ftruncate(fd, 4 * HUGE) == 0 && is_left(8, 0));
    char *free = mmap(0, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    CHECK(free != MAP_FAILED && shows_no_reserve(free) && store(free) == 0 && is_left(7, 0));
    char *two = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(two != MAP_FAILED && !shows_no_reserve(two) && is_left(7, 1));
    char *three = mmap(0, 3 * HUGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(three != MAP_FAILED && is_left(7, 2));
    CHECK(store(free + HUGE) == 0 && is_left(6, 1) && store(free + 3 * HUGE) == 0 && is_left(5, 1));
    CHECK(munmap(two, 2 * HUGE) == 0 && munmap(three, 3 * HUGE) == 0 && is_left(5, 1));
    CHECK(munmap(free, 4 * HUGE) == 0 && close(fd) == 0 && is_left(8, 0));
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGBUS, &action, 0) == 0 && number_in(POOL "nr_hugepages") == 0);
    CHECK(set(POOL "nr_hugepages", "8") == 0 && is_left(8, 0));
    segment_without_reservation();
    segment_with_reservation();
    whole_pool();
    file();
    CHECK(set(POOL "nr_hugepages", "0") == 0);
    puts("hugeonce ok");
    return 0;
}
