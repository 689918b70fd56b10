/* Private mappings of /dev/zero: anonymous memory with a name and an offset. Prints lines of /proc/self/maps, with
   pages relative to a place; the test compares them with the host's. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
enum { RW = PROT_READ | PROT_WRITE, ZERO = MAP_PRIVATE | MAP_FIXED, ANON = ZERO | MAP_ANONYMOUS, WAKE = 1 };

static char *place;
static int zero;

static char *map(unsigned long at, unsigned long nr, int flags, unsigned long offset_pages) {
    int fd = flags & MAP_ANONYMOUS ? -1 : zero;
    char *p = mmap(place + at * PAGE, nr * PAGE, RW, flags, fd, offset_pages * PAGE);
    CHECK(p == place + at * PAGE);
    return p;
}

/* The lines of the `nr` pages at `at`, which say what stat(2) says of the file. */
static void say(const char *what, unsigned long at, unsigned long nr) {
    char line[512], rights[5], path[256];
    unsigned long start, end, offset, number, low = (unsigned long)place + at * PAGE;
    unsigned major, minor;
    struct stat of;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file && stat("/dev/zero", &of) == 0);
    printf("%s:", what);
    while (fgets(line, sizeof line, file)) {
        *path = 0;
        int got = sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %255[^\n]", &start, &end, rights, &offset, &major, &minor,
                         &number, path);
        CHECK(got >= 7);
        if (end <= low || start >= low + nr * PAGE)
            continue;
        printf(" [%lu %lu %s %lx %s]", (start - low) / PAGE, (end - low) / PAGE, rights, offset, path);
        if (*path)
            CHECK(number == of.st_ino && makedev(major, minor) == of.st_dev);
    }
    printf("\n");
    CHECK(fclose(file) == 0);
}

static void neighbours(void) {
    map(0, 2, ZERO, 0);
    map(2, 2, ZERO, 0);
    say("two from the beginning", 0, 4);
    map(2, 2, ZERO, 2);
    say("the second continues", 0, 4);
    CHECK(mprotect(place + PAGE, PAGE, PROT_READ) == 0);
    say("rights that differ", 0, 4);
    CHECK(mprotect(place + PAGE, PAGE, RW) == 0);
    say("the same again", 0, 4);
    map(1, 1, ANON, 0);
    say("anonymous memory between", 0, 4);
    map(1, 1, ZERO, 5);
    say("another offset between", 0, 4);
    map(4, 1, ZERO, (1ul << 51) - 1);
    say("a far offset", 4, 1);
    CHECK(mmap(0, PAGE, RW, MAP_PRIVATE, zero, (off_t)(0ul - PAGE)) == MAP_FAILED && errno == EOVERFLOW);
    CHECK(mmap(0, PAGE, RW, MAP_PRIVATE | MAP_GROWSDOWN, zero, 0) == MAP_FAILED && errno == EINVAL);
}

/* Stores stay in the process, move with their pages, and are in a child as the parent left them. */
static void contents(void) {
    char *p = map(10, 4, ZERO, 3);
    for (int i = 0; i < 4; i++)
        p[i * PAGE] += i + 1;
    CHECK(mremap(p + 2 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 20 * PAGE) != MAP_FAILED);
    say("what stays", 10, 4);
    say("what has moved", 20, 2);
    CHECK(p[0] == 1 && p[PAGE] == 2 && place[20 * PAGE] == 3 && place[21 * PAGE] == 4);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        say("in a child", 10, 4);
        p[0]++;
        CHECK(p[0] == 2 && p[1] == 0 && place[20 * PAGE] == 3 && close(zero) == 0);
        say("closed", 10, 4);
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && p[0] == 1);
}

/* A page that may not be written, where no thread could be woken by another process. */
static void futexes(void) {
    int *p = (int *)map(30, 1, ZERO, 0);
    CHECK(syscall(SYS_futex, p, WAKE, 1, 0, 0, 0) == 0);
    CHECK(mprotect(p, PAGE, PROT_READ) == 0 && syscall(SYS_futex, p, WAKE, 1, 0, 0, 0) == -1 && errno == EFAULT);
    CHECK(munmap(p, PAGE) == 0);
    p = (int *)map(30, 1, ZERO, 0);
    CHECK(mprotect(p, PAGE, PROT_READ) == 0 && syscall(SYS_futex, p, WAKE, 1, 0, 0, 0) == -1 && errno == EFAULT);
}

int main(void) {
    place = mmap(0, 66 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zero = open("/dev/zero", O_RDONLY);
    CHECK(place != MAP_FAILED && zero >= 0);
    place += PAGE;
    neighbours();
    contents();
    futexes();
    printf("done\n");
    return 0;
}
