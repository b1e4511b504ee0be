#include "worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "freeze.h"
#include "spawn.h"
#include "user.h"

enum { OUT_BUFFER = 65536 };

static uint8_t out_buffer[OUT_BUFFER];
static size_t out_len;
static uint64_t out_total;
static pid_t readers[MAX_STREAMS];

bool worker_reads(pid_t pid) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (readers[i] == pid) return true;
  return false;
}

void worker_reaped(pid_t pid) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (readers[i] == pid) readers[i] = 0;
}

static void remember(pid_t pid) {
  for (int i = 0; i < MAX_STREAMS; i++)
    if (readers[i] == 0) {
      readers[i] = pid;
      return;
    }
}

static void verdict(const struct verdict *v) __attribute__((noreturn));
static void verdict(const struct verdict *v) {
  // Without a reader there is nobody to tell.
  if (write(CONTROL_FD, v, sizeof *v) < 0) _exit(1);
  _exit(0);
}

void finish(uint64_t value) {
  struct verdict v = {.value = value};
  emit_flush();
  verdict(&v);
}

void give_up(uint16_t code, int error, const char *what) {
  struct verdict v = {.code = code, .error = error};
  snprintf(v.message, sizeof v.message, error ? "%s: %s" : "%s", what, error ? strerror(error) : "");
  verdict(&v);
}

void emit_flush(void) {
  if (!write_all(DATA_FD, out_buffer, out_len)) _exit(1);
  out_len = 0;
}

void emit(const void *data, size_t len) {
  out_total += len;
  for (const uint8_t *p = data; len > 0;) {
    size_t n = len < OUT_BUFFER - out_len ? len : OUT_BUFFER - out_len;
    memcpy(out_buffer + out_len, p, n);
    out_len += n;
    p += n;
    len -= n;
    if (out_len == OUT_BUFFER) emit_flush();
  }
}

void emit_number(uint64_t v, int bytes) {
  uint8_t b[8];
  store_u64(b, v);
  emit(b, (size_t)bytes);
}

void emit_bytes(const void *data, size_t len) {
  emit_number(len, 4);
  emit(data, len);
}

uint64_t emitted(void) { return out_total; }

size_t take_input(void *into, size_t size) {
  for (;;) {
    ssize_t n = read(DATA_FD, into, size);
    if (n < 0 && errno == EINTR) continue;
    return n < 0 ? 0 : (size_t)n;
  }
}

bool committed(void) {
  char c = 0;
  return read(CONTROL_FD, &c, 1) == 1 && c == 'C';
}

static void run(const struct job *job, int data, int control) __attribute__((noreturn));
static void run(const struct job *job, int data, int control) {
  // Moved out of the way first: either may already be one of the targets.
  data = fcntl(data, F_DUPFD, 10);
  control = fcntl(control, F_DUPFD, 10);
  if (data < 0 || control < 0 || dup2(data, DATA_FD) < 0 || dup2(control, CONTROL_FD) < 0) _exit(1);
  spawn_close_from(2);
  struct identity who;
  int failed = identity_find(job->user, &who);
  if (!failed) failed = identity_become(job->user, &who);
  if (failed) give_up(E_SYSTEM, failed, "user");
  spawn_reset_child();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  umask(022);
  if (job->type == TAR_OUT) run_tar_out(job);
  if (job->type == TAR_IN) run_tar_in(job);
  if (job->type == SCAN) run_scan(job);
  if (job->type == READ_MANY) run_read_many(job);
  if (job->type == UNPACK) run_unpack(job);
  run_file_job(job);
}

int worker_start(struct stream *s, const struct job *job) {
  int data[2], control[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data) < 0) return errno;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0) {
    int failed = errno;
    close(data[0]);
    close(data[1]);
    return failed;
  }
  record_begin();
  pid_t pid = fork();
  int failed = errno;
  if (pid == 0) run(job, data[1], control[1]);
  close(data[1]);
  close(control[1]);
  if (pid < 0) {
    close(data[0]);
    close(control[0]);
    return failed;
  }
  if (job->type == SCAN || job->type == READ_MANY) remember(pid);
  stream_open(s, data[0], control[0]);
  return 0;
}
