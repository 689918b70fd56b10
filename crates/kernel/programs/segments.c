/* Memory between processes without files: System V segments, futexes in shared memory, and the calls that ask for
   pages to stay or lie somewhere. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
/* <linux/futex.h> is not there for every C library. */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1

static void finish(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
}

static long nr_attached(int id) {
    struct shmid_ds status;
    CHECK(shmctl(id, IPC_STAT, &status) == 0);
    return status.shm_nattch;
}

/* The line of a segment in /proc/sysvipc/shm says what shmctl(2) says. */
static void listed(int id, long size, int mode, long nr_attached) {
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    char line[512];
    int found = 0;
    CHECK(file && fgets(line, sizeof line, file) && strstr(line, "shmid perms"));
    while (fgets(line, sizeof line, file)) {
        int key, which, shown, creator, last, uid, gid;
        long bytes, attached;
        CHECK(sscanf(line, "%d %d %o %ld %d %d %ld %d %d", &key, &which, &shown, &bytes, &creator, &last, &attached, &uid,
                     &gid) == 9);
        if (which != id)
            continue;
        found++;
        CHECK(strlen(line) == 169 + 1);
        CHECK(key == IPC_PRIVATE && bytes == size && shown == mode && attached == nr_attached && creator == getpid());
    }
    CHECK(fclose(file) == 0 && found == 1);
}

/* The number that the next segment is to have. It counts once, and a number that is taken gives another. */
static void next_number(void) {
    FILE *file = fopen("/proc/sys/kernel/shm_next_id", "r+");
    if (!file) /* root only, and not in each kernel */
        return;
    int wanted = 5 << 15 | 77, shown = 0;
    CHECK(fprintf(file, "%d", wanted) > 0 && fflush(file) == 0);
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(id == wanted);
    rewind(file);
    CHECK(fscanf(file, "%d", &shown) == 1 && shown == -1);
    CHECK(fclose(file) == 0);
    file = fopen("/proc/sys/kernel/shm_next_id", "w");
    CHECK(file && fprintf(file, "%d", wanted) > 0 && fclose(file) == 0);
    int other = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(other == wanted + 1); /* the next place */
    CHECK(shmctl(id, IPC_RMID, 0) == 0 && shmctl(other, IPC_RMID, 0) == 0);
    /* A refusal because of the size leaves the number; one at the end of the table uses it up. */
    wanted = 5 << 15 | 32767;
    file = fopen("/proc/sys/kernel/shm_next_id", "r+");
    CHECK(file && fprintf(file, "%d", wanted) > 0 && fflush(file) == 0);
    CHECK(shmget(IPC_PRIVATE, 0, 0600) == -1 && errno == EINVAL);
    id = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(id == wanted);
    rewind(file);
    CHECK(fprintf(file, "%d", wanted) > 0 && fflush(file) == 0);
    CHECK(shmget(IPC_PRIVATE, PAGE, 0600) == -1 && errno == ENOSPC);
    rewind(file);
    CHECK(fscanf(file, "%d", &shown) == 1 && shown == -1 && fclose(file) == 0);
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
    file = fopen("/proc/sys/kernel/shm_next_id", "w");
    CHECK(file && fprintf(file, "-1") > 0 && fclose(file) == EOF && errno == EINVAL);
}

static void segments(void) {
    int id = shmget(IPC_PRIVATE, 3 * PAGE - 5, IPC_CREAT | 0640);
    CHECK(id >= 0);
    struct shmid_ds status;
    CHECK(shmctl(id, IPC_STAT, &status) == 0);
    CHECK(status.shm_segsz == 3 * PAGE - 5 && status.shm_nattch == 0 && status.shm_cpid == getpid());
    CHECK((status.shm_perm.mode & 0777) == 0640 && status.shm_atime == 0);
    char *p = shmat(id, 0, 0);
    CHECK(p != (char *)-1 && p[0] == 0 && p[3 * PAGE - 1] == 0);
    strcpy(p + PAGE, "parent");
    char *q = shmat(id, 0, SHM_RDONLY);
    CHECK(q != (char *)-1 && q != p && strcmp(q + PAGE, "parent") == 0);
    CHECK(mprotect(q, PAGE, RW) == -1 && errno == EACCES);
    CHECK(nr_attached(id) == 2);
    listed(id, 3 * PAGE - 5, 0640, 2);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(strcmp(q + PAGE, "parent") == 0);
        CHECK(nr_attached(id) == 4);
        strcpy(p + 2 * PAGE, "child");
        CHECK(shmdt(q) == 0);
        _exit(0);
    }
    finish(pid);
    CHECK(strcmp(q + 2 * PAGE, "child") == 0 && nr_attached(id) == 2);
    CHECK(shmctl(id, IPC_STAT, &status) == 0 && status.shm_lpid == pid);
    CHECK(shmdt(p + PAGE) == -1 && errno == EINVAL);
    CHECK(shmdt(p) == 0 && shmdt(p) == -1 && errno == EINVAL);
    /* Doomed, it lives as long as it is attached. */
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
    CHECK(shmctl(id, IPC_STAT, &status) == 0 && (status.shm_perm.mode & 01000) && status.shm_nattch == 1);
    CHECK(strcmp(q + 2 * PAGE, "child") == 0);
    CHECK(shmdt(q) == 0);
    CHECK(shmctl(id, IPC_STAT, &status) == -1 && (errno == EINVAL || errno == EIDRM));
    CHECK(shmat(id, 0, 0) == (void *)-1 && (errno == EINVAL || errno == EIDRM));
}

static void keys(void) {
    key_t key = 0x5f00 + getpid();
    CHECK(shmget(key, PAGE, 0) == -1 && errno == ENOENT);
    int id = shmget(key, PAGE, IPC_CREAT | 0600);
    CHECK(id >= 0 && shmget(key, 0, 0) == id && shmget(key, PAGE, IPC_CREAT) == id);
    CHECK(shmget(key, PAGE, IPC_CREAT | IPC_EXCL) == -1 && errno == EEXIST);
    CHECK(shmget(key, 2 * PAGE, 0) == -1 && errno == EINVAL);
    CHECK(shmget(key + 1000000, 0, IPC_CREAT) == -1 && errno == EINVAL);
    struct shmid_ds status;
    CHECK(shmctl(id, IPC_STAT, &status) == 0);
    status.shm_perm.mode = 0444;
    CHECK(shmctl(id, IPC_SET, &status) == 0 && shmctl(id, IPC_STAT, &status) == 0);
    CHECK((status.shm_perm.mode & 0777) == 0444 && status.shm_perm.__key == key);
    struct shm_info info;
    int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
    CHECK(highest >= 0 && info.used_ids >= 1 && info.shm_tot >= 1);
    int found = 0;
    for (int i = 0; i <= highest; i++)
        found |= shmctl(i, SHM_STAT, &status) == id;
    CHECK(found);
    struct shminfo limits;
    CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits) == highest && limits.shmmin == 1 && limits.shmmni == 4096);
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
    CHECK(shmget(key, PAGE, 0) == -1 && errno == ENOENT);
    CHECK(shmctl(id, 99, &status) == -1 && errno == EINVAL);
    CHECK(shmctl(-1, IPC_STAT, &status) == -1 && errno == EINVAL);
}

static void places(void) {
    int id = shmget(IPC_PRIVATE, 2 * PAGE, IPC_CREAT | 0600);
    char *room = mmap(0, 8 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(room + 2 * PAGE, 6 * PAGE) == 0);
    CHECK(shmat(id, room + 3 * PAGE + 1, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, room + PAGE, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, 0, SHM_REMAP) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, room + 3 * PAGE + 1, SHM_RND) == room + 3 * PAGE);
    CHECK(shmat(id, room + PAGE, SHM_REMAP) == room + PAGE);
    strcpy(room + PAGE, "seen");
    CHECK(strcmp(room + 3 * PAGE, "seen") == 0);
    /* Half of it unmapped: the rest goes with shmdt. */
    CHECK(munmap(room + 3 * PAGE, PAGE) == 0);
    CHECK(shmdt(room + PAGE) == 0);
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
    CHECK(munmap(room + 4 * PAGE, PAGE) == 0);
    struct shmid_ds status;
    CHECK(shmctl(id, IPC_STAT, &status) == -1);
    CHECK(munmap(room, PAGE) == 0);
}

/* shmdt removes the rest of an attachment, however far apart its parts lie, and nothing else. */
static void remains(void) {
    const long size = 1L << 40;
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | SHM_NORESERVE | 0600);
    char *p = shmat(id, 0, 0);
    CHECK(id >= 0 && p != (char *)-1);
    CHECK(munmap(p, PAGE) == 0 && munmap(p + 2 * PAGE, size - 3 * PAGE) == 0);
    CHECK(mmap(p + 3 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 3 * PAGE);
    p[PAGE] = p[3 * PAGE] = p[size - 1] = 1;
    CHECK(shmdt(p + PAGE) == -1 && errno == EINVAL);
    CHECK(shmdt(p) == 0);
    CHECK(msync(p + PAGE, PAGE, MS_ASYNC) == -1 && msync(p + size - PAGE, PAGE, MS_ASYNC) == -1);
    CHECK(p[3 * PAGE] == 1 && munmap(p + 3 * PAGE, PAGE) == 0);
    CHECK(shmctl(id, IPC_RMID, 0) == 0);
}

/* mremap makes an attachment larger than the segment: the rest of it goes all the same, if it is the first part. */
static void grown(void) {
    for (long nr_gone = 0; nr_gone < 3; nr_gone++) {
        int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
        char *p = mremap(shmat(id, 0, 0), PAGE, 3 * PAGE, MREMAP_MAYMOVE);
        CHECK(p != MAP_FAILED && shmctl(id, IPC_RMID, 0) == 0);
        CHECK(nr_gone == 0 || munmap(p, nr_gone * PAGE) == 0);
        CHECK(shmdt(p) == 0);
        CHECK(msync(p + 2 * PAGE, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
        struct shmid_ds status;
        CHECK(shmctl(id, IPC_STAT, &status) == -1);
    }
}

static long futex(int *word, int op, int value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, op, value, timeout, 0, 0);
}

/* Two mappings of one page, in two processes: one futex. */
static void futexes(void) {
    int *mine = mmap(0, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(mine != MAP_FAILED);
    pid_t pid = fork();
    if (pid == 0) {
        int *moved = mremap(mine, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x10000000);
        CHECK(moved == (void *)0x10000000);
        __atomic_store_n(moved + 1, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(moved, __ATOMIC_SEQ_CST) == 0)
            futex(moved, FUTEX_WAIT, 0, 0);
        __atomic_store_n(moved + 2, 1, __ATOMIC_SEQ_CST);
        futex(moved + 2, FUTEX_WAKE, 1, 0);
        _exit(0);
    }
    struct timespec second = {1, 0}, moment = {0, 20000000};
    while (__atomic_load_n(mine + 1, __ATOMIC_SEQ_CST) == 0)
        nanosleep(&moment, 0);
    nanosleep(&moment, 0);
    __atomic_store_n(mine, 1, __ATOMIC_SEQ_CST);
    futex(mine, FUTEX_WAKE, 1, 0);
    while (__atomic_load_n(mine + 2, __ATOMIC_SEQ_CST) == 0)
        futex(mine + 2, FUTEX_WAIT, 0, &second);
    finish(pid);
    /* A futex in private memory is the process's own: the child's wake does not reach the parent's copy. */
    int *alone = mmap(0, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid = fork();
    if (pid == 0) {
        _exit(futex(alone, FUTEX_WAKE, 1, 0) != 0);
    }
    CHECK(futex(alone, FUTEX_WAIT, 0, &moment) == -1 && errno == ETIMEDOUT);
    finish(pid);
}

static void locks(void) {
    char *p = mmap(0, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char resident[4];
    CHECK(mlock(p + 5, PAGE) == 0 && mincore(p, 4 * PAGE, resident) == 0);
    CHECK((resident[0] & 1) && (resident[1] & 1) && !(resident[2] & 1));
    CHECK(syscall(SYS_mlock2, p + 2 * PAGE, PAGE, 1 /* MLOCK_ONFAULT */) == 0 && mincore(p, 4 * PAGE, resident) == 0);
    CHECK(!(resident[2] & 1));
    CHECK(syscall(SYS_mlock2, p, PAGE, 2) == -1 && errno == EINVAL);
    CHECK(munlock(p, 4 * PAGE) == 0);
    CHECK(munmap(p + 3 * PAGE, PAGE) == 0);
    CHECK(mlock(p, 4 * PAGE) == -1 && errno == ENOMEM);
    CHECK(munlock(p, 4 * PAGE) == -1 && errno == ENOMEM);
    CHECK(mlockall(0) == -1 && errno == EINVAL);
    CHECK(munlockall() == 0);
    CHECK(msync(p, 3 * PAGE, MS_SYNC) == 0 && msync(p, 4 * PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    CHECK(msync(p, PAGE, MS_SYNC | MS_ASYNC) == -1 && errno == EINVAL);
    CHECK(msync(p + 1, PAGE, MS_SYNC) == -1 && errno == EINVAL);
    CHECK(msync(p, PAGE, 64) == -1 && errno == EINVAL);
}

/* The mode of a segment says what another user may do with it. */
static void rights(void) {
    int id = shmget(77, PAGE, IPC_CREAT | 0640), open = shmget(78, PAGE, IPC_CREAT | 0644);
    struct shmid_ds status;
    CHECK(id >= 0 && open >= 0 && shmctl(open, IPC_STAT, &status) == 0 && status.shm_perm.cuid == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setgid(1000) == 0 && setuid(1000) == 0);
        CHECK(shmat(id, 0, 0) == (void *)-1 && errno == EACCES && shmat(id, 0, SHM_RDONLY) == (void *)-1);
        CHECK(shmget(77, PAGE, 0600) == -1 && errno == EACCES && shmget(77, PAGE, 0) == id);
        CHECK(shmctl(id, IPC_STAT, &status) == -1 && errno == EACCES);
        CHECK(shmctl(id, IPC_SET, &status) == -1 && errno == EPERM && shmctl(id, IPC_RMID, 0) == -1 && errno == EPERM);
        CHECK(shmat(open, 0, 0) == (void *)-1 && errno == EACCES && shmat(open, 0, SHM_RDONLY) != (void *)-1);
        CHECK(shmctl(open, IPC_STAT, &status) == 0 && shmctl(open, IPC_RMID, 0) == -1 && errno == EPERM);
        CHECK((id = shmget(IPC_PRIVATE, PAGE, 0600)) >= 0 && shmctl(id, IPC_STAT, &status) == 0);
        CHECK(status.shm_perm.uid == 1000 && status.shm_perm.cgid == 1000 && shmat(id, 0, 0) != (void *)-1);
        CHECK(shmctl(id, IPC_RMID, 0) == 0);
        _exit(0);
    }
    finish(pid);
    CHECK(shmctl(id, IPC_STAT, &status) == 0 && (status.shm_perm.uid = 1000) && shmctl(id, IPC_SET, &status) == 0);
    if ((pid = fork()) == 0) {
        CHECK(setuid(1000) == 0 && shmat(id, 0, 0) != (void *)-1 && shmctl(id, IPC_RMID, 0) == 0);
        _exit(0);
    }
    finish(pid);
    CHECK(shmctl(open, IPC_RMID, 0) == 0);
}

int main(void) {
    segments();
    next_number();
    rights();
    keys();
    places();
    remains();
    grown();
    futexes();
    locks();
    puts("segments ok");
    return 0;
}
