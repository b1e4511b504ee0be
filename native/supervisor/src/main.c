#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bridge.h"
#include "conn.h"
#include "freeze.h"
#include "pipe.h"
#include "spawn.h"
#include "stop.h"
#include "worker.h"

static const char usage[] =
    "usage: vmux-supervisor run (--listen-fd=N | --listen=/path) (--spool-fd=M | --spool=/path)\n"
    "                           --epoch=E --instance=ID [--lease-seconds=3600] [--stop-grace-ms=10000]\n"
    "                           [--output-grace-ms=250] [--since-ns=T] [--read-only] [--own-ports]\n"
    "                           [--ends-with-host]\n"
    "       vmux-supervisor pipe --socket=/path\n"
    "       vmux-supervisor bridge --socket=/path < SECRET\n"
    "       vmux-supervisor --version | --help\n"
    "The protocol is described in docs/supervisor-protocol.md.\n";

struct arguments {
  int listen_fd, spool_fd;
  const char *listen, *spool;
  bool has_epoch, has_instance;
};

static bool option(const char *arg, const char *name, const char **value) {
  size_t len = strlen(name);
  if (strncmp(arg, name, len) != 0 || arg[len] != '=') return false;
  *value = arg + len + 1;
  return true;
}

static uint64_t number(const char *name, const char *text, uint64_t max) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || v > max) die(2, "%s takes a number, not %s", name, text);
  return v;
}

static void read_arguments(int argc, char **argv, struct arguments *a) {
  *a = (struct arguments){.listen_fd = -1, .spool_fd = -1};
  settings.lease_ms = 3600 * 1000;
  settings.stop_grace_ms = 10000;
  settings.output_grace_ms = 250;
  for (int i = 2; i < argc; i++) {
    const char *v;
    if (option(argv[i], "--listen-fd", &v)) a->listen_fd = (int)number("--listen-fd", v, 1 << 20);
    else if (option(argv[i], "--spool-fd", &v)) a->spool_fd = (int)number("--spool-fd", v, 1 << 20);
    else if (option(argv[i], "--listen", &v)) a->listen = settings.listen_path = v;
    else if (option(argv[i], "--spool", &v)) a->spool = v;
    else if (option(argv[i], "--lease-seconds", &v)) settings.lease_ms = number("--lease-seconds", v, 1000000000) * 1000;
    else if (option(argv[i], "--stop-grace-ms", &v)) settings.stop_grace_ms = number("--stop-grace-ms", v, 3600000);
    else if (option(argv[i], "--output-grace-ms", &v)) settings.output_grace_ms = number("--output-grace-ms", v, 3600000);
    else if (option(argv[i], "--since-ns", &v)) settings.since_ns = number("--since-ns", v, INT64_MAX);
    else if (strcmp(argv[i], "--read-only") == 0) settings.read_only = true;
    else if (strcmp(argv[i], "--ends-with-host") == 0) settings.ends_with_host = true;
    else if (strcmp(argv[i], "--own-ports") == 0) settings.own_ports = true;
    else if (option(argv[i], "--epoch", &v)) settings.epoch = number("--epoch", v, UINT64_MAX), a->has_epoch = true;
    else if (option(argv[i], "--instance", &v)) {
      a->has_instance = valid_name((const uint8_t *)v, strlen(v), MAX_INSTANCE);
      if (a->has_instance) strcpy(settings.instance, v);
    } else die(2, "unknown argument %s\n%s", argv[i], usage);
  }
  bool one_socket = (a->listen_fd >= 0) != (a->listen != NULL), one_spool = (a->spool_fd >= 0) != (a->spool != NULL);
  if (!one_socket || !one_spool || !a->has_epoch || !a->has_instance) die(2, "arguments are missing or wrong\n%s", usage);
}

// Whatever we were started with, descriptors 0-2 exist and no other outlives an exec(2).
static void tidy_descriptors(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= 2 && fcntl(fd, F_SETFD, 0) == 0);
  close_fd(&fd);
  if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int i = 3; i < 1024; i++)
    if (fcntl(i, F_GETFD) >= 0) fcntl(i, F_SETFD, FD_CLOEXEC);
}

// Nothing is read from the environment, and the workload may be able to look at it.
static void wipe_environment(void) {
  for (char **e = environ; e && *e; e++) memset(*e, 0, strlen(*e));
  clearenv();
}

static int open_listener(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) die(2, "the socket's path is too long");
  strcpy(address.sun_path, path);
  struct stat st;
  if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) unlink(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0)
    die(4, "cannot listen on %s: %s", path, strerror(errno));
  return fd;
}

static int open_spool(const char *path) {
  if (mkdir(path, 0700) < 0 && errno != EEXIST) die(3, "cannot make %s: %s", path, strerror(errno));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) die(3, "cannot open %s: %s", path, strerror(errno));
  return fd;
}

static void reap(void) {
  int status;
  struct rusage used;
  for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;)
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      worker_reaped(pid);
      exec_reaped(pid, status, &used);
    }
}

static void on_signal(struct source *s, uint32_t events) {
  (void)events;
  struct signalfd_siginfo info;
  while (read(s->fd, &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) stop_begin(settings.stop_grace_ms, true);
  reap();
}

static void watch_signals(void) {
  static struct source signals;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0 || !loop_add(&signals, fd, EPOLLIN, on_signal)) die(4, "signals: %s", strerror(errno));
}

static void raise_files_limit(void) {
  if (getrlimit(RLIMIT_NOFILE, &spawn_files_limit) < 0) return;
  struct rlimit ours = {spawn_files_limit.rlim_max, spawn_files_limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &ours);
}

static void turn_end(void) {
  exec_sync();
  conns_flush();
}

static int run(int argc, char **argv) {
  struct arguments a;
  read_arguments(argc, argv, &a);
  tidy_descriptors();
  wipe_environment();
  settings.pid1 = getpid() == 1;
  settings.started_us = now_us();
  record_since_ns();
  if (prctl(PR_SET_DUMPABLE, 0) < 0) die(4, "cannot become undumpable: %s", strerror(errno));
  if (!settings.pid1 && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) die(4, "cannot become a subreaper: %s", strerror(errno));
  umask(077);
  raise_files_limit();
  loop_init();
  watch_signals();
  exec_init();
  spool_open(a.spool ? open_spool(a.spool) : a.spool_fd);
  exec_recover();
  conns_init(a.listen ? open_listener(a.listen) : a.listen_fd);
  lease_renew();
  loop_at_turn_end(turn_end);
  loop_run();
}

int main(int argc, char **argv) {
  const char *command = argc > 1 ? argv[1] : "", *path;
  if (strcmp(command, "run") == 0) return run(argc, argv);
  if (strcmp(command, "pipe") == 0 && argc == 3 && option(argv[2], "--socket", &path)) return pipe_main(path);
  if (strcmp(command, "bridge") == 0 && argc == 3 && option(argv[2], "--socket", &path)) return bridge_main(path);
  if (strcmp(command, "--version") == 0) {
    printf("vmux-supervisor %s protocol %d\n", SUPERVISOR_VERSION, PROTOCOL_VERSION);
    return 0;
  }
  bool asked = strcmp(command, "--help") == 0;
  fputs(usage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}
