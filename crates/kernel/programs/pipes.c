/* Pipes between threads, poll, event counters, epoll, files of the machine. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOTAL 1000000

static int ends[2];

static void *writer(void *argument) {
    static char block[5000];
    (void)argument;
    long sent = 0;
    while (sent < TOTAL) {
        for (int i = 0; i < 5000; i++)
            block[i] = (sent + i) % 251;
        long nr = write(ends[1], block, 5000);
        CHECK(nr > 0);
        sent += nr;
    }
    CHECK(close(ends[1]) == 0);
    return 0;
}

static void stream(void) {
    pthread_t thread;
    static unsigned char block[7000];
    CHECK(pipe(ends) == 0);
    CHECK(pthread_create(&thread, 0, writer, 0) == 0);
    long received = 0, nr;
    while ((nr = read(ends[0], block, sizeof block)) > 0) {
        for (long i = 0; i < nr; i++)
            CHECK(block[i] == (received + i) % 251);
        received += nr;
    }
    CHECK(nr == 0 && received == TOTAL);
    CHECK(pthread_join(thread, 0) == 0 && close(ends[0]) == 0);
}

static void readiness(void) {
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    char byte;
    CHECK(read(ends[0], &byte, 1) == -1 && errno == EAGAIN);
    struct pollfd polled[3] = {{.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLOUT}, {.fd = 999}};
    CHECK(poll(polled, 3, 0) == 2);
    CHECK(polled[0].revents == 0 && polled[1].revents == POLLOUT && polled[2].revents == POLLNVAL);
    CHECK(poll(polled, 1, 20) == 0);
    CHECK(write(ends[1], "x", 1) == 1 && poll(polled, 1, -1) == 1 && polled[0].revents == POLLIN);
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    int copy = dup2(ends[1], 50);
    CHECK(copy == 50 && close(ends[1]) == 0 && poll(polled, 1, 0) == 0);
    CHECK(close(50) == 0 && poll(polled, 1, 0) == 1 && (polled[0].revents & POLLHUP));
    CHECK(close(ends[0]) == 0 && close(ends[0]) == -1 && errno == EBADF);
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE && close(ends[1]) == 0);
}

static void *later(void *argument) {
    uint64_t one = 1;
    usleep(20000);
    CHECK(write((int)(long)argument, &one, 8) == 8);
    return 0;
}

static void events(void) {
    pthread_t thread;
    uint64_t value;
    int counter = eventfd(3, EFD_NONBLOCK), set = epoll_create1(0);
    CHECK(counter >= 0 && set >= 0);
    CHECK(read(counter, &value, 8) == 8 && value == 3);
    CHECK(read(counter, &value, 8) == -1 && errno == EAGAIN);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x123456789abc}, got;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == -1 && errno == EEXIST);
    CHECK(epoll_wait(set, &got, 1, 0) == 0);
    CHECK(pthread_create(&thread, 0, later, (void *)(long)counter) == 0);
    CHECK(epoll_wait(set, &got, 1, 20000) == 1 && got.events == EPOLLIN && got.data.u64 == 0x123456789abc);
    CHECK(pthread_join(thread, 0) == 0);
    event.events = EPOLLIN | EPOLLET;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, counter, &event) == 0);
    CHECK(epoll_wait(set, &got, 1, 0) == 1 && epoll_wait(set, &got, 1, 0) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, counter, 0) == 0 && epoll_wait(set, &got, 1, 0) == 0);
    CHECK(close(set) == 0 && close(counter) == 0);
}

static void files(char *own_path) {
    char magic[4];
    struct stat stat_of, of_path;
    int file = open(own_path, O_RDONLY);
    CHECK(file >= 3 && read(file, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0);
    CHECK(lseek(file, 1, SEEK_SET) == 1 && read(file, magic, 3) == 3 && memcmp(magic, "ELF", 3) == 0);
    CHECK(pread(file, magic, 2, 2) == 2 && memcmp(magic, "LF", 2) == 0);
    CHECK(fstat(file, &stat_of) == 0 && S_ISREG(stat_of.st_mode) && stat(own_path, &of_path) == 0);
    CHECK(stat_of.st_size == of_path.st_size && lseek(file, 0, SEEK_END) == stat_of.st_size);
    CHECK(read(file, magic, 4) == 0 && close(file) == 0);
    CHECK(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open(own_path, O_RDWR) == -1);
    int zero = open("/dev/zero", O_RDWR);
    char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    CHECK(zero >= 0 && p != MAP_FAILED && p[5000] == 0 && (p[5000] = 1) == 1);
}

int main(int argc, char **argv) {
    (void)argc;
    stream();
    readiness();
    events();
    files(argv[0]);
    puts("pipes ok");
    return 0;
}
