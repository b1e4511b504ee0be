#include "common.h"

#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { LISTEN_FD = 3, SPOOL_FD = 4 };
/* It ends by itself when whoever asked for it is gone. */
#define LEASE "--lease-seconds=60"

static int listen_at(const char *dir, const char *name) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
  if (fd < 0 || chdir(dir) < 0 || (unlink(name) < 0 && errno != ENOENT) ||
      bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 16) < 0 || chmod(name, 0600) < 0 || chdir("/") < 0)
    fail("cannot listen in %s", dir);
  return fd;
}

static bool still_runs(int dir) {
  char text[160];
  int pid = 0;
  long start = 0;
  if (read_at(dir, "pid", text, sizeof text) <= 0 || sscanf(text, "%d %ld", &pid, &start) != 2) return false;
  return start_time_of(pid) == start;
}

static int moved(int fd) {
  int above = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  if (above < 0) fail("cannot move a descriptor");
  return above;
}

__attribute__((noreturn)) static void serve(const struct spec *spec, int errors, int listener, int spool, int supervisor, int log) {
  error_fd = errors;
  if (setsid() < 0 || unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0) fail("cannot leave the runner");
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0) fail("cannot set standard streams");
  if (dup2(listener, LISTEN_FD) < 0 || dup2(spool, SPOOL_FD) < 0) fail("cannot hand over descriptors");
  confine();
  char *argv[] = {"vmux-supervisor", "run", format_text("--listen-fd=%d", LISTEN_FD), format_text("--spool-fd=%d", SPOOL_FD),
                  format_text("--epoch=%s", spec->epoch), format_text("--instance=%s", spec->instance), LEASE, "--read-only", NULL};
  char *env[] = {NULL};
  syscall(SYS_execveat, supervisor, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
  fail("cannot start the supervisor");
}

/* Serves what a sandbox that is gone left in its spool, for reading, at <dir>/left. */
int command_salvage(struct spec *spec) {
  rootless_enter(spec);
  int dir = open(spec->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0 || flock(dir, LOCK_EX) < 0) fail("cannot open %s", spec->dir);
  if (still_runs(dir)) die(EXIT_FAILED, "the sandbox in %s still runs", spec->dir);
  /* Its own mounts go with its last process, not at the same moment. */
  image_wait_released(dir);
  int supervisor = open(spec->supervisor, O_RDONLY | O_CLOEXEC);
  if (supervisor < 0) fail("cannot open %s", spec->supervisor);
  supervisor = moved(supervisor);
  int log = moved(openat(dir, "supervisor.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  int mount = spec->rootless ? openat(dir, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                             : image_mount(spec, dir, "spool.img", "");
  int spool = openat(mount, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (spool < 0) fail("the sandbox in %s left no spool", spec->dir);
  spool = moved(spool);
  int listener = moved(listen_at(spec->dir, "left"));
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) < 0) fail("cannot make a pipe");
  int told = moved(errors[1]);
  pid_t child = fork();
  if (child < 0) fail("cannot fork");
  if (child == 0) serve(spec, told, listener, spool, supervisor, log);
  close(errors[1]);
  close(told);
  char message[1100];
  ssize_t got = read(errors[0], message, sizeof message - 1);
  if (got > 0) {
    message[got] = 0;
    message[strcspn(message, "\n")] = 0;
    waitpid(child, NULL, 0);
    die(EXIT_FAILED, "%s", message);
  }
  return 0;
}
