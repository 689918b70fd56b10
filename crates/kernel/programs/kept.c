/* What a process tells the kernel about itself is checked as by Linux, kept, and told back. Prints "ok WHAT" for each
   part. Parts that only root can do say the same where the caller is not root. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

/* A name is read up to its 15th byte, whatever follows. */
static void names(void) {
    enum { STRETCH = 1 << 20, NR_STRETCHES = 256 };
    char name[16] = "";
    int fd = syscall(SYS_memfd_create, "text", 0);
    CHECK(fd >= 0 && ftruncate(fd, STRETCH) == 0);
    char *text = mmap(0, NR_STRETCHES * (size_t)STRETCH + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(text != MAP_FAILED);
    for (long i = 0; i < NR_STRETCHES; i++)
        CHECK(mmap(text + i * STRETCH, STRETCH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == text + i * STRETCH);
    memset(text, 'x', STRETCH);
    char *end = text + NR_STRETCHES * (size_t)STRETCH;
    CHECK(prctl(PR_SET_NAME, text) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xxxxxxxxxxxxxxx") == 0);
    memcpy(text, "abcdefghijklmnopq", 17);
    CHECK(prctl(PR_SET_NAME, text) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "abcdefghijklmno") == 0);
    CHECK(prctl(PR_SET_NAME, end - 15) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xxxxxxxxxxxxxxx") == 0);
    CHECK(FAILS(prctl(PR_SET_NAME, end - 14), EFAULT));
    end[-1] = 0;
    CHECK(prctl(PR_SET_NAME, end - 3) == 0 && prctl(PR_GET_NAME, name) == 0 && strcmp(name, "xx") == 0);
    CHECK(FAILS(prctl(PR_SET_NAME, 1), EFAULT));
    CHECK(munmap(text, NR_STRETCHES * (size_t)STRETCH + PAGE) == 0 && close(fd) == 0);
    printf("ok names\n");
}

int main(void) {
    names();
    printf("done\n");
    return 0;
}
