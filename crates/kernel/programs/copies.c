/* Buffers that end in the middle: each call that copies, up to the last byte of memory, over it, and behind it. Prints what each
   call gives, what has come, and where the file is afterwards; the test compares the lines with the host's. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

enum { NR_PAGES = 4 };

/* `NR_PAGES` pages to `edge`, behind which nothing is mapped, and a page behind that which may only be read. */
static char *memory, *edge, *read_only;

/* The bytes of memory that differ from `fill`, up to the edge. */
static unsigned long changed(char fill) {
    unsigned long nr = 0;
    for (char *p = memory; p < edge; p++)
        nr += *p != fill;
    return nr;
}

/* How far the parts of a call reach over the edge, and how many bytes lie before it. */
static const struct {
    long before, len;
} spans[] = { { 4, 4 },          { 4, 8 },          { 1, 2 },        { 0, 1 },          { 0, 0 },    { -1, 1 },
              { PAGE, PAGE + 1 }, { PAGE + 7, 9000 }, { 9000, 20000 }, { 9000, 9001 }, { 1, 5000 }, { 64, 128 } };
enum { NR_SPANS = sizeof spans / sizeof *spans, NR_LISTS = 5 };

/* Lists of parts around the edge. */
static int list_of(int which, struct iovec *list) {
    const struct iovec lists[NR_LISTS][3] = {
        { { edge - 1, 1 }, { edge, 2 }, { memory, 1 } },      { { edge, 1 }, { memory, 1 }, { memory, 1 } },
        { { edge - 3, 3 }, { memory, 0 }, { edge - 2, 4 } },  { { memory, 5000 }, { edge - 10, 20 }, { memory, 1 } },
        { { edge - 1, 2 }, { memory, 9000 }, { edge, 0 } },
    };
    memcpy(list, lists[which], sizeof lists[which]);
    return 3;
}

/* Files and what is asked of them. */
static int file, pipes[2], sockets[2], event;

static void refill(const char *what, int fd, unsigned long bytes) {
    static char text[5 * PAGE];
    for (unsigned long i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 23);
    if (write(fd, text, bytes) != (long)bytes)
        printf("%s is not filled\n", what);
}

static unsigned long waiting(int fd) {
    int nr = -1;
    ioctl(fd, FIONREAD, &nr);
    return (unsigned)nr;
}

static void drain(int fd) {
    static char all[16 * PAGE];
    while (waiting(fd) > 0 && read(fd, all, sizeof all) > 0)
        ;
}

/* A file that stays, read and written at its own position and at another. */
static void files(const char *name, int fd, int has_position) {
    for (int i = 0; i < NR_SPANS; i++) {
        char *at = edge - spans[i].before;
        memset(memory, '-', NR_PAGES * PAGE);
        lseek(fd, 0, SEEK_SET);
        SAY(sys(SYS_read, fd, at, spans[i].len), "%s, read %ld of %ld", name, spans[i].before, spans[i].len);
        if (has_position) {
            printf("%s: at %ld, %lu bytes have come\n", name, (long)lseek(fd, 0, SEEK_CUR), changed('-'));
            SAY(sys(SYS_pread64, fd, at, spans[i].len, 3), "%s, pread %ld of %ld", name, spans[i].before, spans[i].len);
            printf("%s: at %ld\n", name, (long)lseek(fd, 0, SEEK_CUR));
        }
    }
    for (int i = 0; i < NR_LISTS; i++) {
        struct iovec list[3];
        int nr = list_of(i, list);
        lseek(fd, 0, SEEK_SET);
        SAY(sys(SYS_readv, fd, list, nr), "%s, readv %d", name, i);
        if (has_position) {
            printf("%s: at %ld\n", name, (long)lseek(fd, 0, SEEK_CUR));
            SAY(sys(SYS_preadv, fd, list, nr, 5000, 0), "%s, preadv %d", name, i);
        }
    }
    SAY(sys(SYS_read, fd, read_only, 1), "%s, read to a page that may not be written", name);
    SAY(sys(SYS_read, fd, memory, 1), "%s, read as ever", name);
}

static void stores(const char *name, int fd, int is_plain) {
    memset(memory, 'm', NR_PAGES * PAGE);
    for (int i = 0; i < NR_SPANS; i++) {
        char *at = edge - spans[i].before;
        for (int hole = 0; hole <= 9000 && (is_plain || hole == 0); hole += 4500) {
            if (is_plain && ftruncate(fd, 0) == 0)
                lseek(fd, hole, SEEK_SET);
            SAY(sys(SYS_write, fd, at, spans[i].len), "%s, write %ld of %ld", name, spans[i].before, spans[i].len);
            if (!is_plain)
                continue;
            printf("%s: at %ld\n", name, (long)lseek(fd, 0, SEEK_CUR));
            /* Since 6.16 a write of no byte behind the end makes a file of tmpfs longer, although it fails. */
            if (spans[i].before > 0)
                printf("%s: size %ld\n", name, (long)lseek(fd, 0, SEEK_END));
            if (ftruncate(fd, 100) == 0)
                SAY(sys(SYS_pwrite64, fd, at, spans[i].len, 10), "%s, pwrite %ld of %ld", name, spans[i].before, spans[i].len);
            printf("%s: size %ld\n", name, (long)lseek(fd, 0, SEEK_END));
        }
    }
    for (int i = 0; i < NR_LISTS; i++) {
        struct iovec list[3];
        int nr = list_of(i, list);
        SAY(sys(SYS_writev, fd, list, nr), "%s, writev %d", name, i);
        if (is_plain)
            printf("%s: size %ld\n", name, (long)lseek(fd, 0, SEEK_END));
    }
    struct iovec empty[2] = { { memory, 0 }, { memory, 0 } };
    SAY(sys(SYS_writev, fd, empty, 2), "%s, writev of nothing", name);
}

/* Nothing is lost that was not read. */
static void streams(const char *name, int from, int to) {
    static const unsigned long amounts[] = { 4, 6, 100, PAGE, 5000, 9000, 3 * PAGE };
    for (int i = 0; i < NR_SPANS; i++) {
        for (int j = 0; j < (int)(sizeof amounts / sizeof *amounts); j++) {
            drain(from);
            refill(name, to, amounts[j]);
            memset(memory, '-', NR_PAGES * PAGE);
            SAY(sys(SYS_read, from, edge - spans[i].before, spans[i].len), "%s of %lu, read %ld of %ld", name, amounts[j],
                spans[i].before, spans[i].len);
            printf("%s: %lu left\n", name, waiting(from));
            if (waiting(from) > 0) {
                char next;
                if (read(from, &next, 1) == 1)
                    printf("%s: next is %c\n", name, next);
            }
        }
    }
    for (int i = 0; i < NR_LISTS; i++) {
        struct iovec list[3];
        int nr = list_of(i, list);
        drain(from);
        refill(name, to, 10000);
        SAY(sys(SYS_readv, from, list, nr), "%s, readv %d", name, i);
        printf("%s: %lu left\n", name, waiting(from));
    }
    /* Begun in the middle of a page. */
    for (int i = 0; i < NR_SPANS; i++) {
        drain(from);
        refill(name, to, 9000);
        if (read(from, memory, 100) != 100)
            printf("%s has no 100 bytes\n", name);
        SAY(sys(SYS_read, from, edge - spans[i].before, spans[i].len), "%s behind 100, read %ld of %ld", name, spans[i].before,
            spans[i].len);
        printf("%s: %lu left\n", name, waiting(from));
    }
    memset(memory, 'm', NR_PAGES * PAGE);
    for (int i = 0; i < NR_SPANS; i++) {
        for (int before = 0; before < 2; before++) {
            drain(from);
            refill(name, to, before ? 10 : 0);
            SAY(sys(SYS_write, to, edge - spans[i].before, spans[i].len), "%s with %d, write %ld of %ld", name, before * 10,
                spans[i].before, spans[i].len);
            printf("%s: %lu inside\n", name, waiting(from));
        }
    }
    for (int i = 0; i < NR_LISTS; i++) {
        struct iovec list[3];
        int nr = list_of(i, list);
        drain(from);
        SAY(sys(SYS_writev, to, list, nr), "%s, writev %d", name, i);
        printf("%s: %lu inside\n", name, waiting(from));
    }
    drain(from);
}

/* A pipe that is empty, full, or without its other end is told of before the address. */
static void ends(void) {
    struct iovec bad = { edge, 1 };
    int alone[2];
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        if ((i ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, alone) : pipe2(alone, O_NONBLOCK)) != 0)
            printf("no ends\n");
        SAY(sys(SYS_read, alone[0], edge, 1), "end %d, read of nothing", i);
        while (write(alone[1], memory, PAGE) > 0)
            ;
        SAY(sys(SYS_write, alone[1], edge, 1), "end %d, write into a full one", i);
        SAY(sys(SYS_write, alone[1], edge, 0), "end %d, write nothing into a full one", i);
        SAY(sys(SYS_writev, alone[1], &bad, 1), "end %d, writev into a full one", i);
        drain(alone[0]);
        close(alone[1]);
        SAY(sys(SYS_read, alone[0], edge, 1), "end %d, read behind the last byte", i);
        close(alone[0]);
        if ((i ? socketpair(AF_UNIX, SOCK_STREAM, 0, alone) : pipe(alone)) != 0)
            printf("no ends\n");
        close(alone[0]);
        SAY(sys(SYS_write, alone[1], edge, 1), "end %d, write without a reader", i);
        SAY(sys(SYS_write, alone[1], edge, 0), "end %d, write nothing without a reader", i);
        close(alone[1]);
    }
}

/* Two processes read numbers from one pipe: each number comes to one of them. */
static struct seen {
    long nr, sum, odd;
} *seen;

static void readers(void) {
    enum { NR = 20000 };
    int both[2];
    if (pipe(both) != 0)
        printf("no pipe\n");
    for (int i = 0; i < 2; i++) {
        if (child() == 0) {
            unsigned number;
            close(both[1]);
            while (read(both[0], &number, 4) == 4) {
                seen[i].nr++;
                seen[i].sum += number;
                seen[i].odd ^= number * number;
            }
            finish();
        }
    }
    close(both[0]);
    for (unsigned i = 0; i < NR; i += 100) {
        unsigned numbers[100];
        for (unsigned j = 0; j < 100; j++)
            numbers[j] = i + j;
        if (write(both[1], numbers, sizeof numbers) != sizeof numbers)
            printf("not written\n");
    }
    close(both[1]);
    wait_for_child();
    wait_for_child();
    printf("two readers: %ld numbers, sum %ld, %lx\n", seen[0].nr + seen[1].nr, seen[0].sum + seen[1].sum,
           seen[0].odd ^ seen[1].odd);
}

static void events(void) {
    unsigned long one = 1;
    for (int before = 0; before <= 8; before += 4) {
        if (write(event, &one, 8) != 8)
            printf("the event is not set\n");
        SAY(sys(SYS_read, event, edge - before, 8), "event, read %d of 8", before);
        SAY(sys(SYS_read, event, memory, 8), "event, read again");
        memset(edge - before, 0, (unsigned long)before);
        SAY(sys(SYS_write, event, edge - before, 8), "event, write %d of 8", before);
        SAY(sys(SYS_write, event, edge - before, 7), "event, write %d of 7", before);
    }
}

/* Names that are listed, and those that follow. */
static void listings(void) {
    char path[64], name[96];
    snprintf(path, sizeof path, "/tmp/copies-%d", (int)getpid());
    mkdir(path, 0700);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%d", path, i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    for (int call = 0; call < 2; call++) {
        for (int before = 0; before <= 130; before += 10) {
            int fd = open(path, O_RDONLY | O_DIRECTORY);
            long number = call ? SYS_getdents64 : SYS_getdents;
            SAY(sys(number, fd, edge - before, 1000), "getdents %d of 1000, %d", before, call);
            SAY(sys(number, fd, memory, 1000), "getdents, the rest, %d", call);
            close(fd);
        }
        int fd = open(path, O_RDONLY | O_DIRECTORY);
        SAY(sys(call ? SYS_getdents64 : SYS_getdents, fd, -8ul, 1000), "getdents behind all, %d", call);
        close(fd);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%d", path, i);
        unlink(name);
    }
    rmdir(path);
}

/* Events that are not told are told later, each kind of watch. */
static void watches(void) {
    static const unsigned kinds[] = { EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT };
    for (int kind = 0; kind < 3; kind++) {
        for (int before = 0; before <= 48; before += 8) {
            int set = epoll_create1(0), ends[3][2];
            for (int i = 0; i < 3; i++) {
                struct epoll_event wanted = { kinds[kind], { .u64 = (unsigned long)i } };
                if (pipe(ends[i]) != 0 || write(ends[i][1], "x", 1) != 1 || epoll_ctl(set, EPOLL_CTL_ADD, ends[i][0], &wanted) != 0)
                    printf("no watch\n");
            }
            SAY(sys(SYS_epoll_wait, set, edge - before, 8, 0), "epoll_wait %d of 96, kind %d", before, kind);
            SAY(sys(SYS_epoll_wait, set, memory, 8, 0), "epoll_wait again, kind %d", kind);
            SAY(sys(SYS_epoll_wait, set, memory, 8, 0), "epoll_wait once more, kind %d", kind);
            close(set);
            for (int i = 0; i < 3; i++)
                close(ends[i][0]), close(ends[i][1]);
        }
    }
    for (int before = 0; before <= 24; before += 4) {
        struct pollfd two[3] = { { pipes[0], POLLIN, 0 }, { pipes[1], POLLOUT, 0 }, { file, POLLIN, 0 } };
        memcpy(edge - before, two, (unsigned long)before);
        SAY(sys(SYS_poll, edge - before, 3, 0), "poll %d of 24", before);
    }
}

/* Calls with one answer of fixed or asked size. */
static void answers(void) {
    if (chdir("/tmp") != 0)
        printf("no /tmp\n");
    for (int before = 0; before <= 8; before += 4) {
        int lowest = dup(0);
        close(lowest);
        SAY(sys(SYS_pipe2, edge - before, 0), "pipe2 %d of 8", before);
        SAY(sys(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, edge - before), "socketpair %d of 8", before);
        SAY(dup(0) - lowest, "descriptors that were taken, %d", before);
        for (int i = 0; i < 6; i++)
            close(lowest + i);
    }
    for (int i = 0; i < NR_SPANS; i++) {
        char *at = edge - spans[i].before;
        long len = spans[i].len;
        memset(memory, 0, NR_PAGES * PAGE);
        SAY(sys(SYS_getrandom, at, len, 0), "getrandom %ld of %ld", spans[i].before, len);
        SAY(sys(SYS_mincore, memory, len * PAGE, at), "mincore %ld of %ld", spans[i].before, len);
        SAY(sys(SYS_getcwd, at, len), "getcwd %ld of %ld", spans[i].before, len);
        SAY(sys(SYS_readlink, "/proc/self/exe", at, len) > 0, "readlink %ld of %ld", spans[i].before, len);
        SAY(sys(SYS_sched_getaffinity, 0, len & ~7l, at) > 0, "sched_getaffinity %ld of %ld", spans[i].before, len & ~7l);
    }
    for (int before = 0; before <= 144; before += 8) {
        char *at = edge - before;
        SAY(sys(SYS_fstat, file, at), "fstat %d", before);
        SAY(sys(SYS_uname, at), "uname %d", before);
        SAY(sys(SYS_getrlimit, RLIMIT_STACK, at), "getrlimit %d", before);
        SAY(sys(SYS_getrusage, RUSAGE_SELF, at), "getrusage %d", before);
        SAY(sys(SYS_clock_gettime, CLOCK_REALTIME, at), "clock_gettime %d", before);
        SAY(sys(SYS_rt_sigaction, 10, 0, at, 8), "rt_sigaction %d", before);
        SAY(sys(SYS_rt_sigprocmask, 0, 0, at, 8), "rt_sigprocmask %d", before);
    }
}

/* Positions that lie where they cannot be read, or not be written. */
static void positions(void) {
    int to = memfd_create("to", 0), from = memfd_create("from", 0);
    refill("from", from, 5000);
    unsigned long zero = 0;
    for (int before = 0; before <= 8; before += 4) {
        memset(edge - before, 0, (unsigned long)before);
        lseek(from, 0, SEEK_SET);
        SAY(sys(SYS_sendfile, to, from, edge - before, 100), "sendfile, position %d of 8", before);
        SAY(lseek(to, 0, SEEK_CUR), "sendfile, position of the target");
        SAY(sys(SYS_copy_file_range, from, edge - before, to, 0, 100, 0), "copy_file_range, position %d of 8", before);
        SAY(sys(SYS_copy_file_range, from, 0, to, edge - before, 100, 0), "copy_file_range, target's position %d of 8", before);
        SAY(lseek(to, 0, SEEK_CUR), "copy_file_range, position of the target");
        SAY(lseek(from, 0, SEEK_CUR), "copy_file_range, position of the source");
    }
    SAY(sys(SYS_sendfile, to, from, read_only, 100), "sendfile, a position that cannot be stored");
    SAY(lseek(to, 0, SEEK_CUR), "sendfile, position of the target");
    SAY(sys(SYS_copy_file_range, from, read_only, to, 0, 100, 0), "copy_file_range, a position that cannot be stored");
    SAY(lseek(to, 0, SEEK_CUR), "copy_file_range, position of the target");
    SAY(sys(SYS_sendfile, pipes[1], from, &zero, 5000), "sendfile to a pipe");
    SAY(waiting(pipes[0]), "bytes in it");
    drain(pipes[0]);
    close(to);
    close(from);
}

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    /* First, or else it would be in the hole. */
    seen = mmap(0, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memory = mmap(0, (NR_PAGES + 2) * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    edge = memory + NR_PAGES * PAGE;
    read_only = edge + PAGE;
    munmap(edge, PAGE);
    mprotect(read_only, PAGE, PROT_READ);
    file = memfd_create("copies", 0);
    event = eventfd(0, EFD_NONBLOCK);
    if (pipe2(pipes, O_NONBLOCK) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) != 0)
        printf("no files\n");
    refill("the file", file, 5 * PAGE);
    files("file", file, 1);
    files("zeroes", open("/dev/zero", O_RDWR), 0);
    files("full", open("/dev/full", O_RDWR), 0);
    files("random", open("/dev/urandom", O_RDWR), 0);
    files("null", open("/dev/null", O_RDWR), 0);
    files("folder", open("/tmp", O_RDONLY), 0);
    int status = open("/proc/self/status", O_RDONLY);
    for (int before = 0; before <= 5; before++) {
        SAY(sys(SYS_read, status, edge - before, 8), "status, %d of 8", before);
        SAY(lseek(status, 0, SEEK_CUR), "status, position");
    }
    stores("file", file, 1);
    stores("zeroes", open("/dev/zero", O_RDWR), 0);
    stores("full", open("/dev/full", O_RDWR), 0);
    stores("random", open("/dev/urandom", O_RDWR), 0);
    stores("null", open("/dev/null", O_RDWR), 0);
    int comm = open("/proc/self/comm", O_RDWR);
    for (int before = 0; before <= 5; before++) {
        memset(edge - before, '0' + before, (unsigned long)before);
        SAY(sys(SYS_write, comm, edge - before, 4), "comm, write %d of 4", before);
        char name[20] = "";
        pread(comm, name, 19, 0);
        printf("comm is %s", name);
    }
    streams("pipe", pipes[0], pipes[1]);
    streams("socket", sockets[0], sockets[1]);
    ends();
    readers();
    events();
    listings();
    watches();
    answers();
    positions();
    printf("done\n");
    return 0;
}
