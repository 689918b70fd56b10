/* Private huge pages after fork(2), in a pool without a free page: a child reads until the owner of the reservation stores, who
   then has the page. The same on Linux, whose pool has to be empty before. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2 * MIB)
#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static sigjmp_buf back;

static void on_bus(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    siglongjmp(back, info->si_code == BUS_ADRERR ? 1 : 2);
}

/* The byte, or the negative code of a bus error: -1 is BUS_ADRERR. */
static int load(volatile char *p) {
    int code = sigsetjmp(back, 1);
    return code ? -code : *p;
}

static int store(volatile char *p, char value) {
    int code = sigsetjmp(back, 1);
    if (code)
        return -code;
    *p = value;
    return 0;
}

static int is_left(long free, long reserved) {
    return number_in(POOL "free_hugepages") == free && number_in(POOL "resv_hugepages") == reserved;
}

static char *map(long pages, int flags) {
    char *p = mmap(0, pages * HUGE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_HUGETLB | flags, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* A child that does one thing at each step that its parent allows. */
struct child {
    pid_t pid;
    int go, said;
};

static struct child begin(int (*steps[])(char *), char *p) {
    int go[2], said[2];
    CHECK(pipe(go) == 0 && pipe(said) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char x;
        close(go[1]);
        for (; *steps && read(go[0], &x, 1) == 1; steps++)
            if (!(*steps)(p) || write(said[1], "x", 1) != 1)
                _exit(1);
        _exit(*steps ? 2 : 0);
    }
    close(go[0]), close(said[1]);
    return (struct child){pid, go[1], said[0]};
}

static int step(struct child *child) {
    char x;
    return write(child->go, "x", 1) == 1 && read(child->said, &x, 1) == 1;
}

static int end(struct child *child) {
    int status;
    close(child->go), close(child->said);
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    return status;
}

static int reads_both(char *p) {
    return load(p) == 'p' && load(p + HUGE) == 'p' && store(p + HUGE, 'c') == -1 && load(p + HUGE) == 'p';
}

static int has_lost_one(char *p) {
    unsigned char resident[2 * HUGE / 4096];
    CHECK(mincore(p, 2 * HUGE, resident) == 0);
    return load(p) == -1 && store(p, 'c') == -1 && load(p + HUGE) == 'p' && !resident[0] && resident[HUGE / 4096];
}

static int has_lost_one_for_good(char *p) {
    return madvise(p, HUGE, MADV_DONTNEED) == 0 && load(p) == -1 && munmap(p, HUGE) == 0 && load(p + HUGE) == 'p';
}

/* The owner stores to one page, and ends the other one's sharing by the end of its child. */
static void owner_keeps(void) {
    char *p = map(2, MAP_PRIVATE);
    CHECK(is_left(2, 2) && mmap(0, HUGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED);
    memset(p, 'p', 2 * HUGE);
    int (*steps[])(char *) = {reads_both, has_lost_one, has_lost_one_for_good, 0};
    struct child child = begin(steps, p);
    CHECK(step(&child) && is_left(0, 0) && store(p + 5, 'o') == 0 && is_left(0, 0) && step(&child) && step(&child));
    CHECK(end(&child) == 0 && p[5] == 'o' && p[6] == 'p' && store(p + HUGE, 'q') == 0 && p[HUGE + 1] == 'p');
    CHECK(munmap(p, 2 * HUGE) == 0 && is_left(2, 0));
}

static int stores(char *p) {
    return load(p) == 'p' && store(p, 'c') == 0 && load(p) == 'c' && load(p + 1) == 'p';
}

/* With a free page the child has a copy, and the parent stores in place. */
static void child_copies(void) {
    char *p = map(1, MAP_PRIVATE);
    memset(p, 'p', HUGE);
    int (*steps[])(char *) = {stores, 0};
    struct child child = begin(steps, p);
    CHECK(is_left(1, 0) && step(&child) && store(p + 1, 'o') == 0 && end(&child) == 0);
    CHECK(p[0] == 'p' && p[1] == 'o' && is_left(1, 0) && munmap(p, HUGE) == 0 && is_left(2, 0));
}

static int reads(char *p) {
    return load(p) == 'p' && store(p, 'c') == -1 && load(p) == 'p';
}

static int stores_alone(char *p) {
    return store(p, 'c') == 0 && load(p + 1) == 'p';
}

/* Nobody owns the page when its owner has unmapped it, or reserves nothing; who has it alone stores. */
static void nobody_owns(void) {
    char *p = map(2, MAP_PRIVATE | MAP_NORESERVE);
    memset(p, 'p', 2 * HUGE);
    int (*steps[])(char *) = {reads, reads, stores_alone, 0};
    struct child child = begin(steps, p);
    CHECK(step(&child) && store(p, 'o') == -1 && step(&child) && munmap(p, HUGE) == 0 && step(&child) && end(&child) == 0);
    CHECK(p[HUGE] == 'p' && munmap(p + HUGE, HUGE) == 0 && is_left(2, 0));
}

/* All children of an owner lose the page at once, and a later one shows what there is. */
static void several_children(void) {
    char *p = map(2, MAP_PRIVATE);
    memset(p, 'p', 2 * HUGE);
    int (*steps[])(char *) = {reads_both, has_lost_one, 0};
    struct child children[20];
    for (int i = 0; i < 20; i++)
        children[i] = begin(steps, p);
    for (int i = 0; i < 20; i++)
        CHECK(step(&children[i]));
    CHECK(store(p, 'p') == 0);
    for (int i = 0; i < 20; i++)
        CHECK(step(&children[i]) && end(&children[i]) == 0);
    int (*late[])(char *) = {reads_both, 0};
    struct child child = begin(late, p);
    CHECK(step(&child) && end(&child) == 0 && munmap(p, 2 * HUGE) == 0 && is_left(2, 0));
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGBUS, &action, 0) == 0 && number_in(POOL "nr_hugepages") == 0);
    CHECK(set(POOL "nr_hugepages", "2") == 0 && is_left(2, 0));
    owner_keeps();
    child_copies();
    nobody_owns();
    several_children();
    CHECK(set(POOL "nr_hugepages", "0") == 0);
    puts("hugefork ok");
    return 0;
}
