/* Names of files: making, moving, removing, following them. A transcript. */
#define _GNU_SOURCE
#include "transcript.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char base[64];

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    TRY(file);
    SAY(write(file, text, strlen(text)));
    SAY(close(file));
}

static void show(const char *path) {
    struct stat of;
    if (lstat(path, &of) != 0) {
        printf("  %s: errno %d\n", path, errno);
        return;
    }
    printf("  %s: mode %o links %d", path, of.st_mode, (int)of.st_nlink);
    if (!S_ISDIR(of.st_mode))
        printf(" size %ld", (long)of.st_size);
    printf("\n");
}

static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static void list(const char *path) {
    char *names[64];
    int nr = 0;
    DIR *dir = opendir(path);
    if (!dir) {
        printf("  %s: opendir: errno %d\n", path, errno);
        return;
    }
    for (struct dirent *entry; nr < 64 && (entry = readdir(dir));) {
        char line[300];
        snprintf(line, sizeof line, "%s/%d", entry->d_name, entry->d_type);
        names[nr++] = strdup(line);
    }
    closedir(dir);
    qsort(names, nr, sizeof *names, by_name);
    printf("  %s:", path);
    for (int i = 0; i < nr; i++)
        printf(" %s", names[i]);
    printf("\n");
}

static void opening(void) {
    put("plain", "hello");
    TRY(open("plain", O_RDONLY | O_CREAT | O_EXCL, 0600));
    TRY(open("plain/", O_RDONLY));
    TRY(open("plain/below", O_RDONLY));
    TRY(open("none", O_RDONLY));
    TRY(open("none/below", O_CREAT | O_RDWR, 0600));
    TRY(open("new/", O_CREAT | O_RDWR, 0600));
    TRY(open("", O_RDONLY));
    TRY(open(".", O_RDWR));
    TRY(open(".", O_RDONLY | O_CREAT, 0600));
    TRY(open("plain", O_RDONLY | O_DIRECTORY));
    TRY(open((char *)1, O_RDONLY));
    TRY(open("plain", O_PATH));
    TRY(openat(999, "plain", O_RDONLY));
    TRY(openat(AT_FDCWD, "plain", O_RDONLY));
    int dir = open(".", O_RDONLY | O_DIRECTORY), path = open("plain", O_PATH), file = openat(dir, "plain", O_RDWR);
    TRY(openat(file, "x", O_RDONLY));
    SAY(openat(dir, "../none", O_RDONLY));
    SAY(read(path, base, 1));
    SAY(write(path, base, 1));
    SAY(fchmod(path, 0600));
    SAY(read(dir, base, 1));
    SAY(ftruncate(dir, 0));
    SAY(close(dir) | close(path) | close(file));
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    TRY(unnamed);
    struct stat of;
    SAY(fstat(unnamed, &of));
    SAY(of.st_nlink);
    SAY(write(unnamed, "xyz", 3));
    SAY(lseek(unnamed, 0, SEEK_END));
    SAY(close(unnamed));
    show("plain");
}

static void directories(void) {
    char name[300], deep[5000];
    SAY(mkdir("dir", 0755));
    SAY(mkdir("dir", 0755));
    SAY(mkdir("dir/", 0755));
    SAY(mkdir("dir/sub/", 0700));
    SAY(mkdir("none/sub", 0700));
    SAY(mkdir("plain/sub", 0700));
    SAY(mkdir(".", 0700));
    SAY(mkdir("..", 0700));
    SAY(mkdir("/", 0700));
    show("dir");
    show("dir/sub");
    SAY(rmdir("dir"));
    SAY(rmdir("dir/sub/."));
    SAY(rmdir("dir/sub/.."));
    SAY(rmdir("plain"));
    SAY(rmdir("none"));
    SAY(unlink("dir"));
    SAY(unlink("dir/"));
    SAY(unlink("plain/"));
    SAY(unlink("none"));
    SAY(unlinkat(AT_FDCWD, "dir/sub", 0));
    SAY(unlinkat(AT_FDCWD, "dir/sub", AT_REMOVEDIR));
    SAY(unlinkat(AT_FDCWD, "plain", AT_REMOVEDIR));
    SAY(unlinkat(AT_FDCWD, "plain", 1));
    show("dir");
    memset(name, 'n', 255);
    name[255] = 0;
    SAY(mkdir(name, 0700));
    SAY(rmdir(name));
    strcat(name, "n");
    SAY(mkdir(name, 0700) == -1 && errno == ENAMETOOLONG);
    memset(deep, '/', 4094);
    deep[4094] = '.';
    deep[4095] = 0;
    SAY(access(deep, F_OK));
    strcat(deep, "/");
    SAY(access(deep, F_OK) == -1 && errno == ENAMETOOLONG);
    SAY(umask(027));
    SAY(mkdir("masked", 0777));
    put("masked/file", "");
    SAY(umask(022));
    show("masked");
    list("masked");
}

static void links(void) {
    char text[100];
    SAY(symlink("plain", "link"));
    SAY(symlink("plain", "link"));
    SAY(symlink("", "empty"));
    SAY(symlink("none", "dangling"));
    SAY(symlink("loop2", "loop1"));
    SAY(symlink("loop1", "loop2"));
    SAY(symlink("dir", "to_dir"));
    SAY(symlink("masked/../masked/./file", "long_way"));
    memset(text, 0, sizeof text);
    SAY(readlink("link", text, 3));
    printf("  %s\n", text);
    SAY(readlink("link", text, sizeof text));
    printf("  %s\n", text);
    SAY(readlink("plain", text, sizeof text));
    SAY(readlink("none", text, sizeof text));
    SAY(readlink("link", text, 0));
    SAY(readlink("link/", text, sizeof text));
    show("link");
    SAY(access("link", F_OK));
    SAY(access("long_way", F_OK));
    SAY(access("dangling", F_OK));
    SAY(access("loop1", F_OK));
    SAY(access("loop1/x", F_OK));
    TRY(open("link", O_RDONLY | O_NOFOLLOW));
    TRY(open("link", O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
    TRY(open("dangling", O_RDONLY | O_CREAT | O_EXCL, 0600));
    TRY(open("dangling", O_RDWR | O_CREAT, 0600));
    show("none");
    SAY(unlink("none"));
    SAY(mkdir("dangling", 0700));
    SAY(mkdir("to_dir/below", 0700));
    SAY(rmdir("to_dir"));
    SAY(rmdir("to_dir/"));
    SAY(unlink("to_dir/"));
    SAY(rmdir("dir/below"));
    SAY(link("plain", "second"));
    SAY(link("plain", "second"));
    SAY(link("dir", "second_dir"));
    SAY(link("none", "third"));
    SAY(link("link", "link_of_link"));
    SAY(linkat(AT_FDCWD, "link", AT_FDCWD, "link_followed", AT_SYMLINK_FOLLOW));
    show("plain");
    show("link_of_link");
    show("link_followed");
    SAY(unlink("plain"));
    show("second");
    SAY(rename("second", "plain"));
    list(".");
}

static void renames(void) {
    SAY(mkdir("a", 0755) | mkdir("a/b", 0755) | mkdir("empty", 0755));
    put("f", "f");
    put("g", "gg");
    SAY(rename("f", "g"));
    show("f");
    show("g");
    SAY(rename("g", "a"));
    SAY(rename("a", "g"));
    SAY(rename("a", "a/b/c"));
    SAY(rename("a", "a"));
    SAY(rename("a", "masked"));
    SAY(rename("a", "empty"));
    show("a");
    show("empty");
    list("empty");
    SAY(rename("empty/b", "b"));
    show("empty");
    SAY(rename("none", "x"));
    SAY(rename("g", "none/x"));
    SAY(rename("g", "x/"));
    SAY(rename("g/", "x"));
    SAY(rename("b", "b2/"));
    SAY(rename("b2", "b/."));
    SAY(rename(".", "x"));
    SAY(rename("b2", ".."));
    SAY(link("g", "h"));
    SAY(rename("g", "h"));
    show("g");
    put("i", "iii");
    SAY(syscall(SYS_renameat2, AT_FDCWD, "i", AT_FDCWD, "g", 1));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "i", AT_FDCWD, "j", 1));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "j", AT_FDCWD, "b2", 2));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "j", AT_FDCWD, "none", 2));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "j", AT_FDCWD, "g", 3));
    show("j");
    show("b2");
    list(".");
}

static void here(void) {
    char path[PATH_MAX];
    SAY(mkdir("cwd", 0755) | mkdir("cwd/in", 0755));
    SAY(chdir("cwd/in"));
    printf("  %s\n", strcmp(getcwd(path, sizeof path) + strlen(base), "/cwd/in") ? "wrong" : "right");
    SAY(syscall(SYS_getcwd, path, 3));
    SAY(rename("../../cwd", "../../cwd2"));
    printf("  %s\n", strcmp(getcwd(path, sizeof path) + strlen(base), "/cwd2/in") ? "wrong" : "right");
    SAY(rmdir("../in"));
    SAY(getcwd(path, sizeof path) == 0 && errno == ENOENT);
    TRY(open("x", O_CREAT | O_RDWR, 0600));
    SAY(mkdir("x", 0700));
    list(".");
    SAY(chdir("none"));
    SAY(chdir(base));
    SAY(chdir("plain"));
    int dir = open("cwd2", O_RDONLY), file = open("plain", O_RDONLY);
    SAY(fchdir(dir));
    SAY(fchdir(file));
    SAY(fchdir(999));
    SAY(chdir(".."));
    printf("  %s\n", strcmp(getcwd(path, sizeof path), base) ? "wrong" : "right");
    SAY(chdir("/..") | chdir("/../../tmp/.././/tmp"));
    printf("  %s\n", getcwd(path, sizeof path));
    SAY(chdir(base));
    SAY(close(dir) | close(file));
}

static void attributes(void) {
    struct stat of;
    struct timespec times[2] = {{1000000000, 5}, {1234567890, 999999999}};
    SAY(chmod("plain", 04751));
    show("plain");
    SAY(chmod("none", 0600));
    SAY(chmod("dangling", 0600));
    SAY(fchmodat(AT_FDCWD, "link", 0640, 0));
    show("plain");
    SAY(access("plain", X_OK));
    SAY(access("plain", R_OK | W_OK));
    SAY(access("plain", 8));
    SAY(access("plain/", R_OK));
    SAY(utimensat(AT_FDCWD, "plain", times, 0));
    SAY(stat("plain", &of));
    printf("  %ld.%09ld %ld.%09ld\n", of.st_atim.tv_sec, of.st_atim.tv_nsec, of.st_mtim.tv_sec, of.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = 77;
    SAY(utimensat(AT_FDCWD, "plain", times, 0));
    SAY(stat("plain", &of));
    printf("  %ld.%09ld %ld.%09ld\n", of.st_atim.tv_sec, of.st_atim.tv_nsec, of.st_mtim.tv_sec, of.st_mtim.tv_nsec);
    times[1].tv_nsec = 1000000000;
    SAY(utimensat(AT_FDCWD, "plain", times, 0));
    SAY(truncate("plain", 2));
    show("plain");
    SAY(truncate("plain", 9));
    show("plain");
    SAY(truncate("plain", -1));
    SAY(truncate("dir", 1));
    SAY(truncate("none", 1));
    SAY(stat("plain", &of) | (of.st_mtim.tv_sec > 1700000000));
    SAY(mkfifo("fifo", 0640));
    show("fifo");
    SAY(mkfifo("fifo", 0640));
    TRY(open("fifo", O_WRONLY | O_NONBLOCK));
    TRY(open("fifo", O_RDONLY | O_NONBLOCK));
    SAY(mknod("made", S_IFREG | 0600, 0));
    show("made");
    SAY(mknod("bad", 0170000 | 0600, 0));
}

static void clean(void) {
    list(".");
    for (int round = 0; round < 2; round++) {
        DIR *dir = opendir(".");
        for (struct dirent *entry; (entry = readdir(dir));)
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && unlink(entry->d_name) && errno == EISDIR) {
                char inside[300];
                snprintf(inside, sizeof inside, "%s/file", entry->d_name);
                unlink(inside);
                rmdir(entry->d_name);
            }
        closedir(dir);
    }
    list(".");
    SAY(chdir("/"));
    SAY(rmdir(base));
}

int main(void) {
    strcpy(base, "/tmp/namesXXXXXX");
    if (!mkdtemp(base) || chdir(base))
        return 1;
    SAY(umask(022) & 0);
    opening();
    directories();
    links();
    renames();
    here();
    attributes();
    clean();
    return 0;
}
