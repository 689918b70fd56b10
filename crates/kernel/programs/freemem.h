/* The machine's free memory. */
#include <sys/sysinfo.h>

static unsigned long free_bytes(void) {
    struct sysinfo info;
    sysinfo(&info);
    return info.freeram * info.mem_unit;
}
