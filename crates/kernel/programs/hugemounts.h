/* Definitions for the programs on hugetlbfs: where it is mounted, and the counts of the pool. After hugefiles.h. */
#define HUGE (2 * MIB)
#define AT "/tmp/huge"
#define NR "/proc/sys/vm/nr_hugepages"
#define PUNCH 3

/* Whether the pool has so many pages, free and reserved. */
static int pool_is(long nr, long free, long reserved) {
    long there[] = {of_file("/proc/meminfo", "HugePages_Total:"), of_file("/proc/meminfo", "HugePages_Free:"),
                    of_file("/proc/meminfo", "HugePages_Rsvd:")};
    if (there[0] == nr && there[1] == free && there[2] == reserved)
        return 1;
    printf("%ld pages, %ld free, %ld reserved\n", there[0], there[1], there[2]);
    return 0;
}
