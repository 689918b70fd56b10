/* Touches more memory than there is: by itself, or, with the argument "read" or "write", by calls that copy to or from it. */
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

int main(int argc, char **argv) {
    puts("before");
    fflush(stdout);
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
