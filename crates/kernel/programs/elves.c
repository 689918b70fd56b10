// Files that are no programs, or hostile ones: what execve says of them. Prints one line per case; on Linux
// the lines are the same. Where Linux finds out too late and kills the caller, this prints "refused", as for
// an error: nobody can tell the one from the other but by surviving.
// With arguments SEED and ROUNDS: programs with random bytes changed, which may do what they like but end.
#define _GNU_SOURCE
#include "freemem.h"
#include "random.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH "/tmp/elves-candidate"
#define LOADER "/tmp/elves-loader"
extern char **environ;

// A program of one page: exits with 7.
static const unsigned char code[] = {0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};
enum { BASE = 0x400000, SIZE = 4096 };
static struct {
    Elf64_Ehdr head;
    Elf64_Phdr segment[2];
    unsigned char rest[SIZE - sizeof(Elf64_Ehdr) - 2 * sizeof(Elf64_Phdr)];
} image;

static void reset(void) {
    memset(&image, 0, sizeof image);
    memcpy(image.head.e_ident, ELFMAG "\2\1\1", 7);
    image.head.e_type = ET_EXEC, image.head.e_machine = EM_X86_64, image.head.e_version = 1;
    image.head.e_entry = BASE + offsetof(__typeof__(image), rest);
    image.head.e_phoff = sizeof image.head, image.head.e_ehsize = sizeof image.head;
    image.head.e_phentsize = sizeof *image.segment, image.head.e_phnum = 1;
    image.segment[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = BASE, .p_paddr = BASE,
                                    .p_filesz = SIZE, .p_memsz = SIZE, .p_align = 4096};
    image.segment[1] = image.segment[0];
    memcpy(image.rest, code, sizeof code);
}

static void put_at(const char *path, const void *bytes, size_t nr, int mode) {
    unlink(path);
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0700);
    if (file < 0 || write(file, bytes, nr) != (ssize_t)nr) perror(path), exit(1);
    fchmod(file, (mode_t)mode);
    close(file);
}

static void put(const void *bytes, size_t nr, int mode) {
    put_at(PATH, bytes, nr, mode);
}

// How long a program may run that may do anything.
static long patience_us = 5000000;

// Returns how the child ended: its exit status, 1000 + errno of execve, or 2000 + the signal.
static int met(const char *path, char **args) {
    int ends[2], why = 0, status;
    if (pipe2(ends, O_CLOEXEC)) exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct itimerval timer = {{0, 0}, {patience_us / 1000000, patience_us % 1000000}};
        setitimer(ITIMER_REAL, &timer, 0);
        execve(path, args, environ);
        why = errno;
        write(ends[1], &why, sizeof why);
        _exit(0);
    }
    close(ends[1]);
    read(ends[0], &why, sizeof why);
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (why) return 1000 + why;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2000 + WTERMSIG(status);
}

static char *no_args[] = {"x", 0};

static void show(const char *what, int how) {
    if (how < 1000) printf("ok %s: status %d\n", what, how);
    else if (how < 2000) printf("ok %s: %s\n", what, strerror(how - 1000));
    else printf("ok %s: signal %d\n", what, how - 2000);
    fflush(stdout);
}

static void file(const char *what, size_t nr) {
    put(&image, nr, 0700);
    show(what, met(PATH, no_args));
    reset();
}

static void late(const char *what) {
    put(&image, sizeof image, 0700);
    int how = met(PATH, no_args);
    int refused = how == 1000 + ENOMEM || how == 1000 + EINVAL || how == 1000 + ENOEXEC || how == 1000 + ELIBBAD || how == 2000 + SIGSEGV ||
                  how == 2000 + SIGKILL || how == 2000 + SIGBUS;
    if (refused) printf("ok %s: refused\n", what);
    else show(what, how);
    reset();
}

// The image is the loader of a program.
static void loader(const char *what, size_t nr, int is_late) {
    put_at(LOADER, &image, nr, 0700);
    reset();
    image.segment[1] = (Elf64_Phdr){.p_type = PT_INTERP, .p_offset = 1024, .p_filesz = sizeof LOADER, .p_memsz = sizeof LOADER};
    image.head.e_phnum = 2, memcpy((char *)&image + 1024, LOADER, sizeof LOADER);
    if (is_late) late(what);
    else file(what, sizeof image);
    unlink(LOADER);
}

static void loaders(void) {
    image.head.e_type = ET_DYN, image.segment[0].p_vaddr = 0, image.head.e_entry -= BASE, loader("a loader", sizeof image, 0);
    image.head.e_ident[0] = 0, loader("a loader without magic", sizeof image, 0);
    image.head.e_machine = EM_AARCH64, loader("a loader for another machine", sizeof image, 0);
    image.head.e_phnum = 0, loader("a loader without program headers", sizeof image, 0);
    image.head.e_phentsize = 32, loader("a loader with odd program headers", sizeof image, 0);
    image.head.e_type = ET_REL, loader("a loader that is an object file", sizeof image, 1);
    image.head.e_type = ET_DYN, image.head.e_entry = 0xffffffff80000000, loader("a loader's entry in the kernel", sizeof image, 1);
    image.head.e_type = ET_DYN, image.head.e_entry = 0x7ffffffff000, loader("a loader's entry at the end", sizeof image, 1);
    image.head.e_type = ET_DYN, image.head.e_entry = UINT64_MAX, loader("a loader's entry that wraps around", sizeof image, 1);
    image.head.e_type = ET_DYN, image.segment[0].p_memsz = 1ul << 50, loader("a loader of a petabyte", sizeof image, 1);
    image.head.e_type = ET_DYN, image.segment[0].p_vaddr = 0xffff800000000000, loader("a loader in the kernel's half", sizeof image, 1);
}

static void text(const char *what, const char *content) {
    put(content, strlen(content), 0700);
    show(what, met(PATH, no_args));
}

static void cases(void) {
    file("a small program", sizeof image);
    file("an empty file", 0);
    file("half a header", 32);
    file("a header alone", sizeof image.head);
    image.head.e_ident[0] = 0, file("no magic", sizeof image);
    image.head.e_machine = EM_AARCH64, file("another machine", sizeof image);
    image.head.e_type = ET_REL, file("an object file", sizeof image);
    image.head.e_phentsize = 32, file("odd program headers", sizeof image);
    image.head.e_phnum = 0, file("no program headers", sizeof image);
    image.head.e_phnum = 65535, file("more headers than file", sizeof image);
    image.head.e_phoff = 1ul << 62, file("headers beyond the file", sizeof image);
    image.head.e_phoff = UINT64_MAX, file("headers beyond everything", sizeof image);
    image.segment[0].p_type = PT_INTERP, image.segment[0].p_filesz = 5000, file("a loader's name too long", sizeof image);
    image.segment[0].p_type = PT_INTERP, image.segment[0].p_filesz = 1, file("a loader's name too short", sizeof image);
    image.segment[1] = (Elf64_Phdr){.p_type = PT_INTERP, .p_offset = 1024, .p_filesz = 9, .p_memsz = 9};
    image.head.e_phnum = 2, memcpy((char *)&image + 1024, "/no/such", 9), file("a loader that is not there", sizeof image);

    image.segment[0].p_filesz = SIZE + 1, late("more in the file than in memory");
    image.segment[0].p_vaddr = 0xffff800000000000, late("a segment in the kernel's half");
    image.segment[0].p_vaddr = 0x7fffffffe000, late("a segment over the end");
    image.segment[0].p_memsz = 1ul << 50, late("a segment of a petabyte");
    image.segment[0].p_memsz = UINT64_MAX - 4096, late("a segment that wraps around");
    image.head.e_entry = 0xffffffff80000000, late("an entry in the kernel");
    image.head.e_entry = 0, late("an entry at nothing");
    image.segment[0].p_flags = PF_R, late("an entry that is not executable");

    loaders();
    text("a script without an interpreter", "#!\n");
    text("a script with blanks for one", "#!   \n");
    text("a script whose interpreter is missing", "#!/no/such/interpreter\n");
    text("a script that interprets itself", "#!" PATH "\n");
    text("plain text", "hello\n");
    reset();
    put(&image, sizeof image, 0600);
    show("a file that may not be executed", met(PATH, no_args));
    show("a folder", met("/tmp", no_args));
    show("a folder as a path", met(PATH "/x", no_args));
    char *long_name = malloc(5000);
    memset(long_name, 'a', 4999), long_name[0] = '/', long_name[4999] = 0;
    show("a path too long", met(long_name, no_args));
    put(&image, sizeof image, 0700);
    char *big = malloc(200000);
    memset(big, 'a', 199999), big[199999] = 0;
    show("an argument too long", met(PATH, (char *[]){"x", big, 0}));
    big[100000] = 0;
    char *many[101];
    for (int i = 0; i < 100; i++) many[i] = big;
    many[100] = 0;
    show("too many arguments", met(PATH, many));
    many[10] = 0;
    show("many arguments", met(PATH, many));
    unlink(PATH);
}

static void random_case(void) {
    static const uint64_t odd[] = {0, 1, 4095, 4096, 0x7fff, 0x7ffffffff000, 0x800000000000, 0xffff800000000000,
                                   0xffffffff80000000, UINT64_MAX, 1ul << 32, 1ul << 40, BASE, BASE + 4096};
    reset();
    image.head.e_phnum = (Elf64_Half)(1 + next() % 2);
    for (uint64_t i = 0, nr = 1 + next() % 3; i < nr; i++) {
        uint64_t value = next() % 3 ? odd[next() % (sizeof odd / sizeof *odd)] : next();
        uint64_t *fields = (uint64_t *)&image;
        size_t at = next() % ((sizeof image.head + sizeof image.segment) / 8);
        if (next() % 4) fields[at] = value;
        else ((unsigned char *)&image)[next() % 256] = (unsigned char)value;
    }
    memcpy(image.head.e_ident, ELFMAG "\2\1\1", 7);
    put(&image, next() % 8 ? sizeof image : next() % sizeof image, 0700);
    met(PATH, no_args);
}

/* A case may read from a large hole in its program. The huge page of zeroes that is made then stays, so it is made first. */
static void make_huge_zero_page(void) {
    char *memory = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    char *whole = (char *)(((unsigned long)memory + (2 << 20) - 1) & ~((2ul << 20) - 1));
    (void)*(volatile char *)whole;
    munmap(memory, 4 << 20);
}

int main(int argc, char **argv) {
    reset();
    if (argc < 3) {
        cases();
        puts("done");
        return 0;
    }
    patience_us = 100000;
    random_case();
    make_huge_zero_page();
    unsigned long before = free_bytes();
    for (uint64_t i = 0, nr = strtoul(argv[2], 0, 0); i < nr; i++) {
        state = strtoul(argv[1], 0, 0) * 1000003 + i;
        random_case();
    }
    for (int i = 0; i < 2000 && free_bytes() < before; i++) usleep(1000);
    long less = (long)(before - free_bytes()) / 1024;
    if (less > 0) {
        printf("FAILED: %ld KiB less\n", less);
        return 1;
    }
    puts("elves ok");
    return 0;
}
