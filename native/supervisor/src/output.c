// Output: from a pipe or terminal into the exec's files, each piece noted in the order file.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "exec.h"

enum { PIECE = 65536, TURN_BUDGET = 1 << 20, HOLD = 4096, STALL_RETRY_MS = 200 };

enum pumped { P_WAIT, P_MORE, P_EOF, P_STALLED };

static struct timer stall_timer;
static bool no_splice;

static void pump(struct output *);

static void on_readable(struct source *s, uint32_t events) {
  (void)events;
  pump(container_of(s, struct output, source));
}

void output_watch(struct output *o, int fd) {
  o->open = true;
  loop_add(&o->source, fd, EPOLLIN, on_readable);
}

// The files are open while the exec runs and while someone reads.
static int file_of(struct exec *x, char suffix, int *fd, bool create) {
  if (*fd >= 0) return 0;
  int got = spool_file(x->seq, suffix, create);
  if (got < 0) return -got;
  *fd = got;
  return 0;
}

bool output_files_open(struct exec *x) {
  for (int s = 0; s < 2; s++)
    if (x->out[s].size && file_of(x, (char)('1' + s), &x->out[s].file, false)) return false;
  if (x->order_count || exec_merged(x)) {
    if (file_of(x, 'o', &x->order_file, false)) return false;
    if (!x->order_count) x->order_count = spool_file_size(x->order_file) / ORDER_SIZE;
  }
  return true;
}

void output_files_release(struct exec *x) {
  if (x->is_running || x->readers) return;
  close_fd(&x->out[0].file);
  close_fd(&x->out[1].file);
  close_fd(&x->order_file);
}

static int record(struct exec *x, const struct order *o) {
  int failed = file_of(x, 'o', &x->order_file, true);
  if (!failed) failed = order_write(x->order_file, x->order_count, o);
  if (!failed) x->order_count++;
  return failed;
}

// Makes what is in the file visible to readers.
static bool record_output(struct output *o) {
  struct exec *x = o->exec;
  if (!o->unrecorded) return true;
  struct order order = {exec_merged(x), o->size, now_us(), (uint32_t)o->unrecorded, o->kind};
  if (record(x, &order)) return false;
  o->size += o->unrecorded;
  o->unrecorded = 0;
  reqs_output_came(x);
  return true;
}

static enum pumped flush_held(struct output *o) {
  if (file_of(o->exec, (char)('0' + o->kind), &o->file, true)) return P_STALLED;
  while (o->held) {
    ssize_t n = pwrite(o->file, o->hold, o->held, (off_t)(o->size + o->unrecorded));
    if (n <= 0) return P_STALLED;
    memmove(o->hold, o->hold + n, o->held - (size_t)n);
    o->held -= (size_t)n;
    o->unrecorded += (uint64_t)n;
  }
  return P_MORE;
}

// Bytes leave the kernel only into `hold`, which is written before more is read: nothing can be lost.
static enum pumped take_by_copy(struct output *o, size_t max) {
  if (!o->hold && !(o->hold = malloc(HOLD))) return P_STALLED;
  ssize_t n = read(o->source.fd, o->hold, max < HOLD ? max : HOLD);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return P_WAIT;
  if (n <= 0) return P_EOF;  // EIO: a terminal nobody has open
  o->held = (size_t)n;
  if (o->bounded) o->left -= (uint64_t)n;
  return flush_held(o);
}

// A splice takes from the pipe only what the disk took.
static enum pumped take_by_splice(struct output *o, size_t max) {
  off_t at = (off_t)(o->size + o->unrecorded);
  ssize_t n = splice(o->source.fd, NULL, o->file, &at, max, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  if (n == 0) return P_EOF;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return P_WAIT;
  if (n < 0 && (errno == EINVAL || errno == ENOSYS)) {
    no_splice = true;
    return P_MORE;
  }
  if (n < 0) return P_STALLED;
  o->unrecorded += (uint64_t)n;
  if (o->bounded) o->left -= (uint64_t)n;
  return P_MORE;
}

static enum pumped take(struct output *o, size_t budget) {
  enum pumped got = o->held ? flush_held(o) : P_MORE;
  while (got == P_MORE && o->unrecorded < budget) {
    if (o->bounded && o->left == 0) return P_EOF;
    size_t max = o->bounded && o->left < PIECE ? (size_t)o->left : PIECE;
    // The first bytes are copied: no file is made for an exec that says nothing.
    bool copy = no_splice || (o->exec->flags & XF_PTY) || o->file < 0;
    got = copy ? take_by_copy(o, max) : take_by_splice(o, max);
  }
  return got;
}

static void stalled(struct timer *t) {
  (void)t;
  list_each_safe(l, &exec_running) {
    struct exec *x = container_of(l, struct exec, running);
    if (x->resize.length) output_resize(x, 0, 0);
    for (int s = 0; s < 2; s++)
      if (x->out[s].open && x->out[s].stalled) pump(&x->out[s]);
  }
}

static void stall(struct output *o) {
  o->stalled = true;
  loop_set(&o->source, 0);
  timer_set(&stall_timer, STALL_RETRY_MS, stalled);
}

static void finish(struct output *o) {
  struct exec *x = o->exec;
  o->open = o->stalled = false;
  if (o->bounded) {
    int fd = o->source.fd;
    loop_set(&o->source, 0);
    o->source.fd = -1;
    linger(fd, x->seq);
  } else {
    loop_close(&o->source);
  }
  free(o->hold);
  o->hold = NULL;
  exec_maybe_end(x);
}

static void pump(struct output *o) {
  struct exec *x = o->exec;
  if (!o->open) return;
  enum pumped got = take(o, TURN_BUDGET);
  if (!record_output(o) || got == P_STALLED) {
    stall(o);
    return;
  }
  o->stalled = false;
  // A terminal whose program is gone and all of whose output is read is closed: that hangs it up.
  bool over = got == P_WAIT && (x->flags & XF_PTY) && x->reaped;
  if (got == P_EOF || over) finish(o);
  else loop_set(&o->source, EPOLLIN);
}

static void grace_over(struct timer *t) {
  struct exec *x = container_of(t, struct exec, grace);
  for (int s = 0; s < 2; s++) {
    struct output *o = &x->out[s];
    int waiting = 0;
    if (!o->open) continue;
    if (ioctl(o->source.fd, FIONREAD, &waiting) < 0) waiting = 0;
    o->bounded = true;
    o->left = (uint64_t)waiting;
    pump(o);
  }
}

void output_after_exit(struct exec *x) {
  for (int s = 0; s < 2; s++) pump(&x->out[s]);
  if (x->is_running && !(x->flags & XF_PTY)) timer_set(&x->grace, settings.output_grace_ms, grace_over);
}

void output_close_all(struct exec *x) {
  for (int s = 0; s < 2; s++) {
    loop_close(&x->out[s].source);
    x->out[s].open = false;
  }
}

int output_resize(struct exec *x, uint16_t cols, uint16_t rows) {
  if (cols || rows) {
    struct winsize size = {.ws_col = cols, .ws_row = rows};
    if (ioctl(x->in.fd, TIOCSWINSZ, &size) < 0) return errno;
    x->resize = (struct order){.stream = cols | (uint64_t)rows << 16, .time_us = now_us(), .length = 1, .kind = KIND_RESIZE};
  }
  struct order o = x->resize;
  o.length = 0;
  o.merged = exec_merged(x);
  if (record(x, &o)) {
    timer_set(&stall_timer, STALL_RETRY_MS, stalled);
    return 0;
  }
  x->resize.length = 0;
  reqs_output_came(x);
  exec_maybe_end(x);
  return 0;
}

// What was written but not noted when the supervisor died is noted now; what the journal promises and
// the files do not hold is marked.
void output_recover(struct exec *x) {
  bool ended = exec_ended(x);
  uint64_t promised[2] = {x->out[0].size, x->out[1].size};
  if (ended && x->acked == exec_merged(x)) return;
  int order = spool_file(x->seq, 'o', true);
  if (order < 0) die(3, "cannot open an order file: %s", strerror(-order));
  x->order_file = order;
  x->order_count = spool_file_size(order) / ORDER_SIZE;
  uint64_t merged = 0, sizes[2] = {0, 0};
  bool seen[2] = {false, false};
  struct order o;
  for (uint64_t i = x->order_count; i > 0 && !(seen[0] && seen[1]); i--) {
    if (!order_read(order, i - 1, &o) || o.kind == 0) break;
    if (i == x->order_count) merged = o.merged + o.length;
    if (o.kind > KIND_STDERR || seen[o.kind - 1]) continue;
    seen[o.kind - 1] = true;
    sizes[o.kind - 1] = o.stream + o.length;
  }
  for (int s = 0; s < 2; s++)
    if (!seen[s] && seen[1 - s]) sizes[s] = merged - sizes[1 - s];
  for (int s = 0; s < 2; s++) {
    x->out[s].size = sizes[s];
    int fd = spool_file(x->seq, (char)('1' + s), false);
    uint64_t found = fd >= 0 ? spool_file_size(fd) : 0;
    close_fd(&fd);
    if (found < sizes[s] || (ended && found < promised[s])) x->flags |= XF_INCOMPLETE;
    x->out[s].unrecorded = found > sizes[s] ? found - sizes[s] : 0;
    if (!record_output(&x->out[s])) die(3, "cannot complete an order file: %s", strerror(errno));
    if (ended) x->out[s].size = promised[s];
  }
  if (x->acked) exec_streams_at(x, x->acked, x->dropped);
  output_files_release(x);
}

struct lingering {
  struct source source;
  uint32_t seq;
};

static struct lingering lingerers[MAX_LINGERING];

static void discard(struct source *s, uint32_t events) {
  (void)events;
  struct lingering *l = container_of(s, struct lingering, source);
  static char sink[PIECE];
  ssize_t n = read(s->fd, sink, sizeof sink);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    loop_close(s);
    return;
  }
  list_each(it, &exec_by_change) {
    struct exec *x = container_of(it, struct exec, by_change);
    if (x->seq == l->seq) x->late += (uint64_t)n;
  }
}

void linger(int fd, uint32_t seq) {
  static uint32_t next;
  struct lingering *l = &lingerers[0];
  for (uint32_t i = 0; i < MAX_LINGERING; i++) {
    if (lingerers[i].source.events) continue;
    l = &lingerers[i];
    loop_add(&l->source, fd, EPOLLIN, discard);
    l->seq = seq;
    return;
  }
  // All places taken: the one held longest is closed; its writers then see a broken pipe.
  l = &lingerers[next++ % MAX_LINGERING];
  loop_close(&l->source);
  loop_add(&l->source, fd, EPOLLIN, discard);
  l->seq = seq;
}
