/* Prints results of calls line by line: the same on the reference kernel as on Linux. */
#include <errno.h>
#include <stdio.h>

/* Prints the call, its value, and its error's number if it failed. */
#define SAY(call)                                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long value_ = (long)(call);                                                                                    \
        printf("%d: %s = %ld", __LINE__, #call, value_);                                                               \
        if (value_ == -1)                                                                                              \
            printf(" errno %d", errno);                                                                                \
        printf("\n");                                                                                                  \
    } while (0)
/* Prints only whether it succeeded: for calls whose value is chance. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long value_ = (long)(call);                                                                                    \
        printf("%d: %s %s", __LINE__, #call, value_ == -1 ? "failed" : "succeeded");                                   \
        if (value_ == -1)                                                                                              \
            printf(" errno %d", errno);                                                                                \
        printf("\n");                                                                                                  \
    } while (0)
