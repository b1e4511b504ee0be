// What the fuzzer must not do for real: start programs, touch files, dial, stop the machine's processes.
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "freeze.h"
#include "stream.h"
#include "worker.h"

int spawn(struct exec *x) {
  // Some start, some do not; none ever ends by itself.
  if (x->seq % 3 == 0) return ENOMEM;
  x->pid = 0;
  x->state = X_RUNNING;
  exec_changed(x);
  return 0;
}

static bool nothing(struct conn *c, uint32_t id, struct reader *r) {
  r->left = 0;
  answer_ok(c, id, 0);
  return true;
}

bool request_ports(struct conn *c, uint32_t id, struct reader *r) { return nothing(c, id, r); }
bool port_is_ours(uint16_t port) { return port != 0; }
bool request_figures(struct conn *c, uint32_t id, struct reader *r) { return nothing(c, id, r); }
bool request_stop(struct conn *c, uint8_t type, uint32_t id, struct reader *r) { return (void)type, nothing(c, id, r); }
bool request_freeze(struct conn *c, uint8_t type, uint32_t id, struct reader *r) { return (void)type, nothing(c, id, r); }
bool frozen(void) { return false; }
void record_begin(void) {}
void lease_renew(void) {}
bool stopping(void) { return false; }

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
  (void)fd, (void)address, (void)size;
  errno = ECONNREFUSED;
  return -1;
}

// A stream whose other end is nobody: it takes bytes and never answers.
int worker_start(struct stream *s, const struct job *job) {
  int data[2], control[2];
  if (job->path[1] == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, data) < 0) return EMFILE;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0) {
    close(data[0]);
    close(data[1]);
    return EMFILE;
  }
  stream_open(s, data[0], control[0]);
  close(data[1]);
  close(control[1]);
  return 0;
}
