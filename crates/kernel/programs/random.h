// Random numbers that are the same for the same `state`: splitmix64.
#include <stdint.h>

static uint64_t state;
static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
