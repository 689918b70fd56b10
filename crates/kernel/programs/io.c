/* Reading and writing: files, pipes, flags, waiting. A transcript. */
#define _GNU_SOURCE
#include "transcript.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static char base[64], buffer[200000], other[200000];

static unsigned sum(const char *bytes, long nr) {
    unsigned hash = 2166136261u;
    for (long i = 0; i < nr; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619;
    return hash;
}

static void contents(int file) {
    memset(other, 'x', sizeof other);
    long nr = pread(file, other, sizeof other, 0);
    printf("  %ld bytes, sum %08x\n", nr, sum(other, nr > 0 ? nr : 0));
}

static void plain(void) {
    for (int i = 0; i < (int)sizeof buffer; i++)
        buffer[i] = i * 7 + i / 251;
    int file = open("data", O_RDWR | O_CREAT, 0644);
    TRY(file);
    SAY(read(file, other, 10));
    SAY(write(file, buffer, 150001));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(lseek(file, 4090, SEEK_SET));
    SAY(write(file, "overlapping", 11));
    contents(file);
    SAY(lseek(file, -5, SEEK_END));
    SAY(read(file, other, 100));
    SAY(read(file, other, 100));
    SAY(lseek(file, 10000, SEEK_END));
    SAY(write(file, "after a hole", 12));
    contents(file);
    SAY(lseek(file, -1, SEEK_SET));
    SAY(lseek(file, 0, 99));
    SAY(lseek(file, 0x7fffffffffffffff, SEEK_CUR));
    SAY(lseek(file, 100, SEEK_DATA));
    SAY(lseek(file, 1000000, SEEK_DATA));
    SAY(lseek(file, 160000, SEEK_HOLE));
    SAY(pwrite(file, "at", 2, 70000));
    SAY(pwrite(file, "at", 2, -1));
    SAY(pread(file, other, 4, -1));
    SAY(pread(file, other, 4, 10000000));
    contents(file);
    SAY(write(file, (char *)1, 5));
    SAY(read(file, (char *)1, 5));
    SAY(pread(file, (char *)1, 5, 0));
    SAY(write(file, buffer, -1));
    SAY(write(file, (char *)1, 0));
    SAY(ftruncate(file, 5000));
    SAY(ftruncate(file, 9000));
    contents(file);
    SAY(ftruncate(file, -1));
    SAY(close(file));
    file = open("data", O_RDONLY);
    SAY(write(file, "x", 1));
    SAY(ftruncate(file, 0));
    SAY(fallocate(file, 0, 0, 10));
    SAY(close(file));
    file = open("data", O_WRONLY | O_APPEND);
    SAY(read(file, other, 1));
    SAY(write(file, "tail", 4));
    SAY(lseek(file, 0, SEEK_CUR));
    SAY(lseek(file, 0, SEEK_SET));
    SAY(write(file, "tail2", 5));
    SAY(pwrite(file, "still at the end", 16, 0));
    SAY(close(file));
    file = open("data", O_RDWR | O_TRUNC);
    contents(file);
    SAY(fallocate(file, 0, 100, 50));
    contents(file);
    SAY(write(file, buffer, 30000));
    SAY(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 10000));
    SAY(fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 10));
    SAY(fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 100000));
    SAY(fallocate(file, 0, 0, 0));
    SAY(fallocate(file, 0, -1, 5));
    contents(file);
    SAY(fsync(file) | fdatasync(file));
    SAY(flock(file, LOCK_EX) | flock(file, LOCK_UN));
    SAY(close(file));
    SAY(close(file));
}

static void vectors(void) {
    int file = open("vector", O_RDWR | O_CREAT, 0644);
    struct iovec parts[3] = {{"abc", 3}, {0, 0}, {"defgh", 5}}, wild[2] = {{"xyz", 3}, {(char *)1, 4}};
    SAY(writev(file, parts, 3));
    SAY(pwritev(file, parts, 1, 20));
    SAY(writev(file, parts, -1));
    SAY(writev(file, parts, 1025));
    SAY(writev(file, (struct iovec *)1, 1));
    SAY(writev(file, parts, 0));
    SAY(writev(file, wild + 1, 1));
    struct iovec into[2] = {{other, 4}, {other + 10, 30}};
    SAY(preadv(file, into, 2, 1));
    printf("  %.4s %.3s\n", other, other + 10);
    SAY(lseek(file, 0, SEEK_SET));
    SAY(readv(file, into, 2));
    contents(file);
    int copy = open("copy", O_RDWR | O_CREAT, 0644), data = open("data", O_RDONLY);
    SAY(sendfile(copy, data, 0, 1000000));
    contents(copy);
    off_t from = 29000;
    SAY(sendfile(copy, data, &from, 500));
    SAY(from);
    SAY(lseek(data, 0, SEEK_CUR));
    SAY(sendfile(data, copy, 0, 5));
    long long in = 100, out = 7;
    SAY(syscall(SYS_copy_file_range, data, &in, copy, &out, 5000, 0));
    SAY(in * 100000 + out);
    contents(copy);
    SAY(syscall(SYS_copy_file_range, data, &in, copy, &out, 10, 1));
    SAY(close(file) | close(copy) | close(data));
}

static void numbers(void) {
    int file = open("data", O_RDONLY);
    int copy = dup(file);
    SAY(lseek(file, 77, SEEK_SET));
    SAY(lseek(copy, 0, SEEK_CUR));
    SAY(dup2(file, 100));
    SAY(dup2(file, file) == file);
    SAY(dup2(999, 101));
    SAY(dup2(file, 100000));
    SAY(dup2(file, -1));
    SAY(dup3(file, file, 0));
    SAY(dup3(file, 102, O_CLOEXEC));
    SAY(fcntl(102, F_GETFD));
    SAY(fcntl(100, F_GETFD));
    SAY(fcntl(100, F_SETFD, FD_CLOEXEC));
    SAY(fcntl(100, F_GETFD));
    SAY(fcntl(file, F_GETFD));
    SAY(fcntl(file, F_DUPFD, 200));
    SAY(fcntl(file, F_DUPFD, 200));
    SAY(fcntl(file, F_DUPFD_CLOEXEC, 200));
    SAY(fcntl(202, F_GETFD));
    SAY(fcntl(file, F_DUPFD, 10000000));
    SAY(fcntl(999, F_GETFD));
    SAY(fcntl(file, 9999));
    SAY(fcntl(file, F_GETFL) & ~0100000);
    SAY(fcntl(file, F_SETFL, O_APPEND | O_NONBLOCK | O_RDWR));
    SAY(fcntl(copy, F_GETFL) & ~0100000);
    struct flock lock = {.l_type = F_WRLCK};
    SAY(fcntl(file, F_GETLK, &lock));
    SAY(lock.l_type);
    SAY(syscall(SYS_close_range, 100, 300, 0));
    SAY(fcntl(200, F_GETFD));
    SAY(syscall(SYS_close_range, 5, 4, 0));
    SAY(close(copy));
    SAY(ioctl(file, TCGETS, other));
    SAY(ioctl(file, FIONREAD, other) | *(int *)other);
    SAY(isatty(file));
    SAY(close(file));
    int memory = memfd_create("name", MFD_CLOEXEC);
    SAY(fcntl(memory, F_GETFD));
    SAY(write(memory, buffer, 5000));
    contents(memory);
    SAY(ftruncate(memory, 1 << 20));
    SAY(memfd_create("name", 0x4000));
    SAY(close(memory));
}

static int ends[2];

static void on_pipe(int number) { printf("  signal %d\n", number); }

static void pipes(void) {
    struct stat of;
    SAY(pipe(ends));
    SAY(pipe2(ends, 0x55555555));
    SAY(pipe((int *)1));
    SAY(write(ends[1], "some text", 9));
    SAY(ioctl(ends[0], FIONREAD, other) | *(int *)other);
    SAY(read(ends[0], other, 4));
    SAY(read(ends[0], other, 100));
    SAY(write(ends[0], "x", 1));
    SAY(read(ends[1], other, 1));
    SAY(lseek(ends[0], 0, SEEK_CUR));
    SAY(pread(ends[0], other, 1, 0));
    SAY(pwrite(ends[1], other, 1, 0));
    SAY(ftruncate(ends[1], 0));
    SAY(fallocate(ends[1], 0, 0, 1));
    SAY(fsync(ends[1]));
    SAY(fstat(ends[0], &of) | S_ISFIFO(of.st_mode));
    SAY(fcntl(ends[1], F_GETPIPE_SZ));
    SAY(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    SAY(write(ends[1], buffer, 65536));
    SAY(write(ends[1], buffer, 1));
    SAY(fcntl(ends[1], F_SETPIPE_SZ, 4096));
    SAY(read(ends[0], other, 65536));
    printf("  %08x\n", sum(other, 65536));
    SAY(fcntl(ends[1], F_SETPIPE_SZ, 4097));
    SAY(write(ends[1], buffer, 100000));
    SAY(read(ends[0], other, 8000));
    SAY(write(ends[1], buffer, 0));
    SAY(write(ends[1], (char *)1, 10));
    int data = open("data", O_RDONLY);
    SAY(sendfile(ends[1], data, 0, 3000));
    SAY(close(data));
    SAY(close(ends[1]));
    SAY(read(ends[0], other, 4000));
    SAY(read(ends[0], other, 4000));
    SAY(close(ends[0]));
    SAY(pipe(ends));
    SAY(close(ends[0]));
    signal(SIGPIPE, on_pipe);
    SAY(write(ends[1], "x", 1));
    SAY(close(ends[1]));
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    SAY(write(ends[0], "there", 5));
    SAY(write(ends[1], "back", 4));
    SAY(read(ends[1], other, 100));
    SAY(read(ends[0], other, 100));
    SAY(close(ends[1]));
    SAY(read(ends[0], other, 100));
    SAY(close(ends[0]));
    SAY(mkfifo("fifo", 0600));
    int both = open("fifo", O_RDWR), one = open("fifo", O_WRONLY | O_NONBLOCK);
    SAY(write(one, "through", 7));
    SAY(read(both, other, 100));
    SAY(close(one) | close(both));
}

static void waiting(void) {
    fd_set readers, writers;
    struct timeval soon = {0, 1000};
    struct timespec none = {0, 0};
    SAY(pipe(ends));
    FD_ZERO(&readers);
    FD_ZERO(&writers);
    FD_SET(ends[0], &readers);
    FD_SET(ends[1], &writers);
    SAY(select(ends[1] + 1, &readers, &writers, 0, &soon));
    SAY(FD_ISSET(ends[0], &readers) * 2 + FD_ISSET(ends[1], &writers));
    FD_SET(ends[0], &readers);
    SAY(select(ends[0] + 1, &readers, 0, 0, &soon));
    SAY(write(ends[1], "x", 1));
    FD_SET(ends[0], &readers);
    SAY(pselect(ends[0] + 1, &readers, 0, 0, &none, 0));
    FD_ZERO(&readers);
    FD_SET(60, &readers);
    SAY(select(61, &readers, 0, 0, &soon));
    SAY(select(-1, 0, 0, 0, 0));
    struct pollfd polled[2] = {{ends[0], POLLIN | POLLRDNORM, 0}, {ends[1], POLLIN | POLLOUT, 0}};
    SAY(poll(polled, 2, 1000));
    printf("  %x %x\n", polled[0].revents, polled[1].revents);
    SAY(close(ends[1]));
    SAY(poll(polled, 2, 0));
    printf("  %x %x\n", polled[0].revents, polled[1].revents);
    SAY(ppoll(polled, 1, &none, 0));
    int data = open("data", O_RDONLY), set = epoll_create1(EPOLL_CLOEXEC);
    polled[0].fd = data;
    SAY(poll(polled, 1, -1));
    printf("  %x\n", polled[0].revents);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, data, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, set, &event));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    SAY(epoll_ctl(set, EPOLL_CTL_MOD, 500, &event));
    SAY(epoll_ctl(data, EPOLL_CTL_ADD, ends[0], &event));
    SAY(epoll_wait(set, &event, 1, -1));
    printf("  %x %d\n", event.events, (int)event.data.u64);
    SAY(epoll_wait(set, &event, 0, -1));
    SAY(close(set) | close(data) | close(ends[0]));
}

static void devices(void) {
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
    struct stat of;
    SAY(write(null, buffer, 100000));
    SAY(read(null, other, 10));
    memset(other, 1, 10000);
    SAY(read(zero, other, 9000));
    printf("  %d %d\n", other[8999], other[9000]);
    SAY(write(zero, buffer, 10));
    SAY(lseek(zero, 100, SEEK_SET));
    SAY(write(full, buffer, 10));
    SAY(read(full, other, 10));
    SAY(stat("/dev/null", &of));
    printf("  %o %lx\n", of.st_mode, (long)of.st_rdev);
    SAY(stat("/dev/zero", &of));
    printf("  %o %lx\n", of.st_mode, (long)of.st_rdev);
    SAY(read(open("/dev/urandom", O_RDONLY), other, 5000));
    SAY(ioctl(null, TCGETS, other));
    SAY(access("/dev/shm", R_OK | W_OK | X_OK));
    TRY(open("/dev/null", O_RDONLY | O_DIRECTORY));
    SAY(open("/dev/null", O_RDWR | O_CREAT | O_TRUNC, 0600) != -1);
    SAY(truncate("/dev/null", 0));
    SAY(close(null) | close(zero) | close(full));
}

static void sparse(void) {
    int file = open("sparse", O_RDWR | O_CREAT, 0644);
    SAY(pwrite(file, buffer, 65536, 0));
    SAY(pwrite(file, buffer, 65536, 1 << 20));
    SAY(ftruncate(file, 2 << 20));
    SAY(lseek(file, 5, SEEK_DATA));
    SAY(lseek(file, 5, SEEK_HOLE));
    SAY(lseek(file, 65536, SEEK_DATA));
    SAY(lseek(file, 70000, SEEK_HOLE));
    SAY(lseek(file, (1 << 20) + 7, SEEK_DATA));
    SAY(lseek(file, 1 << 20, SEEK_HOLE));
    SAY(lseek(file, (1 << 20) + 65536, SEEK_DATA));
    SAY(lseek(file, (2 << 20) - 1, SEEK_HOLE));
    SAY(lseek(file, 2 << 20, SEEK_HOLE));
    SAY(lseek(file, -1, SEEK_DATA));
    SAY(close(file));
}

static int lock(int file, int command, int type, long start, long len) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    int result = fcntl(file, command, &lock);
    if (result == 0 && command == F_GETLK)
        printf("  type %d whence %d start %ld len %ld %s\n", lock.l_type, lock.l_whence, (long)lock.l_start,
               (long)lock.l_len, lock.l_pid == 0 ? "nobody" : lock.l_pid == getppid() ? "parent" : "somebody");
    return result;
}

/* Does this in a child and waits for it. */
#define CHILD(...)                                                                                                     \
    do {                                                                                                               \
        fflush(stdout);                                                                                                \
        if (fork() == 0) {                                                                                             \
            __VA_ARGS__;                                                                                               \
            fflush(stdout);                                                                                            \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        wait(NULL);                                                                                                    \
    } while (0)

static void locks(void) {
    int file = open("locked", O_RDWR | O_CREAT, 0644), reads = open("locked", O_RDONLY);
    SAY(lock(file, F_SETLK, F_WRLCK, 100, 100));
    SAY(lock(file, F_GETLK, F_WRLCK, 0, 0));
    CHILD(SAY(lock(file, F_GETLK, F_RDLCK, 0, 0)); SAY(lock(file, F_SETLK, F_RDLCK, 150, 1)); SAY(lock(file, F_SETLK, F_WRLCK, 200, 0));
          SAY(lock(file, F_SETLK, F_WRLCK, 0, 100)); SAY(lock(file, F_SETLK, F_WRLCK, 99, 2)));
    SAY(lock(file, F_SETLK, F_UNLCK, 140, 20));
    CHILD(SAY(lock(file, F_GETLK, F_WRLCK, 0, 0)); SAY(lock(file, F_GETLK, F_WRLCK, 150, 0)); SAY(lock(file, F_SETLK, F_WRLCK, 140, 20));
          SAY(lock(file, F_SETLK, F_WRLCK, 139, 1)); SAY(lock(file, F_SETLK, F_RDLCK, 160, 1)));
    SAY(lock(file, F_SETLK, F_RDLCK, 0, 0));
    CHILD(SAY(lock(file, F_SETLK, F_RDLCK, 0, 0)); SAY(lock(file, F_SETLK, F_WRLCK, 5, 5)));
    SAY(lock(reads, F_SETLK, F_WRLCK, 0, 1));
    SAY(lock(file, F_SETLK, 7, 0, 1));
    SAY(lock(file, F_SETLK, F_RDLCK, -5, 1));
    SAY(lock(file, F_SETLK, F_RDLCK, 5, -6));
    SAY(lock(file, F_GETLK, F_UNLCK, 0, 1));
    SAY(fcntl(file, F_SETLK, (void *)1));
    SAY(close(reads));
    CHILD(SAY(lock(file, F_SETLK, F_WRLCK, 0, 0)));
    int ends[2], go[2];
    char byte;
    SAY(pipe(ends) | pipe(go));
    fflush(stdout);
    if (fork() == 0) {
        lock(file, F_SETLK, F_WRLCK, 0, 0);
        (void)!write(ends[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        usleep(20000);
        _exit(0);
    }
    SAY(read(ends[0], &byte, 1));
    SAY(lock(file, F_SETLK, F_WRLCK, 0, 1));
    SAY(write(go[1], "x", 1));
    SAY(lock(file, F_SETLKW, F_WRLCK, 0, 1));
    wait(NULL);
    SAY(flock(file, LOCK_EX));
    int again = open("locked", O_RDWR), copy = dup(file);
    SAY(flock(again, LOCK_SH | LOCK_NB));
    SAY(flock(copy, LOCK_SH));
    SAY(flock(again, LOCK_SH | LOCK_NB));
    SAY(flock(again, LOCK_EX | LOCK_NB));
    SAY(close(file));
    CHILD(SAY(flock(again, LOCK_EX | LOCK_NB)));
    SAY(close(copy));
    SAY(flock(again, LOCK_EX | LOCK_NB));
    SAY(flock(again, 16));
    SAY(flock(again, LOCK_UN));
    SAY(close(again) | close(ends[0]) | close(ends[1]) | close(go[0]) | close(go[1]));
}

static void limited(void) {
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    int file = open("limited", O_RDWR | O_CREAT, 0644);
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    SAY(write(file, buffer, 4000));
    SAY(write(file, buffer, 4000));
    SAY(write(file, buffer, 1));
    SAY(write(file, buffer, 0));
    SAY(pwrite(file, buffer, 10, 4990));
    SAY(pwrite(file, buffer, 10, 6000));
    SAY(ftruncate(file, 5001));
    SAY(ftruncate(file, 5000));
    SAY(ftruncate(file, 10));
    SAY(fallocate(file, 0, 4000, 1001));
    SAY(fallocate(file, 0, 4000, 1000));
    SAY(setrlimit(RLIMIT_FSIZE, &before));
    SAY(close(file));
}

int main(void) {
    strcpy(base, "/tmp/ioXXXXXX");
    if (!mkdtemp(base) || chdir(base))
        return 1;
    plain();
    vectors();
    numbers();
    pipes();
    waiting();
    devices();
    sparse();
    locks();
    limited();
    SAY(unlink("locked") | unlink("sparse") | unlink("limited") | unlink("data") | unlink("vector") | unlink("copy") | unlink("fifo"));
    SAY(chdir("/") | rmdir(base));
    return 0;
}
