#include "common.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Without root everything is done as root of a user namespace between the runner's and the sandbox's. In it the runner's
   own id is 0 and the ids that the system's administrator lent to it, if any, are 1 to 65536: those are the sandbox's, so
   that what belongs to the runner belongs to nobody inside. Without lent ids the sandbox has a single one, the runner's. */

enum { RECURSIVE = 16384, PRIVATE = 1 << 18 };

static void run(char *const argv[]) {
  pid_t pid = fork();
  if (pid < 0) _exit(1);
  if (pid == 0) {
    execvp(argv[0], argv);
    _exit(127);
  }
  int status;
  if (waitpid(pid, &status, 0) != pid || status != 0) _exit(1);
}

/* Outside, where the programs that hand out ids are heard. */
__attribute__((noreturn)) static void lend_ids(const struct spec *spec, int begin, pid_t to) {
  char word;
  if (read(begin, &word, 1) != 1) _exit(1);
  char *pid = format_text("%d", to);
  run((char *[]){"newuidmap", pid, "0", format_text("%u", getuid()), "1", "1", format_text("%ld", spec->lent_uid), LENT_TEXT, NULL});
  run((char *[]){"newgidmap", pid, "0", format_text("%u", getgid()), "1", "1", format_text("%ld", spec->lent_gid), LENT_TEXT, NULL});
  _exit(0);
}

static void map_alone(uid_t uid, gid_t gid) {
  char map[64];
  snprintf(map, sizeof map, "0 %u 1\n", uid);
  if (write_path("/proc/self/setgroups", "deny") < 0 || write_path("/proc/self/uid_map", map) < 0) fail("cannot map the user id");
  snprintf(map, sizeof map, "0 %u 1\n", gid);
  if (write_path("/proc/self/gid_map", map) < 0) fail("cannot map the group id");
}

void rootless_enter(struct spec *spec) {
  if (!spec->rootless) return;
  uid_t uid = geteuid();
  gid_t gid = getegid();
  bool lent = spec->lent_uid && spec->lent_gid;
  spec->ids = lent ? LENT : 1;
  spec->uid_base = lent ? 1 : 0;
  int begin[2];
  pid_t helper = -1;
  if (lent) {
    pid_t self = getpid();
    if (pipe2(begin, O_CLOEXEC) < 0 || (helper = fork()) < 0) fail("cannot start a helper");
    if (helper == 0) {
      close(begin[1]);
      lend_ids(spec, begin[0], self);
    }
    close(begin[0]);
  }
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
    if (errno == EPERM || errno == ENOSPC || errno == EUSERS || errno == EINVAL)
      die(EXIT_REFUSED, "this machine lets nobody but root make user namespaces");
    fail("cannot make a user namespace");
  }
  if (lent) {
    int status;
    if (write(begin[1], "m", 1) != 1 || waitpid(helper, &status, 0) != helper || status != 0)
      die(EXIT_REFUSED, "newuidmap or newgidmap does not map the ids that /etc/subuid and /etc/subgid name");
    close(begin[1]);
  } else {
    map_alone(uid, gid);
  }
  if (syscall(SYS_mount, NULL, "/", NULL, RECURSIVE | PRIVATE, NULL) < 0)
    fail("this machine lets nobody but root mount in a user namespace");
}

/* The kernel counts the processes of all ids of a user namespace against the limit of who made it. */
void rootless_limit_processes(const struct spec *spec) {
  struct rlimit limit = {(rlim_t)spec->pids, (rlim_t)spec->pids};
  struct rlimit now;
  if (!spec->rootless || !spec->pids || getrlimit(RLIMIT_NPROC, &now) < 0) return;
  if (now.rlim_max < limit.rlim_max) return;
  if (setrlimit(RLIMIT_NPROC, &limit) < 0) fail("cannot limit the processes");
}

/* A directory beside the sandbox's other files, as a mount that is attached nowhere. */
int rootless_directory(const struct spec *spec, int dir, const char *name) {
  if (mkdirat(dir, name, 0700) < 0 || fchownat(dir, name, (uid_t)spec->uid_base, (gid_t)spec->uid_base, AT_SYMLINK_NOFOLLOW) < 0)
    fail("cannot create %s/%s", spec->dir, name);
  int mount = sys_open_tree(dir, name, 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
  if (mount < 0) fail("cannot open %s/%s", spec->dir, name);
  return mount;
}

static void own(int dirfd, const char *name, const struct spec *spec) {
  if (fchownat(dirfd, name, (uid_t)spec->uid_base, (gid_t)spec->uid_base, AT_SYMLINK_NOFOLLOW) < 0) fail("cannot hand over %s", name);
}

void own_below(int dirfd, const struct spec *spec) {
  if (!spec->uid_base) return;
  int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("cannot open what is to be handed over");
  char buffer[8192];
  long got;
  while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < got; at += *(uint16_t *)(void *)(buffer + at + 16)) {
      const char *name = buffer + at + 19;
      if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
      struct stat status;
      if (fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0) fail("cannot look at %s", name);
      own(fd, name, spec);
      if (!S_ISDIR(status.st_mode)) continue;
      int deeper = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (deeper < 0) fail("cannot open %s", name);
      own_below(deeper, spec);
      close(deeper);
    }
  }
  if (got < 0) fail("cannot list what is to be handed over");
  close(fd);
}

/* Gives a tree that the runner made to the sandboxes' root. */
int command_own(struct spec *spec) {
  rootless_enter(spec);
  if (!spec->rootless || !spec->uid_base) return 0;
  int fd = open(spec->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) fail("cannot open %s", spec->dir);
  own(AT_FDCWD, spec->dir, spec);
  own_below(fd, spec);
  return 0;
}

/* Removes a tree that was given away. */
int command_drop(struct spec *spec) {
  rootless_enter(spec);
  if (remove_tree_at(AT_FDCWD, spec->dir) < 0) fail("cannot remove %s", spec->dir);
  return 0;
}
