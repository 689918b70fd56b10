/* The calls about memory, each with what it is for. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

static char *map(long nr_pages, int flags) {
    char *p = mmap(0, nr_pages * PAGE, RW, MAP_ANONYMOUS | flags, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void grow_and_move(void) {
    char *p = map(4, MAP_PRIVATE);
    for (int i = 0; i < 4; i++)
        p[i * PAGE] = i + 1;
    char *q = mremap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED);
    for (int i = 0; i < 4; i++)
        CHECK(q[i * PAGE] == i + 1);
    CHECK(q[63 * PAGE] == 0);
    char *r = map(64, MAP_PRIVATE);
    CHECK(mremap(q, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, r) == r && r[2 * PAGE] == 3);
    CHECK(mremap(r, 64 * PAGE, 2 * PAGE, 0) == r && r[PAGE] == 2);
    CHECK(munmap(r, 2 * PAGE) == 0);
}

static void heap(void) {
    char *start = (char *)syscall(SYS_brk, 0);
    char *end = (char *)syscall(SYS_brk, start + 100 * PAGE);
    CHECK(end == start + 100 * PAGE);
    memset(start, 7, 100 * PAGE);
    CHECK((char *)syscall(SYS_brk, start) == start);
    CHECK((char *)syscall(SYS_brk, start + PAGE) == start + PAGE && *start == 0);
}

static void advice(void) {
    char *p = map(8, MAP_PRIVATE);
    memset(p, 9, 8 * PAGE);
    CHECK(madvise(p + PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
    CHECK(p[0] == 9 && p[PAGE] == 0 && p[3 * PAGE - 1] == 0 && p[3 * PAGE] == 9);
    unsigned char resident[8];
    char *q = map(8, MAP_PRIVATE);
    q[2 * PAGE] = 1;
    CHECK(mincore(q, 8 * PAGE, resident) == 0);
    for (int i = 0; i < 8; i++)
        CHECK((resident[i] & 1) == (i == 2));
    CHECK(madvise(q, 8 * PAGE, 23 /* MADV_POPULATE_WRITE */) == 0);
    CHECK(mincore(q, 8 * PAGE, resident) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(resident[i] & 1);
    CHECK(madvise(q + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    CHECK(munmap(p, 8 * PAGE) == 0 && munmap(q, 8 * PAGE) == 0);
}

static void errors(void) {
    char *p = map(2, MAP_SHARED);
    strcpy(p, "shared");
    CHECK(syscall(SYS_mprotect, p + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
    CHECK(munmap(p, 0) == -1 && errno == EINVAL);
    CHECK(mmap(p, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000 /* MAP_FIXED_NOREPLACE */, -1, 0) == MAP_FAILED);
    CHECK(errno == EEXIST);
    CHECK(mmap(0, PAGE, RW, MAP_PRIVATE, 5, 0) == MAP_FAILED && errno == EBADF);
    CHECK(mmap(0, 1UL << 62, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(munmap(p, 2 * PAGE) == 0);
    CHECK(mprotect(p, PAGE, PROT_READ) == -1 && errno == ENOMEM);
}

int main(void) {
    grow_and_move();
    heap();
    advice();
    errors();
    puts("memory ok");
    return 0;
}
