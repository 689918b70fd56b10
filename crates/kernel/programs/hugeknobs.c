/* The knobs of huge pages are files where Linux has them: words and numbers, what is refused, who inherits. `enabled`
   is to be the first argument at the beginning, or `off`: always `never`. The second is the size of the pool of huge pages. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int is(const char *path, const char *wanted) {
    if (strcmp(get(path), wanted) == 0)
        return 1;
    printf("%s: %s\n", path, text);
    return 0;
}

static int mode(const char *path) {
    struct stat about;
    CHECK(stat(path, &about) == 0 && about.st_uid == 0);
    return about.st_mode & 0777;
}

/* Each word can be set; no other can, and nothing changes then. */
static void words(const char *path, const char *const *all, int is_off) {
    char shown[128], before[128];
    CHECK(mode(path) == 0644);
    for (int i = 0; all[i]; i++) {
        if (is_off && strcmp(all[i], "never") && strcmp(all[i], "inherit")) {
            CHECK(set(path, all[i]) == EINVAL);
            continue;
        }
        CHECK(set(path, all[i]) == 0);
        shown[0] = 0;
        for (int j = 0; all[j]; j++)
            sprintf(shown + strlen(shown), i == j ? "%s[%s]" : "%s%s", j ? " " : "", all[j]);
        CHECK(is(path, shown));
    }
    strcpy(before, get(path));
    const char *wrong[] = {"sometimes", "Always", "always ", " always", "never\n\n", "[never]", "1", "\n", 0};
    for (int i = 0; wrong[i]; i++)
        CHECK(set(path, wrong[i]) == EINVAL && is(path, before));
    strcpy(shown, all[0]);
    strcat(shown, "\n");
    CHECK(is_off || set(path, shown) == 0);
    CHECK(set(path, "") == 0);
}

static void number(const char *name, const char *first, const char *good, const char *const *wrong) {
    char path[128];
    sprintf(path, TOP "%s", name);
    CHECK(mode(path) == 0644 && is(path, first));
    CHECK(set(path, good) == 0 && is(path, good));
    for (int i = 0; wrong[i]; i++)
        CHECK(set(path, wrong[i]) == EINVAL && is(path, good));
    CHECK(set(path, first) == 0 && is(path, first));
}

#include "hugepools.h"

static const char *const TOP_WORDS[] = {"always", "madvise", "never", 0};
static const char *const SHMEM_WORDS[] = {"always", "within_size", "advise", "never", "deny", "force", 0};
static const char *const SIZE_WORDS[] = {"always", "inherit", "madvise", "never", 0};
static const char *const DEFRAG_WORDS[] = {"always", "defer", "defer+madvise", "madvise", "never", 0};
static const char *const NO_FLAG[] = {"2", "-1", "\n", "yes", "0 ", 0};
static const char *const NO_NUMBER[] = {"4294967296", "-1", "one", "1 ", "0x10", "1.5", 0};
static const char *const NO_ENTRIES[] = {"512", "-1", "many", 0};
static const char *const NO_PAGES[] = {"0", "4294967296", "-1", "x", 0};

static void numbers(void) {
    number("use_zero_page", "1", "0", NO_FLAG);
    number("khugepaged/defrag", "1", "0", NO_FLAG);
    number("khugepaged/pages_to_scan", "4096", "4294967295", NO_PAGES);
    number("khugepaged/scan_sleep_millisecs", "10000", "4294967295", NO_NUMBER);
    number("khugepaged/alloc_sleep_millisecs", "60000", "0", NO_NUMBER);
    number("khugepaged/max_ptes_none", "511", "0", NO_ENTRIES);
    number("khugepaged/max_ptes_swap", "64", "511", NO_ENTRIES);
    number("khugepaged/max_ptes_shared", "256", "1", NO_ENTRIES);
    CHECK(set(TOP "use_zero_page", "18446744073709551616") == ERANGE && is(TOP "use_zero_page", "1"));
    CHECK(is(TOP "shrink_underused", "1") && set(TOP "shrink_underused", "off\n") == 0);
    CHECK(is(TOP "shrink_underused", "0") && set(TOP "shrink_underused", "maybe") == EINVAL);
    CHECK(set(TOP "shrink_underused", "y") == 0 && is(TOP "shrink_underused", "1"));
    CHECK(is(TOP "hpage_pmd_size", "2097152") && mode(TOP "hpage_pmd_size") == 0444);
    CHECK(set(TOP "hpage_pmd_size", "4096") == EACCES);
}

static void sizes(int is_off) {
    for (int kib = 8; kib <= 4096; kib *= 2) {
        char path[128];
        sprintf(path, TOP "hugepages-%dkB/enabled", kib);
        if (kib < 16 || kib > 2048) {
            CHECK(access(path, F_OK) == -1 && errno == ENOENT);
            continue;
        }
        CHECK(is(path, kib == 2048 ? "always [inherit] madvise never" : "always inherit madvise [never]"));
        words(path, SIZE_WORDS, is_off);
        CHECK(set(path, kib == 2048 ? "inherit" : "never") == 0);
        const char *counters[] = {"anon_fault_alloc", "anon_fault_fallback", "split"};
        for (int i = 0; i < 3; i++) {
            sprintf(path, TOP "hugepages-%dkB/stats/%s", kib, counters[i]);
            CHECK(mode(path) == 0444 && get(path)[0] >= '0' && text[0] <= '9');
            CHECK(open(path, O_WRONLY) == -1 && errno == EACCES);
        }
    }
}

/* Which mappings may get huge pages, by knobs, advice and size. */
static void eligible(void) {
    char *p = mmap(0, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    char *big = (char *)(((long)p + 2 * MIB - 1) & -(2 * MIB));
    char *small = big + 4 * MIB;
    /* A hole on each side, so that each is a mapping of its own. */
    CHECK(munmap(p, big - p) == 0 || big == p);
    CHECK(munmap(big + 2 * MIB, 2 * MIB) == 0 && munmap(small + 65536, p + 8 * MIB - (small + 65536)) == 0);
    CHECK(set(TOP "enabled", "madvise") == 0);
    CHECK(of_mapping(big, "THPeligible:") == 0);
    CHECK(madvise(big, 2 * MIB, MADV_HUGEPAGE) == 0 && madvise(small, 65536, MADV_HUGEPAGE) == 0);
    CHECK(of_mapping(big, "THPeligible:") == 1 && of_mapping(small, "THPeligible:") == 0);
    CHECK(set(TOP "hugepages-64kB/enabled", "madvise") == 0);
    CHECK(of_mapping(small, "THPeligible:") == 1);
    CHECK(set(TOP "hugepages-64kB/enabled", "never") == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    CHECK(of_mapping(big, "THPeligible:") == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
    CHECK(of_mapping(big, "THPeligible:") == 1);
    CHECK(set(TOP "enabled", "always") == 0 && madvise(big, 2 * MIB, MADV_NOHUGEPAGE) == 0);
    CHECK(of_mapping(big, "THPeligible:") == 0);
    CHECK(munmap(big, 2 * MIB) == 0 && munmap(small, 65536) == 0);
}

/* Huge pages refused by a process: by its children, and by what it runs, too. */
static void refusal(const char *self) {
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0 && of_file("/proc/self/status", "THP_enabled:") == 1);
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 1) == -1 && errno == EINVAL);
    CHECK(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0) == -1 && errno == EINVAL);
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 7, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 && of_file("/proc/self/status", "THP_enabled:") == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
        execl(self, self, "refused", NULL);
        _exit(1);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid && result == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0 && of_file("/proc/self/status", "THP_enabled:") == 1);
    if ((pid = fork()) == 0) {
        CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &result, 0) == pid && result == 0);
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
}

static void counters(void) {
    const char *names[] = {"thp_fault_alloc", "thp_fault_fallback", "thp_collapse_alloc", "thp_split_page",
                           "thp_split_pmd", "thp_zero_page_alloc", "thp_scan_exceed_none_pte", "compact_stall",
                           "compact_success", "compact_fail", "pgmigrate_success", 0};
    get("/proc/vmstat");
    for (int i = 0; names[i]; i++) {
        char line[64];
        sprintf(line, "\n%s ", names[i]);
        CHECK(strstr(text, line));
    }
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    if (strcmp(argv[1], "refused") == 0)
        return !(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 && of_file("/proc/self/status", "THP_enabled:") == 0);
    int is_off = strcmp(argv[1], "off") == 0;
    char now[32];
    sprintf(now, "[%s]", is_off ? "never" : argv[1]);
    CHECK(strstr(get(TOP "enabled"), now));
    CHECK(is(TOP "defrag", "always defer defer+madvise [madvise] never"));
    words(TOP "defrag", DEFRAG_WORDS, 0);
    CHECK(is(TOP "shmem_enabled", "always within_size advise [never] deny force"));
    words(TOP "shmem_enabled", SHMEM_WORDS, 0);
    CHECK(set(TOP "shmem_enabled", "never") == 0);
    numbers();
    sizes(is_off);
    words(TOP "enabled", TOP_WORDS, is_off);
    CHECK(!is_off || is(TOP "enabled", "always madvise [never]"));
    counters();
    refusal(argv[0]);
    if (!is_off)
        eligible();
    if (argc == 3)
        pools(argv[2]);
    puts("hugeknobs ok");
}
