/* A check for the test programs that says where it failed. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                    \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)
