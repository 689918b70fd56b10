/* Output, error output, arguments, environment, auxiliary vector, exit status. */
#include "check.h"
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(int argc, char **argv) {
    CHECK(getauxval(AT_PAGESZ) == 4096);
    CHECK(getauxval(AT_RANDOM) != 0 && getauxval(AT_PHNUM) > 2);
    CHECK(strcmp((char *)getauxval(AT_EXECFN), argv[0]) == 0);
    CHECK(getenv("PATH") != NULL && getpid() > 0);
    char link[64] = {0};
    CHECK(readlink("/proc/self/exe", link, sizeof link - 1) > 0 && strcmp(strrchr(link, '/'), strrchr(argv[0], '/')) == 0);
    printf("hello");
    for (int i = 1; i < argc; i++)
        printf(" [%s]", argv[i]);
    printf("\n");
    fprintf(stderr, "to the error output\n");
    CHECK(write(7, "x", 1) == -1 && read(0, link, 1) == 0);
    return argc == 1 ? 0 : 40 + argc;
}
