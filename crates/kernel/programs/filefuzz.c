/* Random calls about files, with random paths, numbers and flags, by several processes in one folder. The kernel
   has to live; afterwards all can be removed. Not for Linux: it would remove and change what is not its own.
   Usage: filefuzz [SEED [CALLS]] */
#define _GNU_SOURCE
#include "random.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR_CHILDREN = 4, BYTES = 20000 };

static char buffer[BYTES], path_a[9000], path_b[9000];
static char *map;

static char *path(char *into) {
    static const char *parts[] = {"a", "b", "c", "d", "e", ".", "..", "", "loop", "a/b", "self", "proc", "/", "tmp",
                                  "/proc/self/fd", "fd", "0", "3", "5", "/dev", "null", "maps", "cwd", "/tmp/fuzz", "\xff\n"};
    into[0] = 0;
    if (next() % 200 == 0) {
        memset(into, 'x', 8999);
        into[next() % 2 ? 255 + next() % 2 : 4090 + next() % 10] = 0;
        into[8999] = 0;
        return into;
    }
    if (next() % 200 == 0)
        return next() % 2 ? NULL : (char *)0xffff800000000000;
    for (int nr = next() % 4; nr >= 0; nr--) {
        strcat(into, parts[next() % (next() % 2 ? 6 : sizeof parts / sizeof *parts)]);
        if (nr || next() % 8 == 0)
            strcat(into, "/");
    }
    return into;
}

static int number(void) {
    switch (next() % 16) {
    case 0: return AT_FDCWD;
    case 1: return (int)next();
    case 2: return next() % 3;
    default: return 3 + next() % 12;
    }
}

static long offset(void) {
    static const long odd[] = {0, 1, -1, 4095, 4096, INT64_MAX, INT64_MIN, 1L << 43, 1L << 42, 100000};
    return next() % 2 ? odd[next() % (sizeof odd / sizeof *odd)] : (long)(next() % 30000);
}

static void *memory(void) { return next() % 20 ? buffer : next() % 2 ? NULL : map + 8192 - next() % 64; }

static void one(void) {
    static const int flags[] = {0, O_CREAT, O_EXCL | O_CREAT, O_TRUNC, O_DIRECTORY, O_PATH, O_APPEND, O_NOFOLLOW, O_TMPFILE};
    static const int numbers[] = {
        SYS_fsync, SYS_flock, SYS_fchdir, SYS_fstatfs, SYS_fadvise64, SYS_ftruncate, SYS_fallocate, SYS_lseek,
        SYS_fcntl, SYS_fchmod, SYS_fchown, SYS_ioctl, SYS_copy_file_range, SYS_close_range, SYS_epoll_ctl, SYS_getdents64,
        SYS_statx, SYS_utimensat, SYS_faccessat2, SYS_fchmodat, SYS_fchownat, SYS_sendfile, SYS_preadv2, SYS_pwritev2};
    struct iovec parts[3] = {{memory(), next() % 5000}, {memory(), next() % 5000}, {memory(), next() % 5000}};
    int ends[2];
    switch (next() % 34) {
    case 0: case 1: case 2: case 3:
        open(path(path_a), next() % 3 | flags[next() % 9] | flags[next() % 9] | O_NONBLOCK, next() % 01000);
        break;
    case 4: close(3 + next() % 12); break;
    case 5: dup2(number(), 3 + next() % 12); break;
    case 6: read(number(), memory(), next() % BYTES); break;
    case 7: write(number() | 3, memory(), next() % BYTES); break;
    case 8: pread(number(), memory(), next() % BYTES, offset()); break;
    case 9: pwrite(3 + next() % 12, memory(), next() % BYTES, next() % 100000); break;
    case 10: readv(number(), parts, next() % 4); break;
    case 11: writev(3 + next() % 12, parts, next() % 4); break;
    case 12: mkdir(path(path_a), 0777); break;
    case 13: rmdir(path(path_a)); break;
    case 14: unlinkat(number(), path(path_a), next() % 2 ? AT_REMOVEDIR : 0); break;
    case 15: syscall(SYS_renameat2, number(), path(path_a), number(), path(path_b), next() % 4); break;
    case 16: rename(path(path_a), path(path_b)); break;
    case 17: linkat(number(), path(path_a), number(), path(path_b), next() % 2 ? AT_SYMLINK_FOLLOW : 0); break;
    case 18: symlink(path(path_a), path(path_b)); break;
    case 19: readlink(path(path_a), memory(), next() % 300); break;
    case 20: mknod(path(path_a), (next() % 2 ? S_IFIFO : S_IFREG) | 0600, 0); break;
    case 21: chdir(path(path_a)); break;
    case 22: syscall(SYS_stat, path(path_a), memory()); break;
    case 23: truncate(path(path_a), offset() % 1000000); break;
    case 24: pipe2(ends, O_NONBLOCK); break;
    case 25: epoll_create1(0); break;
    case 26: eventfd(next() % 3, O_NONBLOCK); break;
    case 27: syscall(SYS_memfd_create, path(path_a), next() % 8); break;
    case 28: {
        struct pollfd polled[3] = {{number(), next(), 0}, {number(), next(), 0}, {number(), next(), 0}};
        poll(polled, 3, next() % 2);
        break;
    }
    case 29: {
        char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, next() % 2 ? MAP_SHARED : MAP_PRIVATE, number(), next() % 5 * 4096);
        if (at != MAP_FAILED) {
            if (next() % 2)
                read(3 + next() % 12, at, 8192);
            munmap(at, 8192);
        }
        break;
    }
    case 30: {
        struct epoll_event events[4] = {{.events = next()}};
        epoll_ctl(3 + next() % 12, 1 + next() % 3, 3 + next() % 12, events);
        epoll_wait(3 + next() % 12, events, 4, next() % 2);
        break;
    }
    case 31: getcwd(buffer, next() % 5000); break;
    case 32: sendfile(3 + next() % 12, number(), NULL, next() % BYTES); break;
    default: {
        int which = numbers[next() % (sizeof numbers / sizeof *numbers)];
        long arguments[5];
        for (int i = 0; i < 5; i++)
            arguments[i] = next() % 3 ? (long)(next() % 20) : next() % 2 ? offset() : (long)memory();
        // Not to wait for a lock, nor to take away the terminal.
        if (which == SYS_fcntl && (arguments[0] % 64 == 7 || arguments[0] % 64 == 38))
            break;
        syscall(which, 3 + next() % 12, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
    }
    }
}

static void remove_tree(void) {
    DIR *dir = opendir(".");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (unlink(entry->d_name) && errno == EISDIR && rmdir(entry->d_name) && chdir(entry->d_name) == 0) {
            remove_tree();
            if (chdir(".."))
                break;
            rmdir(entry->d_name);
        }
    }
    if (dir)
        closedir(dir);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], 0, 0) : 1;
    int calls = argc > 2 ? atoi(argv[2]) : 3000;
    map = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(map + 8192, 4096);
    // Names in /dev may be gone before the last child begins.
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || mkdir("/tmp/fuzz", 0777) || chdir("/tmp/fuzz") || symlink("loop", "loop"))
        return 1;
    int bad = 0;
    for (int round = 0; round < 10; round++) {
        for (int child = 0; child < NR_CHILDREN; child++) {
            if (fork() == 0) {
                state = seed * 1000003 + round * 101 + child;
                signal(SIGPIPE, SIG_IGN);
                alarm(60);
                for (int i = 0; i < 3; i++)
                    dup2(null, i);
                close(null);
                for (int i = 0; i < calls / 10 / NR_CHILDREN; i++)
                    one();
                _exit(0);
            }
        }
        for (int status; wait(&status) > 0;)
            bad |= status;
    }
    // Files may have been moved; in the end all of /tmp can be removed.
    int left = chdir("/tmp") != 0;
    remove_tree();
    DIR *dir = opendir("/tmp");
    while (dir && readdir(dir))
        left++;
    if (bad || left != 2)
        printf("FAILED: status %x, %d names in /tmp\n", bad, left);
    else
        printf("filefuzz ok\n");
    return 0;
}
