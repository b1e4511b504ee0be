// From a journalled start to a running program. In the child everything until exec(2) is ours.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "exec.h"
#include "spawn.h"
#include "user.h"

struct rlimit spawn_files_limit;

struct ends {
  int in, out, err, report;  // the child's
};

static void report(int fd, uint8_t stage, int error) {
  uint8_t message[5] = {stage};
  memcpy(message + 1, &error, 4);
  // The supervisor then sees a child that ended without running: nothing more can be said from here.
  if (write(fd, message, sizeof message) < 0) _exit(126);
  _exit(127);
}

static const char *search_path(char *const env[]) {
  for (; *env; env++)
    if (strncmp(*env, "PATH=", 5) == 0) return *env + 5;
  return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

static int exec_file(const char *file, struct spec *spec) {
  execve(file, spec->argv, spec->envp);
  if (errno != ENOEXEC) return errno;
  // A script without a first line: the shell's, as everywhere.
  int argc = 0;
  while (spec->argv[argc]) argc++;
  char *argv[argc + 2];
  argv[0] = "/bin/sh";
  argv[1] = (char *)file;
  for (int i = 1; i <= argc; i++) argv[i + 1] = spec->argv[i];
  execve(argv[0], argv, spec->envp);
  return errno;
}

static int exec_program(struct spec *spec) {
  const char *name = spec->argv[0];
  if (strchr(name, '/')) return exec_file(name, spec);
  if (!*name) return ENOENT;
  int failed = ENOENT;
  for (const char *path = search_path(spec->envp);;) {
    size_t len = strcspn(path, ":");
    char file[4096];
    int n = snprintf(file, sizeof file, "%.*s/%s", len ? (int)len : 1, len ? path : ".", name);
    if (n > 0 && n < (int)sizeof file) {
      int error = exec_file(file, spec);
      if (error != ENOENT && error != ENOTDIR && (failed == ENOENT || error != EACCES)) failed = error;
      if (error != ENOENT && error != ENOTDIR && error != EACCES) break;
    }
    if (!path[len]) break;
    path += len + 1;
  }
  return failed;
}

void spawn_reset_child(void) {
  sigset_t none;
  sigemptyset(&none);
  for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  // As PID 1 the kernel ends the sandbox with us; elsewhere children are tied to our life by hand.
  if (!settings.pid1) prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// When the sandbox runs out of memory its work dies before its supervisor, which has to say so.
static void prefer_as_oom_victim(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, "500", 3) < 0) errno = 0;  // Without /proc the kernel chooses by size alone.
  close(fd);
}

static void run_child(struct exec *x, struct ends ends) __attribute__((noreturn));
static void run_child(struct exec *x, struct ends ends) {
  struct spec *spec = x->spec;
  struct identity who;
  if (dup2(ends.in, 0) < 0 || dup2(ends.out, 1) < 0 || dup2(ends.err, 2) < 0) report(ends.report, STAGE_SETUP, errno);
  int failed = identity_find(spec->user, &who);
  if (failed) report(ends.report, STAGE_USER, failed);
  if (x->flags & XF_PTY) {
    // On a filesystem without owners the terminal stays usable by its modes.
    if (fchown(0, who.uid, (gid_t)-1) == 0 && fchmod(0, 0620) < 0) report(ends.report, STAGE_SETUP, errno);
  }
  umask(022);
  prefer_as_oom_victim();
  if (spawn_files_limit.rlim_max && setrlimit(RLIMIT_NOFILE, &spawn_files_limit) < 0)
    report(ends.report, STAGE_SETUP, errno);
  failed = identity_become(spec->user, &who);
  if (failed) report(ends.report, STAGE_USER, failed);
  // Changing identity clears the parent-death signal, so it is set after it.
  spawn_reset_child();
  if (chdir(*spec->cwd ? spec->cwd : "/") < 0) report(ends.report, STAGE_CWD, errno);
  report(ends.report, STAGE_EXEC, exec_program(spec));
  _exit(127);
}

static void on_spawn_report(struct source *s, uint32_t events) {
  (void)events;
  struct exec *x = container_of(s, struct exec, spawn);
  uint8_t message[5];
  ssize_t n = read(s->fd, message, sizeof message);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  int error = 0;
  if (n == sizeof message) memcpy(&error, message + 1, 4);
  exec_spawned(x, n == sizeof message ? message[0] : 0, error);
}

static void close_pair(int pair[2]) {
  close_fd(&pair[0]);
  close_fd(&pair[1]);
}

static int set_nonblocking(int fd) { return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? errno : 0; }

static int spawn_on_pipes(struct exec *x, int report_pipe[2]) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  int failed = 0;
  if (x->flags & XF_STDIN) {
    if (pipe2(in, O_CLOEXEC) < 0) failed = errno;
  } else {
    in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in[0] < 0) failed = errno;
  }
  if (!failed && (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)) failed = errno;
  if (!failed) failed = set_nonblocking(out[0]);
  if (!failed) failed = set_nonblocking(err[0]);
  if (!failed && in[1] >= 0) failed = set_nonblocking(in[1]);
  if (!failed) {
    x->pid = fork();
    if (x->pid == 0) {
      setsid();
      run_child(x, (struct ends){in[0], out[1], err[1], report_pipe[1]});
    }
    if (x->pid < 0) failed = errno;
  }
  if (failed) {
    close_pair(in);
    close_pair(out);
    close_pair(err);
    return failed;
  }
  close_fd(&in[0]);
  close_fd(&out[1]);
  close_fd(&err[1]);
  x->in.fd = in[1];
  output_watch(&x->out[0], out[0]);
  output_watch(&x->out[1], err[0]);
  return 0;
}

static int open_terminal(uint16_t cols, uint16_t rows, int *master, int *slave) {
  *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (*master < 0) *master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (*master < 0) return errno;
  int unlock = 0, number = 0;
  if (ioctl(*master, TIOCSPTLCK, &unlock) < 0 || ioctl(*master, TIOCGPTN, &number) < 0) return errno;
  *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*slave < 0) {
    char name[32];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    *slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave < 0) return errno;
  }
  struct termios t;
  struct winsize size = {.ws_col = cols, .ws_row = rows};
  if (tcgetattr(*slave, &t) < 0) return errno;
  t.c_iflag |= IUTF8;
  if (tcsetattr(*slave, TCSANOW, &t) < 0 || ioctl(*slave, TIOCSWINSZ, &size) < 0) return errno;
  return 0;
}

static int spawn_on_terminal(struct exec *x, int report_pipe[2]) {
  int master = -1, slave = -1, input = -1;
  int failed = open_terminal(x->spec->cols, x->spec->rows, &master, &slave);
  if (!failed && (input = fcntl(master, F_DUPFD_CLOEXEC, 3)) < 0) failed = errno;
  if (!failed) {
    x->pid = fork();
    if (x->pid == 0) {
      if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0) report(report_pipe[1], STAGE_SETUP, errno);
      run_child(x, (struct ends){slave, slave, slave, report_pipe[1]});
    }
    if (x->pid < 0) failed = errno;
  }
  close_fd(&slave);
  if (failed) {
    close_fd(&master);
    close_fd(&input);
    return failed;
  }
  x->in.fd = input;
  output_watch(&x->out[0], master);
  return 0;
}

int spawn(struct exec *x) {
  int report_pipe[2];
  if (pipe2(report_pipe, O_CLOEXEC) < 0) return errno;
  int failed = set_nonblocking(report_pipe[0]);
  if (!failed) failed = (x->flags & XF_PTY) ? spawn_on_terminal(x, report_pipe) : spawn_on_pipes(x, report_pipe);
  close_fd(&report_pipe[1]);
  if (failed) {
    x->pid = 0;
    close_fd(&report_pipe[0]);
    return failed;
  }
  loop_add(&x->spawn, report_pipe[0], EPOLLIN, on_spawn_report);
  return 0;
}
