#include "common.h"

#include <dirent.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <sys/ioctl.h>

/* Copies only the template's data: the holes of a fresh filesystem stay holes. */
static void copy_sparse(int from, int to) {
  struct stat status;
  if (fstat(from, &status) < 0 || ftruncate(to, status.st_size) < 0) fail("cannot size the image");
  char block[1 << 16];
  for (off_t at = 0; at < status.st_size;) {
    off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) break;
      fail("cannot read the template");
    }
    off_t end = lseek(from, data, SEEK_HOLE);
    if (end < 0) fail("cannot read the template");
    for (at = data; at < end;) {
      size_t want = end - at < (off_t)sizeof block ? (size_t)(end - at) : sizeof block;
      ssize_t got = pread(from, block, want, at);
      if (got <= 0) fail("cannot read the template");
      if (pwrite(to, block, (size_t)got, at) != got) fail("cannot write the image");
      at += got;
    }
  }
}

static int attach_loop(int image, const char *name, int *number) {
  int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) fail("cannot open /dev/loop-control, which the disk limit needs");
  for (int attempt = 0; attempt < 200; attempt++) {
    *number = ioctl(control, LOOP_CTL_GET_FREE);
    if (*number < 0) fail("no free loop device");
    char path[32];
    snprintf(path, sizeof path, "/dev/loop%d", *number);
    int loop = open(path, O_RDWR | O_CLOEXEC);
    if (loop < 0) {
      if (errno == ENOENT || errno == ENXIO || errno == EBUSY) {
        sleep_ms(1);
        continue;
      }
      fail("cannot open %s", path);
    }
    struct loop_config config = {.fd = (uint32_t)image, .block_size = 4096};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, "%s", name);
    if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
      close(control);
      return loop;
    }
    /* Another process took the device between the two calls. */
    if (errno != EBUSY) fail("cannot attach %s to %s", name, path);
    close(loop);
    sleep_ms(1);
  }
  die(EXIT_FAILED, "every free loop device was taken by others");
}

/* The caller may have put one there, itself or by a link, as the clone of a template or of a checkpoint. */
static int open_image(const struct spec *spec, int dirfd, const char *image, const char *template_path) {
  int file = openat(dirfd, image, O_RDWR | O_CLOEXEC);
  if (file >= 0) return file;
  if (errno != ENOENT) fail("cannot open %s/%s", spec->dir, image);
  int template_fd = open(template_path, O_RDONLY | O_CLOEXEC);
  if (template_fd < 0) fail("cannot open the template %s", template_path);
  file = openat(dirfd, image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("cannot create %s/%s", spec->dir, image);
  copy_sparse(template_fd, file);
  close(template_fd);
  return file;
}

/* Mounts an image and returns a mount that is attached nowhere: it is gone when its last user is. */
int image_mount(const struct spec *spec, int dirfd, const char *image, const char *template_path) {
  int file = open_image(spec, dirfd, image, template_path);

  int number = -1;
  int loop = attach_loop(file, image, &number);
  char device[32];
  snprintf(device, sizeof device, "%d", number);
  char *record = format_text("%s.loop", image);
  if (write_at(dirfd, record, device) < 0) fail("cannot record the loop device");
  free(record);

  snprintf(device, sizeof device, "/dev/loop%d", number);
  int context = sys_fsopen("ext4", 1 /* FSOPEN_CLOEXEC */);
  if (context < 0) fail("cannot open the ext4 filesystem type");
  if (sys_fsconfig(context, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
      sys_fsconfig(context, FSCONFIG_SET_FLAG, "noinit_itable", NULL, 0) < 0 ||
      /* A sandbox ends with its host, so what it syncs need only outlive its own processes: it goes as far as the
         host's page cache, and does not wait for whatever else the host's disk has to do. */
      sys_fsconfig(context, FSCONFIG_SET_FLAG, "nobarrier", NULL, 0) < 0 ||
      sys_fsconfig(context, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
      sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    fail("cannot mount %s", image);
  int mount = sys_fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
  if (mount < 0) fail("cannot mount %s", image);
  close(context);
  close(loop);
  close(file);
  return mount;
}

/* The kernel lets go of a loop device some time after its last mount: destroy returns when it has. */
static void wait_for(int dirfd, const char *record) {
  char number[16], path[64], backing[4096];
  if (read_at(dirfd, record, number, sizeof number) <= 0) return;
  char *image = format_text("%.*s", (int)(strlen(record) - strlen(".loop")), record);
  snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", atoi(number));
  for (int attempt = 0; attempt < 1000; attempt++) {
    struct stat ours, theirs;
    if (read_at(AT_FDCWD, path, backing, sizeof backing) <= 0) break;
    backing[strcspn(backing, "\n")] = 0;
    if (fstatat(dirfd, image, &ours, 0) < 0 || stat(backing, &theirs) < 0) break;
    if (ours.st_ino != theirs.st_ino || ours.st_dev != theirs.st_dev) break;
    sleep_ms(attempt < 20 ? 1 : 5);
  }
  free(image);
}

void image_wait_released(int dirfd) {
  wait_for(dirfd, "disk.img.loop");
  wait_for(dirfd, "spool.img.loop");
}
