/* As a sandbox does it: after the library was loaded, and before it was called, the kernel stops knowing
 * MADV_WIPEONFORK. Not in Rust, whose start maps memory. Ends with 0 where nobody in the child waits. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *map(void *unused)
{
    void *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || munmap(at, 65536) != 0)
        _exit(3);
    return unused;
}

int main(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 22),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof steps / sizeof *steps, steps };
    struct timespec begin, end;
    int status = 1;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 4;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    /* A map that the library counts and does not take: until then nobody asked for a page. */
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        return 5;
    pid_t child = fork();
    if (child == 0) {
        pthread_t other;
        map(NULL);
        if (pthread_create(&other, NULL, map, NULL) || pthread_join(other, NULL))
            _exit(6);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 7;
    map(NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    /* A lock that nobody gives back is waited for 5 s. */
    return end.tv_sec - begin.tv_sec < 4 ? 0 : 8;
}
