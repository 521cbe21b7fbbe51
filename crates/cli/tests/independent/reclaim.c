/* What `stopgap probe reclaim` measures, measured again without any of its code.
 *
 *   reclaim cost DIR MIB        ns of thread CPU time a page, of a memfd in a new cgroup DIR: lines of WAY STEP NS
 *   reclaim scan DIR MIB MS     pages scanned for a page reclaimed in a new cgroup (version 1) DIR, while MIB of a memfd are
 *                               pinned beside the refault load in as much room again; 0 MIB: nothing is, in a room of 64 MiB
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20, PIPES = 4096 };
static int pipes[PIPES][2], used;
static volatile int stop;

static void must(int good, const char *what) {
    if (!good) { perror(what); exit(1); }
}

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void make_resident(char *at, size_t bytes) {
    madvise(at, bytes, MADV_NOHUGEPAGE);
    must(madvise(at, bytes, 23 /* MADV_POPULATE_WRITE */) == 0, "populate");
}

static char *memfd(size_t bytes) {
    int fd = memfd_create("independent", 0);
    must(fd >= 0 && ftruncate(fd, bytes) == 0, "memfd");
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(at != MAP_FAILED, "mmap");
    close(fd);
    make_resident(at, bytes);
    return at;
}

/* A reference to each page: pipes of as many pages as root may have in one. */
static void pin(char *at, size_t bytes) {
    FILE *file = fopen("/proc/sys/fs/pipe-max-size", "r");
    int most = MIB;
    if (file) { must(fscanf(file, "%d", &most) == 1, "pipe-max-size"); fclose(file); }
    for (size_t done = 0; done < bytes; used++) {
        must(used < PIPES && pipe(pipes[used]) == 0, "pipe");
        fcntl(pipes[used][1], F_SETPIPE_SZ, most);
        for (;;) {
            struct iovec part = {at + done, bytes - done};
            ssize_t took = done < bytes ? vmsplice(pipes[used][1], &part, 1, SPLICE_F_NONBLOCK) : 0;
            if (took <= 0) break;
            done += took;
        }
    }
}

static void unpin(void) {
    while (used > 0) { used--; close(pipes[used][0]); close(pipes[used][1]); }
}

#define TIMED(way, step, what) do { \
    double start = now(CLOCK_THREAD_CPUTIME_ID); \
    what; \
    printf("%s %s %.1f\n", way, step, (now(CLOCK_THREAD_CPUTIME_ID) - start) / (bytes / PAGE)); \
} while (0)

/* What the probe does between a pass and the release. It leaves other cache lines than a pass does, and a reference is dropped
 * in 30 ns or in 60. */
static void reclaim(const char *directory, char *at, size_t bytes) {
    char path[4096], text[32];
    volatile char sum = 0;
    int length = snprintf(text, sizeof text, "%zu", bytes);
    for (size_t i = 0; i < bytes; i += PAGE) sum += at[i];
    snprintf(path, sizeof path, "%s/memory.force_empty", directory);
    int fd = open(path, O_WRONLY);
    if (fd >= 0) length = snprintf(text, sizeof text, "0");
    else {
        snprintf(path, sizeof path, "%s/memory.reclaim", directory);
        fd = open(path, O_WRONLY); /* since 5.19: before, the probe has none either */
    }
    if (fd < 0) return;
    if (write(fd, text, length) < 0) { /* EAGAIN or EBUSY: less than that could be reclaimed */ }
    close(fd);
}

static void cost(const char *directory, size_t bytes) {
    char *at = memfd(bytes);
    TIMED("mlock", "take", must(mlock(at, bytes) == 0, "mlock"));
    madvise(at, bytes, 21 /* MADV_PAGEOUT */);
    reclaim(directory, at, bytes);
    TIMED("mlock", "release", munlock(at, bytes));
    munmap(at, bytes);
    at = memfd(bytes);
    TIMED("vmsplice", "take", pin(at, bytes));
    TIMED("vmsplice", "pass", madvise(at, bytes, 21));
    reclaim(directory, at, bytes);
    TIMED("vmsplice", "release", unpin());
    munmap(at, bytes);
    int id = shmget(IPC_PRIVATE, bytes, 0600);
    must(id >= 0, "shmget");
    at = shmat(id, 0, 0);
    shmctl(id, IPC_RMID, 0);
    make_resident(at, bytes);
    TIMED("shm-lock", "take", must(shmctl(id, SHM_LOCK, 0) == 0, "SHM_LOCK"));
    TIMED("shm-lock", "pass", madvise(at, bytes, 21));
    reclaim(directory, at, bytes);
    TIMED("shm-lock", "release", shmctl(id, SHM_UNLOCK, 0));
}

/* Sum of the counters of /proc/vmstat that begin with `name` and end in _anon or _file. */
static double counter(const char *name) {
    FILE *file = fopen("/proc/vmstat", "r");
    char word[64];
    long long value;
    double sum = 0;
    while (fscanf(file, "%63s %lld", word, &value) == 2) {
        size_t n = strlen(name);
        if (!strncmp(word, name, n) && (!strcmp(word + n, "_anon") || !strcmp(word + n, "_file"))) sum += value;
    }
    fclose(file);
    return sum;
}

static void *reads(void *path) {
    static char buffer[256 << 10];
    int fd = open(path, O_RDONLY);
    while (!stop) { lseek(fd, 0, SEEK_SET); while (!stop && read(fd, buffer, sizeof buffer) > 0); }
    return 0;
}

static void *populates(void *unused) {
    while (!stop) {
        char *at = mmap(0, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        make_resident(at, 2 * MIB);
        munmap(at, 2 * MIB);
    }
    return unused;
}

static void put(const char *directory, const char *name, long long value) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    must(file && fprintf(file, "%lld", value) > 0 && fclose(file) == 0, path);
}

static void scan(const char *directory, size_t pinned, double ns) {
    size_t room = pinned ? pinned : 64 * MIB;
    char path[] = "independent-XXXXXX";
    int fd = mkstemp(path);
    must(fd >= 0 && ftruncate(fd, room + room / 8) == 0, "file");
    put(directory, "memory.limit_in_bytes", room + pinned);
    put(directory, "cgroup.procs", getpid());
    if (pinned) pin(memfd(pinned), pinned);
    pthread_t threads[2];
    pthread_create(&threads[0], 0, reads, path);
    pthread_create(&threads[1], 0, populates, 0);
    double first = counter("pgsteal"), begun = 0, scanned = 0, reclaimed = 0;
    int warm = 0;
    for (;;) {
        usleep(15000);
        double at = now(CLOCK_MONOTONIC), stolen = counter("pgsteal") - first;
        if (!begun) { if (stolen > 0) begun = at; continue; }
        if (!warm && (stolen >= 8.0 * room / PAGE || at - begun >= ns / 3)) {
            warm = 1;
            scanned = counter("pgscan");
            reclaimed = counter("pgsteal");
        }
        if (at - begun >= ns) break;
    }
    printf("scanned/reclaimed %.3f\n", (counter("pgscan") - scanned) / (counter("pgsteal") - reclaimed));
    unlink(path);
    fflush(stdout);
    _exit(0);
}

int main(int count, char **words) {
    int scans = count == 5 && !strcmp(words[1], "scan");
    if (!scans && (count != 4 || strcmp(words[1], "cost"))) return 2;
    must(mkdir(words[2], 0700) == 0, words[2]);
    if (fork() == 0) {
        size_t bytes = (size_t)atoi(words[3]) * MIB;
        if (scans) scan(words[2], bytes, atof(words[4]) * 1e6);
        put(words[2], "cgroup.procs", getpid());
        cost(words[2], bytes);
        return 0;
    }
    int status;
    wait(&status);
    for (int i = 0; i < 100 && rmdir(words[2]); i++) usleep(20000);
    return status != 0;
}
