/* Touches more memory than there is: by itself, or, with the argument "read" or "write", by calls that copy to or from it. With
   "children" these have most of it, and a call of their parent, which may not be killed, takes it from one after the other. */
#include "check.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One byte in each GiB: tables are what runs out. */
static void copy(int writes) {
    const size_t step = 1ul << 30, nr = 100000;
    int file = open("/tmp/oom", O_CREAT | O_RDWR, 0600);
    char *p = mmap(0, nr * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED && pwrite(file, "a", 1, 0) == 1);
    for (size_t i = 0; i < nr; i++)
        CHECK((writes ? pwrite(file, p + i * step, 1, 0) : pread(file, p + i * step, 1, 0)) == 1);
}

static void take_from_children(void) {
    const size_t own = 20ul << 20, all = 3 * own;
    int ready[2], zero = open("/dev/zero", O_RDONLY), adjust = open("/proc/self/oom_score_adj", O_WRONLY);
    CHECK(zero >= 0 && adjust >= 0 && pipe(ready) == 0);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            volatile char *p = mmap(0, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (size_t at = 0; at < own; at += 4096)
                p[at] = 1;
            CHECK(write(ready[1], "r", 1) == 1);
            for (;;)
                pause();
        }
    char c;
    for (int i = 0; i < 3; i++)
        CHECK(read(ready[0], &c, 1) == 1);
    CHECK(write(adjust, "-1000", 5) == 5);
    char *p = mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(read(zero, p, all) == (ssize_t)all);
    puts("read");
}

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "children")) {
        take_from_children();
        return 0;
    }
    if (argc > 1) {
        copy(!strcmp(argv[1], "write"));
        return 1;
    }
    for (;;) {
        volatile char *p = mmap(0, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 1;
        for (long i = 0; i < 1 << 24; i += 4096)
            p[i] = 1;
    }
}
