/* Files in memory: shared between processes and with read and write, private copies, sizes that change. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

static sigjmp_buf back;
static volatile int signal_seen;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    signal_seen = number == SIGBUS ? info->si_code * 100 + SIGBUS : number;
    siglongjmp(back, 1);
}

/* The signal that a read of the byte ends in, or 0; for SIGBUS its code, too. */
static int touch(volatile char *p) {
    signal_seen = 0;
    if (sigsetjmp(back, 1) == 0)
        (void)*p;
    return signal_seen;
}

static int touch_writing(volatile char *p) {
    signal_seen = 0;
    if (sigsetjmp(back, 1) == 0)
        *p = 1;
    return signal_seen;
}

static const int BEYOND = BUS_ADRERR * 100 + SIGBUS;

static int make(const char *path, const char *text, long size) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (long)strlen(text));
    CHECK(ftruncate(fd, size) == 0);
    return fd;
}

static void shared(void) {
    int fd = make("/tmp/mappings-a", "beginning", 3 * PAGE);
    char *p = mmap(0, 3 * PAGE, RW, MAP_SHARED, fd, 0);
    char *q = mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && strcmp(p, "beginning") == 0);
    pid_t pid = fork();
    if (pid == 0) {
        strcpy(p + PAGE, "from the child");
        CHECK(pwrite(fd, "written", 8, 2 * PAGE) == 8);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(strcmp(q, "from the child") == 0 && strcmp(q + PAGE, "written") == 0);
    char text[20] = "";
    CHECK(pread(fd, text, 15, PAGE) == 15 && strcmp(text, "from the child") == 0);
    /* The mapping outlives the number and the name. */
    CHECK(close(fd) == 0 && unlink("/tmp/mappings-a") == 0);
    CHECK(strcmp(p + 2 * PAGE, "written") == 0);
    CHECK(munmap(p, 3 * PAGE) == 0 && strcmp(q, "from the child") == 0 && munmap(q, 2 * PAGE) == 0);
}

static void sizes(void) {
    int fd = make("/tmp/mappings-b", "start", PAGE + 10);
    char *p = mmap(0, 4 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    CHECK(touch(p + PAGE + 11) == 0 && touch(p + 2 * PAGE) == BEYOND && touch_writing(p + 3 * PAGE) == BEYOND);
    CHECK(ftruncate(fd, 3 * PAGE) == 0);
    CHECK(touch(p + 2 * PAGE) == 0 && touch(p + 3 * PAGE) == BEYOND);
    memset(p + PAGE, 'x', 2 * PAGE);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 3 * PAGE);
    /* The pages that were cut off are gone from the mapping, and zero when they come again. */
    CHECK(ftruncate(fd, PAGE + 4) == 0);
    CHECK(p[PAGE + 3] == 'x' && p[PAGE + 4] == 0 && touch(p + 2 * PAGE) == BEYOND);
    CHECK(ftruncate(fd, 3 * PAGE) == 0);
    CHECK(p[2 * PAGE] == 0 && p[PAGE + 3] == 'x' && p[PAGE + 4] == 0);
    /* In another process just so. */
    memset(p + PAGE, 'y', 2 * PAGE);
    int there[2], cut[2], status;
    char c;
    CHECK(pipe(there) == 0 && pipe(cut) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(p[2 * PAGE] == 'y' && write(there[1], "!", 1) == 1 && read(cut[0], &c, 1) == 1);
        _exit(touch(p + 2 * PAGE) != BEYOND);
    }
    CHECK(read(there[0], &c, 1) == 1 && ftruncate(fd, PAGE) == 0 && write(cut[1], "!", 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    /* A hole: zero for all, and the size stays. */
    CHECK(ftruncate(fd, 4 * PAGE) == 0);
    memset(p, 'z', 4 * PAGE);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE - 1, PAGE + 2) == 0);
    CHECK(p[PAGE - 2] == 'z' && p[PAGE - 1] == 0 && p[PAGE] == 0 && p[2 * PAGE] == 0 && p[2 * PAGE + 1] == 'z');
    CHECK(fstat(fd, &st) == 0 && st.st_size == 4 * PAGE);
    CHECK(close(fd) == 0 && munmap(p, 4 * PAGE) == 0 && unlink("/tmp/mappings-b") == 0);
}

static void private(void) {
    int fd = make("/tmp/mappings-c", "original", 2 * PAGE + 100);
    char *p = mmap(0, 3 * PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED && strcmp(p, "original") == 0 && p[2 * PAGE + 99] == 0);
    strcpy(p, "mine");
    char text[20] = "";
    CHECK(pread(fd, text, 9, 0) == 9 && strcmp(text, "original") == 0);
    /* A page shows the file until it is written; then nothing of the file but a cut is seen. */
    char *s = p + PAGE;
    CHECK(s[1] == 0 && pwrite(fd, "late", 5, PAGE) == 5 && strcmp(s, "late") == 0);
    CHECK(pwrite(fd, "again", 6, 0) == 6 && strcmp(p, "mine") == 0 && pwrite(fd, "original", 9, 0) == 9);
    s[0] = 'f';
    CHECK(pwrite(fd, "never", 6, PAGE) == 6 && strcmp(s, "fate") == 0);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0 && strcmp(s, "fate") == 0);
    CHECK(madvise(s, PAGE, MADV_DONTNEED) == 0 && s[0] == 0);
    s[0] = 'f';
    CHECK(ftruncate(fd, 100) == 0 && touch(s) == BEYOND && touch_writing(s) == BEYOND && strcmp(p, "mine") == 0);
    CHECK(ftruncate(fd, 2 * PAGE + 100) == 0 && s[0] == 0);
    char *q = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE, fd, 0);
    CHECK(q != MAP_FAILED && touch(q) == SIGSEGV && mprotect(q, PAGE, PROT_READ) == 0 && strcmp(q, "original") == 0);
    CHECK(close(fd) == 0 && munmap(p, 3 * PAGE) == 0 && munmap(q, PAGE) == 0);
    fd = open("/tmp/mappings-c", O_RDONLY);
    p = mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED && touch_writing(p) == 0);
    CHECK(mmap(0, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    q = mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(q != MAP_FAILED && mprotect(q, PAGE, RW) == -1 && errno == EACCES);
    CHECK(mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(0, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(0, PAGE, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    close(fd);
    fd = open("/tmp/mappings-c", O_WRONLY);
    CHECK(mmap(0, PAGE, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EACCES);
    CHECK(close(fd) == 0 && mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EBADF);
    CHECK(munmap(p, PAGE) == 0 && munmap(q, PAGE) == 0 && unlink("/tmp/mappings-c") == 0);
}

static void others(void) {
    int fd = open("/dev/zero", O_RDWR);
    char *p = mmap(0, PAGE, RW, MAP_PRIVATE, fd, 0), *q = mmap(0, PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && p[5] == 0 && q[5] == 0);
    pid_t pid = fork();
    if (pid == 0) {
        p[0] = q[0] = 1;
        _exit(0);
    }
    CHECK(waitpid(pid, 0, 0) == pid && p[0] == 0 && q[0] == 1);
    close(fd);
    fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == ENODEV);
    close(fd);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && mmap(0, PAGE, PROT_READ, MAP_PRIVATE, pipes[0], 0) == MAP_FAILED && errno == ENODEV);
    fd = memfd_create("name", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    p = mmap(0, 2 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED && touch_writing(p + PAGE) == 0 && touch(p) == 0 && close(fd) == 0);
    q = mremap(p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q[PAGE] == 1 && touch(q + 2 * PAGE) == BEYOND && munmap(q, 3 * PAGE) == 0);
}

/* Children use the pages while they come and go: what they see of a page is zero or what is written to that page. */
static void under_change(void) {
    int fd = make("/tmp/mappings-d", "", 16 * PAGE);
    volatile char *p = mmap(0, 16 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        for (volatile int n = 0; pids[i] == 0; n = (n + 1) % 16) {
            if (sigsetjmp(back, 1) == 0) {
                char seen = p[n * PAGE + 7];
                if (seen != 0 && seen != n + 1)
                    _exit(1);
                p[n * PAGE + 7] = n + 1;
            }
        }
    }
    char page[PAGE];
    for (int i = 0; i < 300; i++) {
        CHECK(ftruncate(fd, (i % 16) * PAGE + 5) == 0 && ftruncate(fd, 16 * PAGE) == 0);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (i % 8) * PAGE, 8 * PAGE) == 0);
        /* Somebody else has the frames at once. */
        char *other = mmap(0, 16 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(other, 99, 16 * PAGE);
        int n = i % 16;
        CHECK(pread(fd, page, PAGE, n * PAGE) == PAGE && (page[7] == 0 || page[7] == n + 1) && page[8] == 0);
        CHECK(munmap(other, 16 * PAGE) == 0);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], &status, 0) == pids[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    CHECK(close(fd) == 0 && munmap((void *)p, 16 * PAGE) == 0 && unlink("/tmp/mappings-d") == 0);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, 0);
    sigaction(SIGSEGV, &action, 0);
    shared();
    sizes();
    private();
    others();
    under_change();
    puts("mappings ok");
    return 0;
}
