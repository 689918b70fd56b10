/* The program that the tour runs: threads that touch memory for the first time
 * and check what is in it. Plain C for Linux, nothing of it made for Softfault. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { NR_THREADS = 4, PAGE_BYTES = 4096, NR_PAGES = 4096 };

static void *touch(void *memory)
{
	char *at = memory;
	long wrong = 0;
	for (long i = 0; i < NR_PAGES; i++) {
		wrong += at[i * PAGE_BYTES] != 0;
		at[i * PAGE_BYTES] = (char)(i % 127 + 1);
	}
	for (long i = 0; i < NR_PAGES; i++)
		wrong += at[i * PAGE_BYTES] != (char)(i % 127 + 1);
	return (void *)wrong;
}

int main(void)
{
	pthread_t threads[NR_THREADS];
	long wrong = 0, bytes = (long)NR_PAGES * PAGE_BYTES;
	char *memory = mmap(NULL, NR_THREADS * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	for (int i = 0; i < NR_THREADS; i++)
		if (pthread_create(&threads[i], NULL, touch, memory + i * bytes))
			return 1;
	for (int i = 0; i < NR_THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		wrong += (long)result;
	}
	printf("%d threads touched %d pages each; %ld bytes were not as they should be\n", NR_THREADS, NR_PAGES, wrong);
	return wrong != 0;
}
