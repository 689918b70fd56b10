/* A part of a program: prints `ok WHAT`, or ends the program. */
#include <stdio.h>
#include <stdlib.h>

static void check(int ok, const char *what) {
    printf("%s %s\n", ok ? "ok" : "FAILED", what);
    fflush(stdout);
    if (!ok) exit(1);
}
