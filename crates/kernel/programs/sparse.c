/* A gibibyte mapped, ten pages of it touched: about ten faults. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>

int main(void) {
    const unsigned long bytes = 1UL << 30;
    volatile char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    for (unsigned long i = 0; i < 10; i++)
        p[i * (bytes / 10)] = i;
    for (unsigned long i = 0; i < 10; i++)
        CHECK(p[i * (bytes / 10)] == (char)i);
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(usage.ru_minflt >= 10 && usage.ru_minflt < 200 && usage.ru_majflt == 0);
    puts("sparse ok");
    return 0;
}
