/* Pipes between threads, one at a time and several, poll, event counters, epoll, files of the machine. */
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
#include <sys/socket.h>
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

enum { PAGE = 4096, NR_PAGES = 16000, ROUND = 16, PART = 8, MESSAGE = 30000, NR_ROUNDS = 300 };

/* Each page of the stream says which it is. Those of one read follow each other, and of one write, too. */
static void *page_reader(void *argument) {
    static _Thread_local unsigned char pages[PART][PAGE];
    long nr, all = 0, number = 0, last = 0;
    while ((nr = read(ends[0], pages, sizeof pages)) > 0) {
        CHECK(nr % PAGE == 0);
        for (long i = 0; i < nr / PAGE; i++, last = number, all++) {
            memcpy(&number, pages[i], sizeof number);
            CHECK(i == 0 || number == last + 1);
        }
    }
    CHECK(nr == 0);
    *(long *)argument = all;
    return 0;
}

static void two_readers(void) {
    static unsigned char pages[ROUND][PAGE];
    pthread_t threads[2];
    long seen[2];
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], 0, page_reader, &seen[i]) == 0);
    for (long number = 0; number < NR_PAGES;) {
        for (int i = 0; i < ROUND; i++, number++)
            memcpy(pages[i], &number, sizeof number);
        CHECK(write(ends[1], pages, sizeof pages) == (long)sizeof pages);
    }
    CHECK(close(ends[1]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(seen[0] + seen[1] == NR_PAGES && close(ends[0]) == 0);
}

static pthread_barrier_t round_begins, round_ends;
static long unit;

/* Writes a unit of its own letter in each round. */
static void *unit_writer(void *argument) {
    static _Thread_local char bytes[MESSAGE];
    memset(bytes, *(char *)argument, unit);
    for (int i = 0; i < NR_ROUNDS; i++) {
        pthread_barrier_wait(&round_begins);
        CHECK(write(ends[1], bytes, unit) == unit);
        pthread_barrier_wait(&round_ends);
    }
    return 0;
}

/* Two write at the same time, with room for both: a read finds one unit or two, and nothing of the second in the first. */
static void two_writers(void) {
    static char letters[2] = "ab", bytes[2 * MESSAGE];
    pthread_t threads[2];
    CHECK(pthread_barrier_init(&round_begins, 0, 3) == 0 && pthread_barrier_init(&round_ends, 0, 3) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], 0, unit_writer, &letters[i]) == 0);
    for (int i = 0; i < NR_ROUNDS; i++) {
        pthread_barrier_wait(&round_begins);
        for (long received = 0, nr; received < 2 * unit; received += nr) {
            nr = read(ends[0], bytes, sizeof bytes);
            CHECK(nr > 0 && nr % unit == 0);
            for (long at = 0; at < nr; at++)
                CHECK(bytes[at] == bytes[at / unit * unit]);
        }
        pthread_barrier_wait(&round_ends);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void turns(void) {
    two_readers();
    CHECK(pipe(ends) == 0);
    unit = 3 * PAGE;
    two_writers();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    unit = MESSAGE;
    two_writers();
    /* A message that has begun below the capacity is not cut there. */
    static char message[MESSAGE];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(write(ends[1], message, MESSAGE) == MESSAGE);
    for (int i = 0; i < 3; i++)
        CHECK(read(ends[0], message, MESSAGE) == MESSAGE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    /* A turn is given up by who waits for room: what is more than a pipe holds goes through it. */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, writer, 0) == 0);
    static char all[TOTAL];
    long received = 0, nr;
    for (; (nr = read(ends[0], all + received, TOTAL - received)) > 0; received += nr)
        ;
    CHECK(nr == 0 && received == TOTAL && pthread_join(thread, 0) == 0 && close(ends[0]) == 0);
    for (long i = 0; i < TOTAL; i++)
        CHECK(all[i] == (char)(i % 251));
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
    turns();
    readiness();
    events();
    files(argv[0]);
    puts("pipes ok");
    return 0;
}
