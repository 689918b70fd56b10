/* Which error is told when several parts of a list (iovec(3type)) are bad: each pair of parts, for process_madvise(2),
   readv(2) and writev(2). Prints the answers; the test compares them with the host's. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <fcntl.h>
#include <sys/uio.h>

#define END 0x7ffffffff000ul
enum { COLD = 20 };

static char *memory, *room;
static int fds[3], wrong[3];

static struct part {
    const char *name;
    struct iovec is;
} parts[13];

static void make_parts(void) {
    const struct part all[] = {
        { "good", { memory, PAGE } },
        { "empty", { memory, 0 } },
        { "null", { 0, 0 } },
        { "negative", { memory, 1ul << 63 } },
        { "kernel", { (void *)(1ul << 63), PAGE } },
        { "empty kernel", { (void *)(1ul << 63), 0 } },
        { "odd", { memory + 1, PAGE } },
        { "empty odd", { memory + 1, 0 } },
        { "long", { room, 1ul << 50 } },
        { "2 GiB", { room, 1ul << 31 } },
        { "hole", { memory + 2 * PAGE, PAGE } },
        { "over the end", { (void *)(END - 1), 2 } },
        { "empty end", { (void *)END, 0 } },
    };
    memcpy(parts, all, sizeof all);
}

static long ask(int call, int fd, const void *list, unsigned long nr, int advice) {
    if (call == 0)
        return sys(440, fd, list, nr, advice, 0);
    return sys(call == 1 ? SYS_readv : SYS_writev, fd, list, nr);
}

static const char *const names[] = { "process_madvise", "readv", "writev" };

static void pairs(int call) {
    const int nr = sizeof parts / sizeof *parts;
    for (int i = 0; i < nr; i++) {
        SAY(ask(call, fds[call], &parts[i].is, 1, COLD), "%s %s", names[call], parts[i].name);
        SAY(ask(call, wrong[call], &parts[i].is, 1, COLD), "%s %s, wrong file", names[call], parts[i].name);
    }
    for (int i = 0; i < nr * nr; i++) {
        struct iovec list[3] = { parts[i / nr].is, parts[i % nr].is, parts[0].is };
        const char *first = parts[i / nr].name, *second = parts[i % nr].name;
        SAY(ask(call, fds[call], list, 2, COLD), "%s %s, %s", names[call], first, second);
        SAY(ask(call, fds[call], list, 3, COLD), "%s %s, %s, good", names[call], first, second);
        if (call == 0) {
            SAY(ask(call, fds[call], list, 2, 12345), "%s %s, %s, unknown advice", names[call], first, second);
            SAY(ask(call, wrong[call], list, 2, COLD), "%s %s, %s, wrong file", names[call], first, second);
        }
    }
}

/* The list itself, and its length. */
static void lists(int call) {
    struct iovec *last = (struct iovec *)(memory + 2 * PAGE) - 1;
    for (int i = 0; i < 2; i++) {
        *last = parts[i ? 3 : 0].is;
        SAY(ask(call, fds[call], last, 1, COLD), "%s, the last of memory, %d", names[call], i);
        SAY(ask(call, fds[call], last, 2, COLD), "%s, one more, %d", names[call], i);
    }
    const unsigned long numbers[] = { 0, 1024, 1025, 1ul << 32, 1ul << 63 };
    for (int i = 0; i < 5; i++)
        SAY(ask(call, fds[call], (void *)8, numbers[i], COLD), "%s, %lu of a list at 8", names[call], numbers[i]);
    SAY(ask(call, fds[call], (void *)(END - 16), 2, COLD), "%s, a list beyond the end", names[call]);
    SAY(ask(call, fds[call], (void *)-16ul, 2, COLD), "%s, a list that wraps", names[call]);
}

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    memory = mmap(0, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    room = mmap(0, 1ul << 32, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    munmap(memory + 2 * PAGE, PAGE);
    make_parts();
    fds[0] = sys(434, getpid(), 0);
    fds[1] = fds[2] = open("/dev/zero", O_RDWR);
    wrong[0] = wrong[1] = open("/dev/zero", O_WRONLY);
    wrong[2] = open("/dev/zero", O_RDONLY);
    for (int call = 0; call < 3; call++) {
        pairs(call);
        lists(call);
    }
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        SAY(sys(SYS_read, fds[1], parts[i].is.iov_base, parts[i].is.iov_len), "read %s", parts[i].name);
        SAY(sys(SYS_write, fds[1], parts[i].is.iov_base, parts[i].is.iov_len), "write %s", parts[i].name);
        SAY(sys(SYS_read, wrong[1], parts[i].is.iov_base, parts[i].is.iov_len), "read %s, wrong file", parts[i].name);
        SAY(sys(SYS_write, wrong[2], parts[i].is.iov_base, parts[i].is.iov_len), "write %s, wrong file", parts[i].name);
    }
    printf("done\n");
    return 0;
}
