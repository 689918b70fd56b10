/* /proc/self/maps and smaps of many mappings: the text is whole however it is read, and the first page of it costs
   the same however many follow. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MANY 26000

static char text[64 << 20];

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Mappings that do not merge; one that is touched in four. */
static void make(int nr) {
    for (int i = 0; i < nr; i++) {
        char *p = mmap(0, PAGE, i & 1 ? PROT_READ | PROT_WRITE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        if (i % 4 == 1)
            *p = 1;
    }
}

static long read_all(const char *path, long part) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    long nr = 0, got;
    while ((got = read(fd, text + nr, part)) > 0)
        nr += got;
    CHECK(got == 0 && nr < (long)sizeof text);
    close(fd);
    text[nr] = 0;
    return nr;
}

static long count(const char *what) {
    long nr = 0;
    for (const char *p = text; (p = strstr(p, what)); p++)
        nr++;
    return nr;
}

/* The least time of several that a read of the first page takes. */
static long long head_ns(void) {
    long long least = -1;
    for (int i = 0; i < 20; i++) {
        static char page[PAGE + 1];
        long long start = now_ns();
        int fd = open("/proc/self/smaps", O_RDONLY);
        long got = read(fd, page, PAGE);
        page[got < 0 ? 0 : got] = 0;
        /* Whole mappings, as Linux gives them. */
        CHECK(fd >= 0 && got > 1000 && page[got - 1] == '\n' && strstr(page + got - 90, "VmFlags"));
        close(fd);
        long long took = now_ns() - start;
        if (least < 0 || took < least)
            least = took;
    }
    return least;
}

/* Each part of the text is what was there, in whatever order it is asked for. */
static void parts(const char *path) {
    static char again[8 * PAGE];
    memset(again, 1, sizeof again);
    long nr = read_all(path, 1 << 20);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    for (int i = 0; i < 40; i++) {
        long at = i * 7919L * 37 % nr, wanted = 1 + i * 613 % (long)sizeof again;
        long got = pread(fd, again, wanted, at);
        CHECK(got > 0 && memcmp(again, text + at, got) == 0);
    }
    CHECK(pread(fd, again, 1, nr) == 0 && pread(fd, again, 1, 1l << 40) == 0);
    close(fd);
}

int main(void) {
    make(1000);
    read_all("/proc/self/smaps", 1 << 20);
    long few = count("\nRss:");
    CHECK(few >= 1000);
    CHECK(read_all("/proc/self/smaps", 111) > 0 && count("\nRss:") == few);
    parts("/proc/self/maps");
    parts("/proc/self/smaps");
    long long with_few = head_ns();
    make(MANY - 1000);
    CHECK(read_all("/proc/self/maps", 1 << 20) > 0);
    long many = count("\n");
    CHECK(many >= MANY);
    /* More than would ever be kept at once. */
    CHECK(read_all("/proc/self/smaps", 1 << 16) > 16 << 20);
    CHECK(count("\nRss:") == many);
    long long with_many = head_ns();
    if (with_many > 8 * with_few)
        printf("the first page takes %lld ns with few mappings, %lld ns with many\n", with_few, with_many);
    CHECK(with_many <= 8 * with_few);
    printf("smaps ok\n");
    return 0;
}
