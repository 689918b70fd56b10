/* Never ends. */
#include "check.h"

int main(void) {
    puts("spinning");
    fflush(stdout);
    for (volatile int i = 0;; i++) {
    }
}
