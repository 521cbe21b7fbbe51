// The first program of checks/campaign's guests: loads the disk's driver, and makes the disk the root of systemd.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failed(const char *what) {
    perror(what);
    sleep(1);
    return 1;
}

int main(void) {
    int driver = open("/virtio_blk.ko", O_RDONLY | O_CLOEXEC);
    if (driver < 0 || syscall(SYS_finit_module, driver, "", 0) != 0)
        return failed("virtio_blk");
    mkdir("/dev", 0755);
    mkdir("/disk", 0755);
    if (mount("dev", "/dev", "devtmpfs", 0, NULL) != 0)
        return failed("/dev");
    for (int tries = 0; access("/dev/vda", F_OK) != 0 && tries < 100; tries++)
        usleep(100000);
    if (mount("/dev/vda", "/disk", "ext4", 0, "") != 0)
        return failed("/dev/vda");
    umount("/dev");
    if (chdir("/disk") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
        return failed("the root");
    execl("/sbin/init", "init", NULL);
    return failed("/sbin/init");
}
