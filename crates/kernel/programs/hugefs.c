/* hugetlbfs: what mount(2) takes, files of it, their names, and what is said of them. */
#define _GNU_SOURCE
#include "check.h"
#include "hugefiles.h"
#include "hugemounts.h"
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define MAGIC 0x958458f6
#define KEEP_SIZE 1

static int do_mount(const char *options) {
    return mount("none", AT, "hugetlbfs", 0, options) == 0 ? 0 : errno;
}

static int make(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    return fd;
}

static char *map_file(int fd, long pages) {
    return mmap(0, pages * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void refusals(void) {
    const char *wrong[] = {"pagesize=4M", "pagesize=", "pagesize", "mode=9", "nr_inodes=-1", "uid=root", "depth=1", 0};
    for (int i = 0; wrong[i]; i++)
        CHECK(do_mount(wrong[i]) == EINVAL);
    CHECK(mount("none", "/tmp/nothing", "hugetlbfs", 0, 0) == -1 && errno == ENOENT);
    CHECK(close(make("/tmp/file")) == 0 && mount("none", "/tmp/file", "hugetlbfs", 0, 0) == -1 && errno == ENOTDIR);
    CHECK(mount("none", AT, "nosuchfs", 0, 0) == -1 && errno == ENODEV);
    CHECK(mount("none", AT, "hugetlbfs", MS_RDONLY, 0) == -1 && errno == EINVAL);
    CHECK(umount(AT) == -1 && errno == EINVAL && umount2(AT, 64) == -1 && errno == EINVAL);
    CHECK(do_mount("nr_inodes=0") == ENOMEM && umount(AT) == -1 && errno == EINVAL);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setuid(1000) == 0 && do_mount("") == EPERM && umount(AT) == -1 && errno == EPERM);
        _exit(0);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid && result == 0 && unlink("/tmp/file") == 0);
}

/* The directory is covered, and there again. */
static void covers(void) {
    struct stat before, about;
    CHECK(stat(AT, &before) == 0 && close(make(AT "/below")) == 0);
    CHECK(do_mount("mode=1750,uid=7,gid=8,pagesize=2M") == 0 && access(AT "/below", F_OK) == -1 && errno == ENOENT);
    CHECK(stat(AT, &about) == 0 && about.st_dev != before.st_dev && about.st_mode == (S_IFDIR | 01750));
    CHECK(about.st_uid == 7 && about.st_gid == 8);
    CHECK(strstr(get("/proc/mounts"), "none " AT " hugetlbfs rw,relatime,uid=7,gid=8,mode=1750,pagesize=2M 0 0"));
    CHECK(strstr(get("/proc/self/mountinfo"), " / " AT " rw,relatime - hugetlbfs none rw"));
    CHECK(strstr(get("/proc/filesystems"), "nodev\thugetlbfs\n") || strstr(text, "nodev\thugetlbfs"));
    CHECK(rmdir(AT) == -1 && errno == EBUSY && rename(AT, "/tmp/other") == -1 && errno == EBUSY);
    struct statfs fs;
    CHECK(statfs(AT, &fs) == 0 && fs.f_type == MAGIC && fs.f_bsize == HUGE && fs.f_blocks == 0 && fs.f_files == 0);
    /* Another one above it. */
    CHECK(close(make(AT "/first")) == 0 && do_mount("nr_inodes=2") == 0 && access(AT "/first", F_OK) == -1);
    CHECK(umount(AT) == 0 && access(AT "/first", F_OK) == 0);
    CHECK(umount(AT) == 0 && access(AT "/below", F_OK) == 0 && unlink(AT "/below") == 0);
    CHECK(!strstr(get("/proc/mounts"), AT) && umount(AT) == -1 && errno == EINVAL);
}

/* As tmpfs has them. */
static void names(void) {
    CHECK(do_mount("nr_inodes=5") == 0 && mkdir(AT "/dir", 0700) == 0 && mkdir(AT "/dir/below", 0700) == 0);
    CHECK(close(make(AT "/dir/file")) == 0 && symlink("dir/file", AT "/link") == -1 && errno == EINVAL);
    CHECK(mkfifo(AT "/fifo", 0600) == 0);
    CHECK(open(AT "/more", O_CREAT | O_RDWR, 0600) == -1 && errno == ENOSPC && mkdir(AT "/more", 0700) == -1);
    CHECK(errno == ENOSPC && unlink(AT "/fifo") == 0 && close(make(AT "/more")) == 0);
    CHECK(rename(AT "/more", AT "/dir/below/more") == 0 && rename(AT "/dir", "/tmp/dir") == -1 && errno == EXDEV);
    CHECK(link(AT "/dir/file", "/tmp/link") == -1 && errno == EXDEV && link(AT "/dir/file", AT "/second") == 0);
    struct stat about;
    CHECK(stat(AT "/second", &about) == 0 && about.st_nlink == 2 && unlink(AT "/second") == 0);
    DIR *dir = opendir(AT "/dir");
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        seen += strcmp(entry->d_name, "file") == 0 || strcmp(entry->d_name, "below") == 0;
    CHECK(seen == 2 && closedir(dir) == 0 && rmdir(AT "/dir/below") == -1 && errno == ENOTEMPTY);
    /* Who is in it, has a file open or a mount in it keeps it. */
    CHECK(chdir(AT "/dir") == 0 && umount(AT) == -1 && errno == EBUSY && chdir("/") == 0);
    int fd = open(AT "/dir/file", O_RDONLY);
    CHECK(fd >= 0 && umount(AT) == -1 && errno == EBUSY);
    CHECK(mount("other", AT "/dir", "hugetlbfs", 0, 0) == 0 && close(fd) == 0 && umount(AT) == -1 && errno == EBUSY);
    CHECK(strstr(get("/proc/mounts"), "other " AT "/dir hugetlbfs rw,relatime,pagesize=2M 0 0"));
    CHECK(umount(AT "/dir") == 0 && umount(AT) == 0);
}

/* The pages of a file, and of one whose mount is there no more. */
static void files(void) {
    CHECK(do_mount("pagesize=2048K") == 0);
    int fd = make(AT "/file"), small = make("/tmp/small");
    struct stat about;
    char byte = 0;
    CHECK(fstat(fd, &about) == 0 && about.st_blksize == HUGE && about.st_mode == (S_IFREG | 0640));
    CHECK(write(fd, "x", 1) == -1 && errno == EINVAL && ftruncate(fd, PAGE) == -1 && errno == EINVAL);
    CHECK(map_file(fd, 5) == MAP_FAILED && errno == ENOMEM && pool_is(4, 4, 0));
    char *p = map_file(fd, 2);
    CHECK(p != MAP_FAILED && (long)p % HUGE == 0 && pool_is(4, 4, 2) && fstat(fd, &about) == 0);
    CHECK(about.st_size == 2 * HUGE);
    p[HUGE + 1] = 7;
    CHECK(pread(fd, &byte, 1, HUGE + 1) == 1 && byte == 7 && pool_is(4, 3, 1));
    CHECK(fallocate(fd, 0, 0, 3 * HUGE) == 0 && pool_is(4, 1, 0) && p[HUGE + 1] == 7);
    CHECK(fallocate(fd, KEEP_SIZE, 0, 3 * HUGE) == 0 && fstat(fd, &about) == 0 && about.st_size == 3 * HUGE);
    CHECK(fallocate(fd, PUNCH, HUGE, 2 * HUGE) == 0 && pool_is(4, 3, 0) && p[HUGE + 1] == 0 && pool_is(4, 2, 0));
    CHECK(ftruncate(fd, HUGE) == 0 && pool_is(4, 3, 0));
    /* The same file for whoever opens it. */
    int other = open(AT "/file", O_RDWR);
    char *q = map_file(other, 1);
    p[5] = 3;
    CHECK(q != MAP_FAILED && q[5] == 3 && close(other) == 0 && munmap(q, HUGE) == 0);
    /* Whoever is about to make it empty has it empty. */
    CHECK((other = open(AT "/file", O_RDWR | O_TRUNC)) >= 0 && pool_is(4, 4, 0) && close(other) == 0);
    CHECK(ftruncate(fd, 2 * HUGE) == 0 && (p[0] = 1) && unlink(AT "/file") == 0 && pool_is(4, 3, 0));
    CHECK(close(fd) == 0 && p[0] == 1 && munmap(p, 2 * HUGE) == 0 && pool_is(4, 4, 0));
    fd = open(AT, O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && (p = map_file(fd, 1)) != MAP_FAILED && pool_is(4, 4, 1) && munmap(p, HUGE) == 0);
    CHECK(close(fd) == 0 && pool_is(4, 4, 0));
    fd = make(AT "/left");
    CHECK((p = map_file(fd, 1)) != MAP_FAILED && (p[0] = 9) && umount2(AT, MNT_DETACH) == 0 && pool_is(4, 3, 0));
    CHECK(access(AT "/left", F_OK) == -1 && pread(fd, &byte, 1, 0) == 1 && byte == 9 && close(fd) == 0);
    CHECK(p[0] == 9 && munmap(p, HUGE) == 0 && pool_is(4, 4, 0) && close(small) == 0 && unlink("/tmp/small") == 0);
    /* Files that are left go with the mount. */
    CHECK(do_mount("") == 0 && mkdir(AT "/dir", 0700) == 0 && (fd = make(AT "/dir/file")) >= 0);
    CHECK(fallocate(fd, 0, 0, 2 * HUGE) == 0 && close(fd) == 0 && pool_is(4, 2, 0) && umount(AT) == 0);
    CHECK(pool_is(4, 4, 0));
}

/* Numbers in smaps and status: pages of a pool are no part of the resident ones. */
static void reports(void) {
    CHECK(do_mount("") == 0);
    int fd = make(AT "/file");
    long before = of_file("/proc/self/status", "RssShmem:");
    char *p = map_file(fd, 2), *q;
    CHECK(p != MAP_FAILED && of_mapping(p, "KernelPageSize:") == 2048 && of_mapping(p, "MMUPageSize:") == 2048);
    p[0] = p[HUGE] = 1;
    CHECK(of_mapping(p, "Private_Hugetlb:") == 4096 && of_mapping(p, "Shared_Hugetlb:") == 0);
    CHECK(of_mapping(p, "\nRss:") == 0 && of_mapping(p, "Pss:") == 0 && strstr(strstr(text, AT "/file"), " ht"));
    CHECK(of_file("/proc/self/status", "HugetlbPages:") == 4096);
    CHECK(of_file("/proc/self/status", "RssShmem:") == before && of_file("/proc/self/smaps_rollup", "Private_Hugetlb:") == 4096);
    CHECK((q = map_file(fd, 2)) != MAP_FAILED && (q[0] = 2) && (q[HUGE] = 2));
    CHECK(of_mapping(p, "Shared_Hugetlb:") == 4096 && of_mapping(q, "Private_Hugetlb:") == 0);
    CHECK(of_file("/proc/self/status", "HugetlbPages:") == 8192);
    CHECK(munmap(q, 2 * HUGE) == 0 && munmap(p, 2 * HUGE) == 0 && of_file("/proc/self/status", "HugetlbPages:") == 0);
    CHECK(close(fd) == 0 && umount(AT) == 0 && pool_is(4, 4, 0));
    for (int shared = 0; shared < 2; shared++) {
        int flags = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_HUGETLB;
        CHECK((p = mmap(0, HUGE, PROT_READ | PROT_WRITE, flags, -1, 0)) != MAP_FAILED);
        const char *files[] = {"/proc/self/maps", "/proc/self/smaps"};
        for (int i = 0; i < 2; i++) {
            char start[32], *line;
            sprintf(start, "%lx-", (long)p);
            CHECK((line = strstr(get(files[i]), start)));
            *strchr(line, '\n') = 0;
            CHECK(strstr(line, " /anon_hugepage (deleted)"));
        }
        CHECK(munmap(p, HUGE) == 0);
    }
}

/* How many pages all files have at most, and how many are promised to them. */
static void sizes(void) {
    struct statfs fs;
    CHECK(do_mount("min_size=10M") == ENOMEM && do_mount("size=2M,min_size=4M") == EINVAL && pool_is(4, 4, 0));
    CHECK(do_mount("size=5M") == 0 && strstr(get("/proc/mounts"), "pagesize=2M,size=4194304 "));
    CHECK(statfs(AT, &fs) == 0 && fs.f_blocks == 2 && fs.f_bfree == 2 && fs.f_bavail == 2 && fs.f_bsize == HUGE);
    int fd = make(AT "/file"), other = make(AT "/other");
    CHECK(map_file(fd, 3) == MAP_FAILED && errno == ENOMEM && pool_is(4, 4, 0));
    char *p = map_file(fd, 1), *q = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, other, 0);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && pool_is(4, 4, 1) && statfs(AT, &fs) == 0 && fs.f_bfree == 1);
    q[0] = 1;
    CHECK(pool_is(4, 3, 1) && statfs(AT, &fs) == 0 && fs.f_bfree == 0);
    CHECK(fallocate(other, 0, HUGE, HUGE) == -1 && errno == ENOSPC);
    pid_t pid = fork();
    if (pid == 0) {
        q[HUGE] = 1;
        _exit(0);
    }
    int result;
    CHECK(waitpid(pid, &result, 0) == pid && WIFSIGNALED(result) && WTERMSIG(result) == SIGBUS);
    CHECK(fallocate(other, PUNCH, 0, HUGE) == 0 && (q[HUGE] = 2) && (p[0] = 3) && pool_is(4, 2, 0));
    CHECK(munmap(p, HUGE) == 0 && munmap(q, 2 * HUGE) == 0 && close(other) == 0 && close(fd) == 0 && umount(AT) == 0);
    CHECK(pool_is(4, 4, 0) && do_mount("size=50%,min_size=25%") == 0 && pool_is(4, 4, 1));
    CHECK(strstr(get("/proc/mounts"), "pagesize=2M,size=4194304,min_size=2097152 "));
    CHECK((fd = make(AT "/file")) >= 0 && (p = map_file(fd, 1)) != MAP_FAILED && pool_is(4, 4, 1) && (p[0] = 1));
    CHECK(pool_is(4, 3, 0) && ftruncate(fd, 0) == 0 && pool_is(4, 4, 1) && munmap(p, HUGE) == 0 && close(fd) == 0);
    CHECK(umount(AT) == 0 && pool_is(4, 4, 0));
}

int main(void) {
    CHECK(set(NR, "4") == 0 && mkdir(AT, 0755) == 0);
    refusals();
    covers();
    names();
    files();
    sizes();
    reports();
    CHECK(rmdir(AT) == 0 && set(NR, "0") == 0 && pool_is(0, 0, 0));
    puts("hugefs ok");
}
