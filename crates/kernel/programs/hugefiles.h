/* Functions of the programs about huge pages: they read and write the files about them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TOP "/sys/kernel/mm/transparent_hugepage/"
#define SIZE(kib) TOP "hugepages-" #kib "kB/"
#define MIB (1L << 20)
#define PAGE 4096L
#ifndef PR_SET_THP_DISABLE
#define PR_SET_THP_DISABLE 41
#define PR_GET_THP_DISABLE 42
#endif

static char text[1 << 16];

/* Returns the text of a file without its last end of line. */
static inline const char *get(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return "no such file";
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += n;
    close(fd);
    if (len > 0 && text[len - 1] == '\n')
        len--;
    text[len] = 0;
    return text;
}

/* Writes to a file in one go; 0 or the error. */
static inline int set(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0)
        return errno;
    ssize_t n = write(fd, value, strlen(value));
    int error = n < 0 ? errno : 0;
    CHECK(n < 0 || n == (ssize_t)strlen(value));
    close(fd);
    return error;
}

/* The number behind the name of a mapping's line in smaps. */
static inline long of_mapping(const void *at, const char *name) {
    char line[64];
    get("/proc/self/smaps");
    sprintf(line, "\n%lx-", (long)at);
    char *mapping = strstr(text, line);
    CHECK(mapping);
    char *value = strstr(mapping, name);
    CHECK(value);
    return atol(value + strlen(name));
}

static inline long of_file(const char *path, const char *name) {
    char *value = strstr(get(path), name);
    CHECK(value);
    return atol(value + strlen(name));
}

static inline long number_in(const char *path) {
    CHECK(get(path)[0] >= '0' && text[0] <= '9');
    return atol(text);
}
