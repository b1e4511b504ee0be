#include "common.h"

#include <dirent.h>
#include <linux/mount.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Lists what a sandbox has removed of its base: whiteouts on its disk, and directories that hide the base's. The disk is
   looked at from outside, by a second mount of the same filesystem that is attached nowhere. What is on it was written by
   the sandbox: nothing is followed and nothing is read but names and kinds. */

enum { MAX_REMOVED = 1000000, MAX_DEPTH = 2000, MAX_PATH = 4096 };

static long long since;
static long found;
static FILE *out;
static char path[MAX_PATH + 256];

static bool newer(const struct stat *status) {
  return status->st_ctim.tv_sec * 1000000000LL + status->st_ctim.tv_nsec > since;
}

static void tell(int tree) {
  if (++found > MAX_REMOVED) die(EXIT_FAILED, "more than %d removals", MAX_REMOVED);
  fprintf(out, "%d", tree);
  fputc(0, out);
  fputs(path, out);
  fputc(0, out);
}

static bool opaque(int directory) {
  char value[4];
  return fgetxattr(directory, "user.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y';
}

static void walk(int tree, int fd, size_t length, int depth) {
  DIR *directory = fdopendir(fd);
  if (!directory || depth > MAX_DEPTH) fail("cannot list the sandbox's disk");
  for (struct dirent *entry; (entry = readdir(directory));) {
    struct stat status;
    bool device = entry->d_type == DT_CHR, inner = entry->d_type == DT_DIR;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || (!device && !inner)) continue;
    size_t name = strlen(entry->d_name);
    if (length + name + 2 >= MAX_PATH) fail("a path of the sandbox is too long");
    path[length] = '/';
    memcpy(path + length + 1, entry->d_name, name + 1);
    if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno == ENOENT) continue;
      fail("cannot look at the sandbox's disk");
    }
    if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0) && newer(&status)) tell(tree);
    if (S_ISDIR(status.st_mode)) {
      int deeper = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
      if (deeper < 0 && errno == ENOENT) continue;
      if (deeper < 0) fail("cannot open a directory of the sandbox's disk");
      if (newer(&status) && opaque(deeper)) tell(tree);
      walk(tree, deeper, length + 1 + name, depth + 1);
    }
  }
  path[length] = 0;
  closedir(directory);
}

/* A second mount of the disk's image, attached nowhere. */
static int open_image(int dirfd) {
  char number[16], device[32];
  if (read_at(dirfd, "disk.img.loop", number, sizeof number) <= 0) fail("the sandbox has no disk");
  snprintf(device, sizeof device, "/dev/loop%d", atoi(number));
  int context = sys_fsopen("ext4", 1 /* FSOPEN_CLOEXEC */);
  if (context < 0 || sys_fsconfig(context, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
      sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    fail("cannot look at the sandbox's disk");
  int mount = sys_fsmount(context, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOATIME);
  if (mount < 0) fail("cannot look at the sandbox's disk");
  return mount;
}

int command_removed(struct spec *spec) {
  const char *target = spec->out;
  if (!target || !spec->since_ns) die(EXIT_USAGE, "--since-ns and --out are required");
  since = strtoll(spec->since_ns, NULL, 10);
  rootless_enter(spec);
  int dirfd = open(spec->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dirfd < 0) fail("cannot open %s", spec->dir);
  int mount = spec->rootless ? openat(dirfd, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : open_image(dirfd);
  if (mount < 0) fail("cannot open the sandbox's disk");
  int file = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  out = file < 0 ? NULL : fdopen(file, "w");
  if (!out) fail("cannot create %s", target);
  for (int tree = 0; tree < MAX_TREES; tree++) {
    char upper[32];
    snprintf(upper, sizeof upper, "%d/upper", tree);
    int fd = openat(mount, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) break;
    if (fd < 0) fail("cannot open the sandbox's disk");
    path[0] = 0;
    walk(tree, fd, 0, 0);
  }
  if (fclose(out) != 0) fail("cannot write %s", target);
  return 0;
}
