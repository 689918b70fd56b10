/* Memory as others see it: /proc/self/mem, which ignores rights, /proc/self/pagemap, and the number of attachments of a segment.
   Prints answers; the test compares them with the host's. */
#define _GNU_SOURCE
#include "memcalls.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum { ANON = MAP_PRIVATE | MAP_ANONYMOUS, SHANON = MAP_SHARED | MAP_ANONYMOUS, NR = 6 };
enum { PROT_ALL = PROT_READ | PROT_WRITE | PROT_EXEC };

static int mem, pagemap;
static char room[4 * PAGE];

static long get(char *at, long len) {
    return pread(mem, room, (unsigned long)len, (off_t)at);
}

static long put(char *at, const void *from, long len) {
    return pwrite(mem, from, (unsigned long)len, (off_t)at);
}

/* Each kind of mapping with each right, in three pages: touched, only read, untouched. Behind them is nothing. */
static void rights(void) {
    static const struct {
        const char *name;
        int flags, has_file;
    } kinds[] = { { "private", ANON, 0 }, { "shared", SHANON, 0 }, { "copy", MAP_PRIVATE, 1 }, { "file", MAP_SHARED, 1 } };
    int fd = memfd_create("procmem", 0);
    if (ftruncate(fd, 3 * PAGE) != 0)
        printf("no file\n");
    for (int kind = 0; kind < 4; kind++) {
        for (int prot = 0; prot <= PROT_ALL; prot++) {
            const char *name = kinds[kind].name;
            char *hole = (char *)sys_mmap(0, 8 * PAGE, PROT_NONE, ANON, -1, 0), *p = hole + 2 * PAGE;
            munmap(hole, 8 * PAGE);
            if ((char *)sys_mmap(p, 3 * PAGE, RW, (unsigned)kinds[kind].flags | MAP_FIXED, kinds[kind].has_file ? fd : -1, 0) != p)
                printf("no mapping\n");
            p[0] = 'a';
            p[PAGE - 1] = 'z';
            (void)*(volatile char *)(p + PAGE);
            mprotect(p, 3 * PAGE, prot);
            for (int page = 0; page < 3; page++) {
                char *at = p + (unsigned long)page * PAGE;
                room[0] = '?';
                SAY(get(at, 1), "mem, %s with %d, page %d, read", name, prot, page);
                printf("mem: %d\n", room[0]);
                SAY(put(at + 1, "x", 1), "mem, %s with %d, page %d, write", name, prot, page);
                SAY(get(at + 1, 1), "mem, %s with %d, page %d, read again", name, prot, page);
                printf("mem: %d\n", room[0]);
            }
            SAY(get(p + PAGE - 3, 6), "mem, %s with %d, over a border", name, prot);
            SAY(get(p + 3 * PAGE - 5, 10), "mem, %s with %d, over the end", name, prot);
            SAY(get(p + PAGE, 9000), "mem, %s with %d, far over the end", name, prot);
            SAY(get(p + 3 * PAGE, 1), "mem, %s with %d, behind the end", name, prot);
            SAY(get(p - 1, 2), "mem, %s with %d, before it", name, prot);
            SAY(put(p + 3 * PAGE - 5, "0123456789", 10), "mem, %s with %d, write over the end", name, prot);
            SAY(put(p + 3 * PAGE, "0", 1), "mem, %s with %d, write behind the end", name, prot);
            mprotect(p, 3 * PAGE, PROT_READ);
            printf("mem: %d %d %d %d\n", p[0], p[1], p[PAGE + 1], p[3 * PAGE - 1]);
            munmap(p, 3 * PAGE);
        }
    }
    char *beyond = (char *)sys_mmap(0, PAGE, PROT_READ, MAP_PRIVATE, fd, 3 * PAGE);
    SAY(get(beyond, 1), "mem, behind the end of a file");
    SAY(put(beyond, "x", 1), "mem, write behind the end of a file");
    munmap(beyond, PAGE);
    SAY(get((char *)8, 1), "mem, the first page");
    SAY(get((char *)end_of_user, 1), "mem, behind all");
    SAY(get((char *)-8l, 1), "mem, a place of the kernel");
    SAY(lseek(mem, 0, SEEK_SET), "mem, position");
    close(fd);
}

/* One bit of some pages. */
static const struct {
    const char *name;
    int number;
} bits[] = { { "alone", 56 }, { "guard", 58 }, { "file", 61 }, { "swapped", 62 }, { "here", 63 } };

static void show(const char *when, char *p, int skip) {
    uint64_t words[NR];
    SAY(pread(pagemap, words, sizeof words, (off_t)((unsigned long)p / PAGE * 8)), "pagemap, %s", when);
    for (int i = skip; i < 5; i++) {
        printf("pagemap, %s, %s: ", when, bits[i].name);
        for (int page = 0; page < NR; page++)
            printf("%d", (int)(words[page] >> bits[i].number & 1));
        printf("\n");
    }
}

static void pages(void) {
    char *p = mmap(0, NR * PAGE, RW, ANON, -1, 0);
    p[0] = p[2 * PAGE] = p[3 * PAGE] = 1;
    (void)*(volatile char *)(p + 4 * PAGE);
    show("private", p, 0);
    if (child() == 0) {
        show("in a child", p, 0);
        p[2 * PAGE] = 2;
        show("a copy in a child", p, 0);
        finish();
    }
    wait_for_child();
    show("alone again", p, 0);
    mprotect(p, NR * PAGE, PROT_NONE);
    show("without rights", p, 0);
    mprotect(p, NR * PAGE, RW);
    madvise(p + 3 * PAGE, PAGE, MADV_DONTNEED);
    show("dropped", p, 0);
    SAY(madvise(p + 2 * PAGE, 3 * PAGE, 102), "guards");
    show("guards", p, 0);
    munmap(p + PAGE, 2 * PAGE);
    show("a hole", p, 0);
    munmap(p, NR * PAGE);
    show("nothing", p, 0);
    p = mmap(0, NR * PAGE, RW, SHANON, -1, 0);
    p[0] = p[2 * PAGE] = 1;
    show("shared", p, 0);
    munmap(p, NR * PAGE);
    int fd = memfd_create("pages", 0);
    if (ftruncate(fd, NR * PAGE) != 0 || pwrite(fd, "x", 1, 0) != 1 || pwrite(fd, "x", 1, PAGE) != 1)
        printf("no file\n");
    p = mmap(0, NR * PAGE, RW, MAP_PRIVATE, fd, 0);
    p[0] = 1;
    p[3 * PAGE] = 1;
    /* Linux may map the page beside it, too. */
    madvise(p, NR * PAGE, MADV_RANDOM);
    show("copies", p, 3);
    close(fd);
    munmap(p, NR * PAGE);
    uint64_t words[2];
    SAY(pread(pagemap, words, 8, 1), "pagemap, unaligned");
    SAY(pread(pagemap, words, 7, 0), "pagemap, part of a word");
    SAY(pread(pagemap, words, 16, (off_t)(end_of_user / PAGE * 8)), "pagemap, behind the end");
    SAY(pread(pagemap, words, 8, 1l << 62), "pagemap, far behind the end");
}

static long attached(int id) {
    struct shmid_ds status;
    return shmctl(id, IPC_STAT, &status) ? -1 : (long)status.shm_nattch;
}

static void segments(void) {
    int id = shmget(IPC_PRIVATE, 6 * PAGE, IPC_CREAT | 0600);
    SAY(attached(id), "nattch, nobody");
    char *a = shmat(id, 0, 0), *b = shmat(id, 0, SHM_RDONLY);
    SAY(attached(id), "nattch, two");
    munmap(a + 2 * PAGE, PAGE);
    SAY(attached(id), "nattch, a hole");
    mprotect(a, PAGE, PROT_READ);
    SAY(attached(id), "nattch, other rights");
    if (child() == 0) {
        SAY(attached(id), "nattch, in a child");
        shmdt(b);
        SAY(attached(id), "nattch, one less");
        finish();
    }
    wait_for_child();
    SAY(attached(id), "nattch, the child has gone");
    munmap(b, PAGE);
    SAY(attached(id), "nattch, shorter");
    SAY(shmdt(a), "shmdt");
    SAY(attached(id), "nattch, one");
    shmctl(id, IPC_RMID, 0);
    SAY(attached(id), "nattch, to go");
    SAY(shmdt(b), "shmdt");
    SAY(attached(id), "nattch, gone");
}

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    mem = open("/proc/self/mem", O_RDWR);
    pagemap = open("/proc/self/pagemap", O_RDONLY);
    if (mem < 0 || pagemap < 0)
        printf("no files\n");
    rights();
    pages();
    segments();
    printf("done\n");
    return 0;
}
