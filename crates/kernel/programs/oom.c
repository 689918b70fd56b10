/* Touches more memory than there is. */
#include "check.h"
#include <sys/mman.h>

int main(void) {
    puts("before");
    fflush(stdout);
    for (;;) {
        volatile char *p = mmap(0, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 1;
        for (long i = 0; i < 1 << 24; i += 4096)
            p[i] = 1;
    }
}
