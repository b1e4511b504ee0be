// READ and WATCH: what is on disk, then what comes, as far as the client's credit and buffer go.
#include <string.h>
#include <unistd.h>

#include "conn.h"

static struct link watchers = {&watchers, &watchers};

static void release_reader(struct req *q) {
  if (!q->exec) return;
  q->exec->readers--;
  output_files_release(q->exec);
}

static enum produced gone(struct req *q, uint64_t first) {
  answer_error(q->conn, q->id, E_GONE, 0, first, "this output is no longer held");
  return P_DONE;
}

static enum produced produce_gone(struct req *q) { return gone(q, q->until); }

// The first record that holds bytes from `offset` on, or a resize not before it.
static void place(struct req *q) {
  uint64_t low = 0, high = q->exec->order_count;
  struct order o;
  while (low < high) {
    uint64_t mid = (low + high) / 2;
    if (!order_read(q->exec->order_file, mid, &o)) break;
    if (o.merged + o.length > q->offset || (o.length == 0 && o.merged >= q->offset)) high = mid;
    else low = mid + 1;
  }
  q->order_index = low;
  q->placed = true;
}

static bool send_bytes(struct req *q, uint8_t kind, uint64_t merged, uint64_t stream, uint64_t time_us, size_t len) {
  struct buffer *b = &q->conn->out;
  frame_begin(b, OUTPUT, q->id);
  put_u8(b, kind);
  put_u64(b, merged);
  put_u64(b, stream);
  put_u64(b, time_us);
  uint8_t *into = put_space(b, len);
  if (into && (len == 0 || pread(q->exec->out[kind - 1].file, into, len, (off_t)stream) == (ssize_t)len)) {
    frame_end(b);
    q->credit -= len;
    return true;
  }
  frame_cancel(b);
  return false;
}

static size_t smallest(uint64_t a, uint64_t b) {
  uint64_t n = a < b ? a : b;
  return (size_t)(n < MAX_DATA ? n : MAX_DATA);
}

// False: nothing more can be sent now; `*lost` when the files hold less than they should.
static bool send_merged(struct req *q, bool *lost) {
  struct exec *x = q->exec;
  struct order o;
  if (!q->placed) place(q);
  if (q->order_index >= x->order_count || (!q->follow && q->offset >= q->until)) return false;
  if (!order_read(x->order_file, q->order_index, &o)) return !(*lost = true);
  if (o.kind == KIND_RESIZE) {
    struct buffer *b = &q->conn->out;
    frame_begin(b, OUTPUT, q->id);
    put_u8(b, KIND_RESIZE);
    put_u64(b, o.merged);
    put_u64(b, o.stream);
    put_u64(b, o.time_us);
    put_bytes(b, "", 0);
    frame_end(b);
    q->order_index++;
    return true;
  }
  uint64_t skip = q->offset - o.merged;
  if (o.kind < KIND_STDOUT || q->offset < o.merged || skip > o.length) return !(*lost = true);
  size_t n = smallest(o.length - skip, q->credit);
  if (!send_bytes(q, o.kind, q->offset, o.stream + skip, o.time_us, n)) return !(*lost = true);
  q->offset += n;
  if (skip + n == o.length) q->order_index++;
  return true;
}

static bool send_stream(struct req *q, bool *lost) {
  uint64_t size = q->exec->out[q->stream - 1].size;
  if (!q->follow && size > q->until) size = q->until;
  if (q->offset >= size) return false;
  size_t n = smallest(size - q->offset, q->credit);
  if (!send_bytes(q, q->stream, UINT64_MAX, q->offset, 0, n)) return !(*lost = true);
  q->offset += n;
  return true;
}

static uint64_t size_of(const struct req *q) {
  return q->stream ? q->exec->out[q->stream - 1].size : exec_merged(q->exec);
}

static enum produced produce_read(struct req *q) {
  struct exec *x = q->exec;
  uint64_t first = q->stream ? x->dropped[q->stream - 1] : x->acked;
  bool lost = false;
  if (q->offset < first) return gone(q, first);
  bool removed = exec_ended(x) && x->acked > 0 && x->acked == exec_merged(x);
  bool readable = x->order_count > 0 && !removed;
  if (readable && !output_files_open(x)) {
    answer_error(q->conn, q->id, E_SYSTEM, errno, 0, "the output cannot be opened");
    return P_DONE;
  }
  for (int i = 0; i < 16 && readable && q->credit > 0 && conn_has_room(q->conn); i++)
    if (!(q->stream ? send_stream(q, &lost) : send_merged(q, &lost))) break;
  if (lost) return gone(q, size_of(q));
  bool all = q->offset >= (q->follow ? size_of(q) : q->until);
  if (all && !q->stream && q->placed && q->follow && q->order_index < x->order_count) all = false;
  if (!all) return q->credit > 0 ? P_AGAIN : P_IDLE;
  if (x->waits_for_sync || (q->follow && !exec_ended(x))) return P_IDLE;
  if (q->tells_usage) put_usage(q->conn, q->id, x);
  put_exec(q->conn, q->id, x);
  return P_DONE;
}

bool request_read(struct conn *c, uint32_t id, struct reader *r) {
  struct span exec_id = get_bytes(r, MAX_EXEC_ID);
  uint8_t stream = get_u8(r), follow = get_u8(r);
  uint64_t offset = get_u64(r);
  uint32_t credit = get_u32(r);
  if (!reader_done(r) || stream > 2 || follow > 2) return false;
  struct exec *x = exec_find(exec_id);
  struct record released;
  if (!x && exec_find_released(exec_id, &released)) {
    uint64_t sizes[3] = {released.stdout_size + released.stderr_size, released.stdout_size, released.stderr_size};
    answer_error(c, id, E_GONE, 0, sizes[stream], "this exec has been released");
    return true;
  }
  if (!x) {
    answer_error(c, id, E_NOT_FOUND, 0, 0, "no such exec");
    return true;
  }
  struct req *q = req_new(c, id, READ);
  if (!q) return true;
  q->produce = produce_read;
  q->stream = stream;
  q->follow = follow > 0;
  q->tells_usage = follow == 2;
  q->offset = offset;
  q->credit = credit;
  req_attach(q, x);
  if (offset > size_of(q)) {
    answer_error(c, id, E_RANGE, 0, size_of(q), "there is less output than that");
    req_close(q);
    return true;
  }
  q->until = size_of(q);
  q->abandon = release_reader;
  x->readers++;
  req_ready(q);
  return true;
}

// The earliest change that this request has not told; what is not yet on disk is told after it is.
static struct exec *next_change(const struct req *q) {
  struct exec *next = NULL;
  for (struct link *l = exec_by_change.prev; l != &exec_by_change; l = l->prev) {
    struct exec *x = container_of(l, struct exec, by_change);
    if (x->change <= q->cursor) break;
    if (!x->waits_for_sync) next = x;
  }
  return next;
}

static enum produced produce_watch(struct req *q) {
  struct exec *x = next_change(q);
  if (x && (q->caught_up || x->change <= q->until)) {
    q->cursor = x->change;
    put_exec(q->conn, q->id, x);
    return P_AGAIN;
  }
  if (!q->caught_up) {
    answer_ok(q->conn, q->id, 0);
    q->caught_up = true;
    if (!q->follow) return P_DONE;
    return x ? P_AGAIN : P_IDLE;
  }
  return P_IDLE;
}

bool request_watch(struct conn *c, uint32_t id, struct reader *r) {
  uint8_t follow = get_u8(r);
  if (!reader_done(r) || follow > 1) return false;
  struct req *q = req_new(c, id, WATCH);
  if (!q) return true;
  q->produce = produce_watch;
  q->follow = follow;
  bool none = list_empty(&exec_by_change);
  q->until = none ? 0 : container_of(exec_by_change.prev, struct exec, by_change)->change;
  list_append(&watchers, &q->watching);
  req_ready(q);
  return true;
}

void reqs_output_came(struct exec *x) {
  list_each(l, &x->reqs) {
    struct req *q = container_of(l, struct req, in_exec);
    if (q->type == READ) req_ready(q);
  }
}

void reqs_exec_changed(struct exec *x) {
  list_each(l, &x->reqs) req_ready(container_of(l, struct req, in_exec));
  list_each(l, &watchers) req_ready(container_of(l, struct req, watching));
}

void reqs_input_ready(struct exec *x) {
  list_each(l, &x->reqs) {
    struct req *q = container_of(l, struct req, in_exec);
    if (q->type != STDIN) continue;
    q->caught_up = true;
    req_ready(q);
  }
}

void reqs_output_gone(struct exec *x) {
  list_each_safe(l, &x->reqs) {
    struct req *q = container_of(l, struct req, in_exec);
    if (!(x->flags & XF_RELEASED) && !(q->type == READ && q->offset < size_of(q))) continue;
    if (q->abandon) q->abandon(q);
    q->abandon = NULL;
    q->until = exec_merged(x);
    q->exec = NULL;
    list_remove(&q->in_exec);
    q->produce = produce_gone;
    req_ready(q);
  }
}
