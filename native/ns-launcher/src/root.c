#include "common.h"

#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/sysmacros.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define EMPTY_TO_EMPTY (MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
enum { BIND = 4096, RECURSIVE = 16384, PRIVATE = 1 << 18, DETACH = 2 };

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
_Static_assert(DEVICES == sizeof devices / sizeof *devices, "a place for each device");
static const char *const read_only[] = {"proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"};
static const char *const hidden_files[] = {"proc/kcore",       "proc/keys",     "proc/key-users",  "proc/kmsg",
                                           "proc/timer_list",  "proc/kallsyms", "proc/sched_debug", "proc/config.gz",
                                           "proc/kpagecount",  "proc/kpageflags", "proc/kpagecgroup",
                                           "proc/latency_stats", "proc/vmallocinfo", "proc/slabinfo"};
static const char *const hidden_dirs[] = {"proc/acpi", "proc/scsi", "proc/driver", "proc/dynamic_debug", "proc/asound"};
/* Of a supervisor that has the same id as what runs beside it the kernel lists these, though it opens none. */
static const char *const hidden_of_first[] = {"proc/1/fd", "proc/1/fdinfo", "proc/1/task", "proc/1/map_files"};
static const char *const shown_of_sys[] = {"devices/system/cpu", "devices/system/node", "devices/virtual/net",
                                           "class/net"};
_Static_assert(SHOWN == sizeof shown_of_sys / sizeof *shown_of_sys, "a place for each part");

static void idmap(int mount, int userns) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                                  .userns_fd = (uint64_t)userns};
  if (sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0)
    fail("the filesystem or the kernel has no id-mapped mounts");
}

/* Clones of the lower directories, mapped so that their root is the sandbox's root. Submounts are left out. */
void layers_open(struct spec *spec, int userns) {
  for (int i = 0; i < spec->tree_count; i++) {
    struct tree *tree = &spec->trees[i];
    for (int j = 0; j < tree->lower_count; j++) {
      /* Without root no mount may be taken without those on it; an overlay looks at none of them. */
      unsigned whole = spec->rootless ? AT_RECURSIVE : 0;
      tree->lower_fds[j] = sys_open_tree(AT_FDCWD, tree->lowers[j], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | whole);
      if (tree->lower_fds[j] < 0) fail("cannot open the lower tree %s", tree->lowers[j]);
      if (!spec->rootless) idmap(tree->lower_fds[j], userns);
    }
  }
}

static int fresh(const char *type, const char *const options[][2], unsigned attributes) {
  int context = sys_fsopen(type, 1 /* FSOPEN_CLOEXEC */);
  if (context < 0) fail("cannot open the filesystem type %s", type);
  for (int i = 0; options && options[i][0]; i++)
    if (sys_fsconfig(context, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
      fail("%s: cannot set %s", type, options[i][0]);
  if (sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) fail("cannot make a %s", type);
  int mount = sys_fsmount(context, FSMOUNT_CLOEXEC, attributes);
  if (mount < 0) fail("cannot mount a %s", type);
  close(context);
  return mount;
}

static void make_dirs(const char *path) {
  char partial[512];
  snprintf(partial, sizeof partial, "%s", path);
  for (char *slash = partial; (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    mkdir(partial, 0755);
    *slash = '/';
  }
  mkdir(partial, 0755);
}

/* Opens below the current directory without following a link: what a sandbox once wrote decides nothing here. */
static int open_beneath(const char *path, uint64_t flags, uint64_t mode) {
  struct open_how how = {.flags = flags | O_CLOEXEC,
                         .mode = mode,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  return sys_openat2(AT_FDCWD, path, &how, sizeof how);
}

static void attach(int mount, const char *target) {
  int at = open_beneath(target, O_PATH, 0);
  if (at < 0) fail("the mount point %s", target);
  if (sys_move_mount(mount, "", at, "", EMPTY_TO_EMPTY) < 0) fail("cannot mount on %s", target);
  close(at);
  close(mount);
}

static void attach_dir(int mount, const char *target) {
  make_dirs(target);
  attach(mount, target);
}

static int clone_of(const char *path, unsigned flags) {
  return sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

static void set_read_only(int mount, const char *path) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
  if (sys_mount_setattr(mount, path, AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes) < 0)
    fail("cannot make a mount read-only");
}

/* A device may be written to on a read-only mount; its mode, owner and times may not. */
static void set_device_only(int mount) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
  if (sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) fail("cannot protect a device");
}

static void mount_overlays(const struct spec *spec, int disk_mount) {
  if (mkdir("disk", 0700) < 0 || sys_move_mount(disk_mount, "", AT_FDCWD, "disk", MOVE_MOUNT_F_EMPTY_PATH) < 0)
    fail("cannot attach the sandbox's disk");
  for (int i = 0; i < spec->tree_count; i++) {
    char options[4096] = "lowerdir=", name[32];
    for (int j = 0; j < spec->trees[i].lower_count; j++) {
      snprintf(name, sizeof name, "l%d.%d", i, j);
      if (mkdir(name, 0700) < 0 ||
          sys_move_mount(spec->trees[i].lower_fds[j], "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        fail("cannot attach the layer %s", spec->trees[i].lowers[j]);
      size_t used = strlen(options);
      snprintf(options + used, sizeof options - used, "%s%s", j ? ":" : "", name);
    }
    size_t used = strlen(options);
    snprintf(options + used, sizeof options - used, ",upperdir=disk/%d/upper,workdir=disk/%d/work,userxattr", i, i);
    snprintf(name, sizeof name, "o%d", i);
    if (mkdir(name, 0700) < 0 || syscall(SYS_mount, "overlay", name, "overlay", 2 | 4 /* nosuid, nodev */, options) < 0)
      fail("cannot mount the overlay of %s", spec->trees[i].target);
  }
}

static void mount_proc(const struct spec *spec, int proc) {
  attach_dir(proc, "proc");
  for (size_t i = 0; i < sizeof read_only / sizeof *read_only; i++) {
    int mount = clone_of(read_only[i], 0);
    if (mount < 0 && errno == ENOENT) continue;
    if (mount < 0) fail("cannot open %s", read_only[i]);
    set_read_only(mount, "");
    attach(mount, read_only[i]);
  }
  for (size_t i = 0; i < sizeof hidden_files / sizeof *hidden_files; i++) {
    if (access(hidden_files[i], F_OK) < 0) continue;
    int mount = clone_of("dev/null", 0);
    if (mount < 0) fail("cannot hide %s", hidden_files[i]);
    attach(mount, hidden_files[i]);
  }
  for (size_t i = 0; i < sizeof hidden_dirs / sizeof *hidden_dirs; i++) {
    if (access(hidden_dirs[i], F_OK) < 0) continue;
    attach(fresh("tmpfs", (const char *const[][2]){{"size", "4k"}, {NULL, NULL}}, MOUNT_ATTR_RDONLY), hidden_dirs[i]);
  }
  for (size_t i = 0; spec->ids == 1 && i < sizeof hidden_of_first / sizeof *hidden_of_first; i++)
    attach(fresh("tmpfs", (const char *const[][2]){{"size", "4k"}, {NULL, NULL}}, MOUNT_ATTR_RDONLY), hidden_of_first[i]);
}

static void mount_dev(const struct spec *spec, const int *device_mounts) {
  const unsigned plain = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  attach_dir(fresh("tmpfs", (const char *const[][2]){{"size", "256k"}, {"mode", "0755"}, {NULL, NULL}},
                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
             "dev");
  for (int i = 0; i < DEVICES; i++) {
    char path[32];
    snprintf(path, sizeof path, "dev/%s", devices[i]);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fail("cannot create %s", path);
    close(file);
    attach(device_mounts[i], path);
  }
  attach_dir(fresh("devpts", (const char *const[][2]){{"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", spec->ids > 5 ? "5" : "0"}, {NULL, NULL}},
                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC),
             "dev/pts");
  char *half = format_text("%ldm", spec->memory_mib / 2);
  attach_dir(fresh("tmpfs", (const char *const[][2]){{"mode", "1777"}, {"size", half}, {NULL, NULL}}, plain), "dev/shm");
  free(half);
  if (symlink("pts/ptmx", "dev/ptmx") < 0 || symlink("/proc/self/fd", "dev/fd") < 0 ||
      symlink("/proc/self/fd/0", "dev/stdin") < 0 || symlink("/proc/self/fd/1", "dev/stdout") < 0 ||
      symlink("/proc/self/fd/2", "dev/stderr") < 0)
    fail("cannot link in /dev");
}

/* Of sysfs a sandbox sees the processors and its own network, nothing of the machine's devices. */
static void mount_sys(const struct spec *spec, const struct stage *stage) {
  attach_dir(fresh("tmpfs", (const char *const[][2]){{"size", "64k"}, {"mode", "0755"}, {NULL, NULL}}, 0), "sys");
  for (int i = 0; i < SHOWN; i++) {
    char path[64];
    snprintf(path, sizeof path, "sys/%s", shown_of_sys[i]);
    if (stage->shown[i] < 0) continue;
    attach_dir(stage->shown[i], path);
  }
  for (int i = 0; i < spec->view_count; i++) attach_dir(spec->views[i].fd, spec->views[i].target);
  set_read_only(AT_FDCWD, "sys");
}

static void write_file(const char *path, const char *text) {
  unlink(path);
  int file = open_beneath(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) fail("cannot write /%s", path);
  close(file);
}

/* Everything that is taken from the host's view, before there is a disk: leaves the current directory in a stage. */
void root_prepare(struct stage *stage) {
  if (syscall(SYS_mount, NULL, "/", NULL, RECURSIVE | PRIVATE, NULL) < 0) fail("cannot make the mounts private");
  /* Fresh proc and sysfs may be made only while the host's are in sight. */
  stage->proc = fresh("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  int sysfs = fresh("sysfs", NULL, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  for (int i = 0; i < DEVICES; i++) {
    char path[32];
    snprintf(path, sizeof path, "/dev/%s", devices[i]);
    stage->devices[i] = clone_of(path, 0);
    if (stage->devices[i] < 0) fail("cannot open %s", path);
    set_device_only(stage->devices[i]);
  }
  int place = fresh("tmpfs", (const char *const[][2]){{"size", "64k"}, {"mode", "0700"}, {NULL, NULL}}, MOUNT_ATTR_NODEV);
  if (sys_move_mount(place, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 || chdir("/tmp") < 0)
    fail("cannot mount the stage on /tmp");
  close(place);
  /* On the stage, which goes with the host's root: unmounting it by itself takes the kernel milliseconds. */
  attach_dir(sysfs, "sys");
  for (int i = 0; i < SHOWN; i++) {
    char path[64];
    snprintf(path, sizeof path, "sys/%s", shown_of_sys[i]);
    stage->shown[i] = clone_of(path, 0);
    if (stage->shown[i] < 0 && errno != ENOENT) fail("cannot open /%s", path);
  }
}

void root_enter(const struct spec *spec, const struct stage *stage, int disk_mount) {
  mount_overlays(spec, disk_mount);
  int trees[MAX_TREES];
  for (int i = 1; i < spec->tree_count; i++) {
    char name[32];
    snprintf(name, sizeof name, "o%d", i);
    trees[i] = clone_of(name, 0);
    if (trees[i] < 0) fail("cannot take the overlay of %s", spec->trees[i].target);
  }
  if (chdir("o0") < 0 || syscall(SYS_pivot_root, ".", ".") < 0) fail("cannot enter the new root");
  if (syscall(SYS_umount2, ".", DETACH) < 0 || chdir("/") < 0) fail("cannot leave the host's root");

  /* From here on every path is the sandbox's own. */
  for (int i = 1; i < spec->tree_count; i++) attach_dir(trees[i], spec->trees[i].target + 1);
  mount_dev(spec, stage->devices);
  mount_proc(spec, stage->proc);
  mount_sys(spec, stage);
  make_dirs("etc");
  char *hosts = format_text("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n", spec->hostname);
  for (int i = 0; i < spec->host_count; i++) {
    if (!strcmp(spec->hosts[i].address, spec->hosts[i].name)) continue;
    char *longer = format_text("%s%s\t%s\n", hosts, spec->hosts[i].address, spec->hosts[i].name);
    free(hosts);
    hosts = longer;
  }
  write_file("etc/hosts", hosts);
  char *hostname = format_text("%s\n", spec->hostname);
  write_file("etc/hostname", hostname);
  write_file("etc/resolv.conf", spec->resolver);
  free(hosts);
  free(hostname);
}
