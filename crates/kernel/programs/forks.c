// fork, exit, wait, again and again, with so many MiB resident: forks MIB COUNT. Prints how many a second.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fork_once(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (pid < 0 || waitpid(pid, 0, 0) != pid) perror("fork"), exit(1);
}

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoul(argv[1], 0, 0) : 1, nr = argc > 2 ? strtoul(argv[2], 0, 0) : 100;
    char *memory = mmap(0, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mib == 0 || memory == MAP_FAILED) return 1;
    memset(memory, 1, mib << 20);
    for (int i = 0; i < 5; i++) fork_once();
    double begin = seconds();
    for (size_t i = 0; i < nr; i++) fork_once();
    printf("%.1f forks per second, %zu MiB\n", (double)nr / (seconds() - begin), mib);
    return 0;
}
