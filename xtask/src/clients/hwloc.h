/*
 * The dozen names of hwloc that will-it-scale's main.c uses, over the kernel's
 * CPU affinity calls: Debian's libhwloc cannot be linked static.
 * A core and a processing unit are the same here: a CPU that the program may use.
 */
#ifndef SOFTFAULT_HWLOC_H
#define SOFTFAULT_HWLOC_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

typedef cpu_set_t *hwloc_cpuset_t;
struct hwloc_obj {
	hwloc_cpuset_t cpuset;
};
typedef struct hwloc_obj *hwloc_obj_t;
struct hwloc_topology {
	int nr_objs;
	cpu_set_t sets[CPU_SETSIZE];
	struct hwloc_obj objs[CPU_SETSIZE];
};
typedef struct hwloc_topology *hwloc_topology_t;
typedef enum { HWLOC_OBJ_CORE, HWLOC_OBJ_PU } hwloc_obj_type_t;
#define HWLOC_CPUBIND_THREAD 2

static inline int hwloc_topology_init(hwloc_topology_t *topology)
{
	*topology = calloc(1, sizeof(**topology));
	return *topology ? 0 : -1;
}

static inline int hwloc_topology_load(hwloc_topology_t topology)
{
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		CPU_SET(cpu, &topology->sets[topology->nr_objs]);
		topology->objs[topology->nr_objs].cpuset = &topology->sets[topology->nr_objs];
		topology->nr_objs++;
	}
	return 0;
}

static inline int hwloc_topology_dup(hwloc_topology_t *copy, hwloc_topology_t topology)
{
	if (hwloc_topology_init(copy))
		return -1;
	**copy = *topology;
	for (int i = 0; i < topology->nr_objs; i++)
		(*copy)->objs[i].cpuset = &(*copy)->sets[i];
	return 0;
}

static inline void hwloc_topology_destroy(hwloc_topology_t topology)
{
	free(topology);
}

static inline int hwloc_get_nbobjs_by_type(hwloc_topology_t topology, hwloc_obj_type_t type)
{
	(void)type;
	return topology->nr_objs;
}

static inline hwloc_obj_t hwloc_get_obj_by_type(hwloc_topology_t topology, hwloc_obj_type_t type, unsigned index)
{
	(void)type;
	return index < (unsigned)topology->nr_objs ? &topology->objs[index] : NULL;
}

static inline hwloc_cpuset_t hwloc_bitmap_alloc(void)
{
	return calloc(1, sizeof(cpu_set_t));
}

static inline hwloc_cpuset_t hwloc_bitmap_dup(hwloc_cpuset_t set)
{
	hwloc_cpuset_t copy = hwloc_bitmap_alloc();

	if (copy)
		*copy = *set;
	return copy;
}

static inline void hwloc_bitmap_free(hwloc_cpuset_t set)
{
	free(set);
}

static inline int hwloc_get_cpubind(hwloc_topology_t topology, hwloc_cpuset_t set, int flags)
{
	(void)topology, (void)flags;
	return sched_getaffinity(0, sizeof(*set), set) ? -1 : 0;
}

static inline int hwloc_set_cpubind(hwloc_topology_t topology, hwloc_cpuset_t set, int flags)
{
	(void)topology, (void)flags;
	return sched_setaffinity(0, sizeof(*set), set);
}

static inline int hwloc_set_thread_cpubind(hwloc_topology_t topology, pthread_t thread, hwloc_cpuset_t set, int flags)
{
	(void)topology, (void)flags;
	errno = pthread_setaffinity_np(thread, sizeof(*set), set);
	return errno ? -1 : 0;
}

#endif
