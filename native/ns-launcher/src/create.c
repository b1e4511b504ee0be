#include "common.h"

#include <linux/mount.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <grp.h>

enum { LISTEN_FD = 3, SPOOL_FD = 4 };
#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC)

static const struct spec *current;
static pid_t child = -1;

static void undo(void) {
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  cgroup_remove(current);
}

static int listen_in(const char *dir) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"};
  /* Bound by a relative name: the directory's own path may be longer than a socket address. */
  if (fd < 0 || chdir(dir) < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 128) < 0)
    fail("cannot listen in %s", dir);
  if (chmod("sock", 0600) < 0 || chdir("/") < 0) fail("cannot protect the socket");
  return fd;
}

/* Whatever the host shows in a listed directory besides the named entries is whited out before the sandbox sees it. */
static void hide_unlisted(const struct spec *spec, const struct only *only, int disk) {
  int index = -1;
  for (int i = 0; i < spec->tree_count; i++) {
    size_t length = strlen(spec->trees[i].target);
    if (!strncmp(only->directory, spec->trees[i].target, length) && (only->directory[length] == '/' || !only->directory[length]))
      index = i;
  }
  if (index < 0) die(EXIT_USAGE, "--only=%s lies below no tree", only->directory);
  const struct tree *tree = &spec->trees[index];
  const char *below = only->directory + strlen(tree->target);
  char *source = format_text("%s%s", tree->lowers[tree->lower_count - 1], below);
  char *upper = format_text("%d/upper%s", index, below);
  struct stat status;
  int listed = open(source, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (listed >= 0) {
    if (fstat(listed, &status) < 0) fail("cannot look at %s", source);
    if (*below && (mkdirat(disk, upper, 0755) < 0 || fchmodat(disk, upper, status.st_mode & 07777, 0) < 0))
      fail("cannot create %s", upper);
    int into = openat(disk, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (into < 0) fail("cannot open %s", upper);
    char buffer[8192];
    for (long got; (got = syscall(SYS_getdents64, listed, buffer, sizeof buffer)) > 0;) {
      for (long at = 0; at < got;) {
        const char *name = buffer + at + 19;
        bool shown = !strcmp(name, ".") || !strcmp(name, "..");
        for (int i = 0; i < only->name_count; i++) shown = shown || !strcmp(name, only->names[i]);
        if (!shown && mknodat(into, name, S_IFCHR, makedev(0, 0)) < 0) fail("cannot hide %s/%s", source, name);
        at += *(uint16_t *)(void *)(buffer + at + 16);
      }
    }
    close(into);
    close(listed);
  } else if (errno != ENOENT) {
    fail("cannot list %s", source);
  }
  free(source);
  free(upper);
}

/* A disk that comes from a checkpoint has the trees of its base already, and no others. */
static bool is_prepared(const struct spec *spec, int disk) {
  char last[64], next[64];
  if (faccessat(disk, "0", F_OK, 0) < 0) return false;
  snprintf(last, sizeof last, "%d/upper", spec->tree_count - 1);
  snprintf(next, sizeof next, "%d", spec->tree_count);
  if (faccessat(disk, last, F_OK, 0) < 0 || faccessat(disk, next, F_OK, 0) == 0)
    die(EXIT_USAGE, "the disk is of another base");
  return true;
}

static void prepare_disk(const struct spec *spec, int disk) {
  if (is_prepared(spec, disk)) return;
  for (int i = 0; i < spec->tree_count; i++) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "%d", i);
    if (mkdirat(disk, path, 0755) < 0) fail("cannot create %s on the disk", path);
    snprintf(path, sizeof path, "%d/work", i);
    if (mkdirat(disk, path, 0755) < 0) fail("cannot create %s on the disk", path);
    snprintf(path, sizeof path, "%d/upper", i);
    if (mkdirat(disk, path, 0755) < 0) fail("cannot create %s on the disk", path);
    if (stat(spec->trees[i].lowers[spec->trees[i].lower_count - 1], &status) < 0)
      fail("the lower tree %s", spec->trees[i].lowers[spec->trees[i].lower_count - 1]);
    if (fchmodat(disk, path, status.st_mode & 07777, 0) < 0) fail("cannot set the mode of %s", path);
  }
  for (int i = 0; i < spec->only_count; i++) hide_unlisted(spec, &spec->onlys[i], disk);
}

static void map_ids(pid_t pid, const struct spec *spec) {
  char path[64], map[64];
  snprintf(map, sizeof map, "0 %ld %ld\n", spec->uid_base, spec->ids);
  snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
  if (write_path(path, map) < 0) fail("cannot map the user ids");
  snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
  if (write_path(path, map) < 0) fail("cannot map the group ids");
}

static void map_mount(int mount, int userns) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
  if (sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0)
    fail("the kernel cannot map the ids of an ext4 mount");
}

static void allow_in_own_network(void) {
  /* Instead of CAP_NET_RAW and of privileged ports: both mean this sandbox's network alone. */
  write_path("/proc/sys/net/ipv4/ping_group_range", "0 65535");
  write_path("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/* Clear of 3 and 4, where the supervisor finds its two. */
static int above(int fd) {
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  if (moved < 0) fail("cannot move a descriptor");
  close(fd);
  return moved;
}

struct handover {
  int channel, errors, listener, supervisor, log, disk, spool;
};

struct image_order {
  const struct spec *spec;
  int dir;
  const char *name, *template;
  int mount;
};

static void *make_image(void *context) {
  struct image_order *order = context;
  order->mount = above(image_mount(order->spec, order->dir, order->name, order->template));
  return NULL;
}

/* Side by side: most of the time the kernel waits. */
static void make_images(const struct spec *spec, int dir, int *disk, int *spool) {
  if (spec->rootless) {
    *disk = above(rootless_directory(spec, dir, "disk"));
    *spool = above(rootless_directory(spec, dir, "spool"));
    return;
  }
  struct image_order orders[2] = {{spec, dir, "disk.img", spec->disk_template, -1},
                                  {spec, dir, "spool.img", spec->spool_template, -1}};
  pthread_t other;
  if ((errno = pthread_create(&other, NULL, make_image, &orders[1]))) fail("cannot start a thread");
  make_image(&orders[0]);
  if ((errno = pthread_join(other, NULL))) fail("cannot wait for a thread");
  *disk = orders[0].mount;
  *spool = orders[1].mount;
}

/*
 * Mounts mapped for the sandbox exist only after its user namespace does, so they follow it through a socket. A first
 * process that has ended meanwhile says why through its pipe.
 */
static void send_mounts(int channel, const struct spec *spec, int disk, int spool) {
  int fds[2 + MAX_TREES * MAX_LAYERS + MAX_VIEWS] = {disk, spool}, count = 2;
  for (int i = 0; i < spec->tree_count; i++)
    for (int j = 0; j < spec->trees[i].lower_count; j++) fds[count++] = spec->trees[i].lower_fds[j];
  for (int i = 0; i < spec->view_count; i++) fds[count++] = spec->views[i].fd;
  char control[CMSG_SPACE(sizeof fds)];
  memset(control, 0, sizeof control);
  struct iovec body = {"g", 1};
  struct msghdr message = {.msg_iov = &body, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
  memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
  if (sendmsg(channel, &message, MSG_NOSIGNAL) != 1 && errno != EPIPE) fail("cannot hand over the mounts");
}

static void receive_mounts(struct spec *spec, struct handover *with) {
  int fds[2 + MAX_TREES * MAX_LAYERS + MAX_VIEWS];
  char control[CMSG_SPACE(sizeof fds)], word;
  struct iovec body = {&word, 1};
  struct msghdr message = {.msg_iov = &body, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (recvmsg(with->channel, &message, MSG_CMSG_CLOEXEC) != 1) _exit(EXIT_FAILED); /* the launcher is gone */
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_type != SCM_RIGHTS) die(EXIT_FAILED, "the mounts did not arrive");
  memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  int next = 2;
  with->disk = fds[0];
  with->spool = fds[1];
  for (int i = 0; i < spec->tree_count; i++)
    for (int j = 0; j < spec->trees[i].lower_count; j++) spec->trees[i].lower_fds[j] = fds[next++];
  for (int i = 0; i < spec->view_count; i++) spec->views[i].fd = fds[next++];
}

__attribute__((noreturn)) static void run_first_process(struct spec *spec, struct handover *with) {
  on_death = NULL;
  error_fd = with->errors;
  cgroup_enter(spec);
  char word;
  if (recv(with->channel, &word, 1, 0) != 1) _exit(EXIT_FAILED); /* the launcher is gone */
  /* Who has a single id may not give up its groups: what only they may read is hidden from it. */
  if ((spec->ids > 1 && setgroups(0, NULL) < 0) || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) fail("cannot become the sandbox's root");
  if (setsid() < 0) fail("cannot start a session");
  umask(022);
  if (unshare(CLONE_NEWCGROUP) < 0) fail("cannot unshare the cgroup view");
  if (sethostname(spec->hostname, strlen(spec->hostname)) < 0) fail("cannot set the host name");
  network_configure(spec);
  allow_in_own_network();
  struct stage stage;
  root_prepare(&stage);
  receive_mounts(spec, with);
  root_enter(spec, &stage, with->disk);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(with->log, 2) < 0) fail("cannot set standard streams");
  if (dup2(with->listener, LISTEN_FD) < 0 || dup2(above(with->spool), SPOOL_FD) < 0) fail("cannot hand over descriptors");
  struct sigaction plain = {.sa_handler = SIG_DFL};
  for (int number = 1; number < 65; number++) sigaction(number, &plain, NULL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  confine();
  char *argv[] = {"vmux-supervisor", "run", format_text("--listen-fd=%d", LISTEN_FD), format_text("--spool-fd=%d", SPOOL_FD),
                  format_text("--epoch=%s", spec->epoch), format_text("--instance=%s", spec->instance), "--lease-seconds=0", "--ends-with-host",
                  spec->since_ns ? format_text("--since-ns=%s", spec->since_ns) : NULL, NULL};
  char *env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", NULL};
  syscall(SYS_execveat, with->supervisor, "", argv, env, AT_EMPTY_PATH);
  fail("cannot start the supervisor");
}

static int open_or_fail(int dirfd, const char *path, int flags) {
  int fd = openat(dirfd, path, flags | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot open %s", path);
  return above(fd);
}

static void record(int dir, pid_t pid) {
  char boot[64] = "", text[160];
  if (read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) fail("cannot read the boot id");
  boot[strcspn(boot, "\n")] = 0;
  snprintf(text, sizeof text, "%d %ld %s\n", pid, start_time_of(pid), boot);
  if (write_at(dir, "pid.new", text) < 0 || renameat(dir, "pid.new", dir, "pid") < 0) fail("cannot record the process id");
}

int command_create(struct spec *spec) {
  current = spec;
  rootless_enter(spec);
  int dir = open_or_fail(AT_FDCWD, spec->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (flock(dir, LOCK_EX) < 0) fail("cannot lock %s", spec->dir);
  struct stat ours, named;
  if (fstat(dir, &ours) < 0 || stat(spec->dir, &named) < 0 || ours.st_ino != named.st_ino || faccessat(dir, "pid", F_OK, 0) == 0)
    die(EXIT_FAILED, "%s is destroyed or in use", spec->dir);

  struct handover with = {0};
  with.supervisor = open_or_fail(AT_FDCWD, spec->supervisor, O_RDONLY);
  with.log = open_or_fail(dir, "supervisor.log", O_WRONLY | O_CREAT | O_APPEND);
  with.listener = above(listen_in(spec->dir));
  on_death = undo;
  cgroup_create(spec);
  cgroup_open_views(spec);
  int channel[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0 || pipe2(errors, O_CLOEXEC) < 0) fail("cannot make a pipe");
  int channel_end = above(channel[0]);
  with.channel = above(channel[1]);
  int errors_end = above(errors[0]);
  with.errors = above(errors[1]);
  cgroup_open_entries(spec);
  rootless_limit_processes(spec);
  struct clone_args birth = {.flags = NAMESPACES, .exit_signal = SIGCHLD};
  if (spec->unified_fd >= 0) {
    birth.flags |= CLONE_INTO_CGROUP;
    birth.cgroup = (uint64_t)spec->unified_fd;
  }
  child = (pid_t)syscall(SYS_clone3, &birth, sizeof birth);
  if (child < 0) fail("cannot create the namespaces");
  if (child == 0) {
    close(channel_end);
    run_first_process(spec, &with);
  }
  close(with.errors);
  close(with.channel);
  record(dir, child);
  map_ids(child, spec);
  if (spec->interface) network_attach(spec, child);
  if (send(channel_end, "i", 1, MSG_NOSIGNAL) != 1 && errno != EPIPE) fail("cannot tell the first process");

  int spool_mount;
  make_images(spec, dir, &with.disk, &spool_mount);
  prepare_disk(spec, with.disk);
  if (mkdirat(spool_mount, "spool", 0700) < 0) fail("cannot create the spool");
  if (spec->rootless) {
    own_below(with.disk, spec);
    own_below(spool_mount, spec);
  }
  int userns = -1;
  if (!spec->rootless) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    userns = open_or_fail(AT_FDCWD, path, O_RDONLY);
    map_mount(with.disk, userns);
    map_mount(spool_mount, userns);
  }
  layers_open(spec, userns);
  send_mounts(channel_end, spec, with.disk, open_or_fail(spool_mount, "spool", O_RDONLY | O_DIRECTORY));

  /* The pipe closes by itself when the supervisor is executed; until then it carries what went wrong. */
  char message[1100];
  size_t used = 0;
  for (ssize_t got; used < sizeof message - 1 && (got = read(errors_end, message + used, sizeof message - 1 - used)) > 0;) used += (size_t)got;
  if (used > 0) {
    message[used] = 0;
    message[strcspn(message, "\n")] = 0;
    int status = 0;
    waitpid(child, &status, 0);
    child = -1;
    die(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAILED, "%s", message);
  }
  printf("%d %ld\n", child, start_time_of(child));
  return 0;
}
