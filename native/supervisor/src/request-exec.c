// Requests about one exec that are answered at once or with one frame later.
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum { MAX_USER = 127, MAX_CWD = 4095 };

static void put_exec_body(struct buffer *b, const struct record *r, uint32_t pid, uint64_t late) {
  bool ended = r->state >= X_EXITED;
  put_u8(b, r->state);
  put_u8(b, r->flags);
  put_u8(b, ended ? r->stage : 0);
  put_u8(b, 0);
  put_u32(b, ended ? (uint32_t)r->code : 0);
  put_u32(b, r->seq);
  put_u32(b, pid);
  put_u64(b, r->started_us);
  put_u64(b, ended ? r->time_us : 0);
  put_u64(b, r->stdout_size);
  put_u64(b, r->stderr_size);
  put_u64(b, r->acked);
  put_u64(b, late);
  put_bytes(b, r->id, r->id_len);
}

void put_exec(struct conn *c, uint32_t id, const struct exec *x) {
  struct record r = exec_record(x, R_END);
  frame_begin(&c->out, EXEC, id);
  put_exec_body(&c->out, &r, (uint32_t)(x->is_running && x->pid > 0 ? x->pid : 0), x->late);
  frame_end(&c->out);
}

// START, CANCEL and STATE are answered when what they would say is on disk.
static enum produced produce_state(struct req *q) {
  struct exec *x = q->exec;
  bool undecided = x->waits_for_sync || (q->type == START && x->state == X_STARTING);
  if (undecided) return P_IDLE;
  put_exec(q->conn, q->id, x);
  return P_DONE;
}

static enum produced produce_stdin_ready(struct req *q) {
  if (!q->caught_up) return P_IDLE;
  frame_begin(&q->conn->out, STDIN_READY, q->id);
  frame_end(&q->conn->out);
  return P_DONE;
}

static bool answer_state(struct conn *c, uint8_t type, uint32_t id, struct exec *x) {
  struct req *q = req_new(c, id, type);
  if (!q) return true;
  q->produce = produce_state;
  req_attach(q, x);
  req_ready(q);
  return true;
}

static char *copy_string(char **at, struct span s) {
  char *p = *at;
  memcpy(p, s.data, s.len);
  p[s.len] = 0;
  *at += s.len + 1;
  return p;
}

// NULL: `*invalid` says whether it was the content (else memory, or `r` is bad).
static struct spec *read_spec(struct reader *r, uint32_t *flags, bool *invalid) {
  *invalid = false;
  *flags = get_u32(r);
  uint16_t cols = get_u16(r), rows = get_u16(r);
  size_t bytes = r->left;
  // Strings grow by a zero and shrink by their length; pointers come on top.
  struct reader count = *r;
  get_bytes(&count, MAX_USER);
  get_bytes(&count, MAX_CWD);
  uint16_t argc = get_u16(&count);
  for (uint32_t i = 0; i < argc && !count.bad; i++) get_bytes(&count, MAX_FRAME);
  uint16_t envc = get_u16(&count);
  for (uint32_t i = 0; i < envc && !count.bad; i++) get_bytes(&count, MAX_FRAME);
  if (!reader_done(&count)) {
    r->bad = true;
    return NULL;
  }
  size_t pointers = sizeof(char *) * ((size_t)argc + envc + 2);
  struct spec *spec = malloc(sizeof *spec + pointers + bytes);
  if (!spec) return NULL;
  *spec = (struct spec){.bytes = sizeof *spec + pointers + bytes, .cols = cols, .rows = rows};
  spec->argv = (char **)(spec + 1);
  spec->envp = spec->argv + argc + 1;
  char *at = (char *)(spec->envp + envc + 1);
  struct span s = get_bytes(r, MAX_USER);
  *invalid = memchr(s.data, 0, s.len) != NULL;
  spec->user = copy_string(&at, s);
  s = get_bytes(r, MAX_CWD);
  *invalid |= memchr(s.data, 0, s.len) != NULL;
  spec->cwd = copy_string(&at, s);
  get_u16(r);
  for (uint32_t i = 0; i < argc; i++) {
    s = get_bytes(r, MAX_FRAME);
    *invalid |= memchr(s.data, 0, s.len) != NULL;
    spec->argv[i] = copy_string(&at, s);
  }
  get_u16(r);
  for (uint32_t i = 0; i < envc; i++) {
    s = get_bytes(r, MAX_FRAME);
    *invalid |= memchr(s.data, 0, s.len) != NULL || memchr(s.data, '=', s.len) == NULL;
    spec->envp[i] = copy_string(&at, s);
  }
  spec->argv[argc] = spec->envp[envc] = NULL;
  *invalid |= argc == 0 || (*flags & ~3u) != 0;
  if (!*invalid) return spec;
  free(spec);
  return NULL;
}

static bool request_start(struct conn *c, uint32_t id, struct span exec_id, struct exec *x, struct reader *r) {
  uint32_t flags;
  bool invalid;
  struct spec *spec = read_spec(r, &flags, &invalid);
  if (r->bad) return false;
  if (invalid || !spec) {
    answer_error(c, id, invalid ? E_INVALID : E_LIMIT, 0, 0, invalid ? "argv, env, user, cwd or flags cannot be used" : "no memory");
    return true;
  }
  if (x) {
    free(spec);
    return answer_state(c, START, id, x);
  }
  x = exec_running_count < MAX_RUNNING ? exec_new(exec_id) : NULL;
  if (!x) {
    free(spec);
    answer_error(c, id, E_LIMIT, 0, 0, "too many execs: running, unreleased or in this epoch");
    return true;
  }
  x->flags = (uint8_t)((flags & 1 ? XF_PTY | XF_STDIN : 0) | (flags & 2 ? XF_STDIN : 0));
  x->had_stdin = (x->flags & XF_STDIN) != 0;
  int failed = exec_start(x, spec);
  if (!failed) return answer_state(c, START, id, x);
  free(spec);
  answer_error(c, id, E_SYSTEM, failed, 0, "the start cannot be journalled");
  return true;
}

static void answer_released(struct conn *c, uint32_t id, const struct record *r) {
  frame_begin(&c->out, EXEC, id);
  put_exec_body(&c->out, r, 0, 0);
  frame_end(&c->out);
}

static bool request_cancel(struct conn *c, uint32_t id, struct span exec_id, struct exec *x, uint32_t grace_ms) {
  if (x) {
    exec_cancel(x, grace_ms);
    return answer_state(c, CANCEL, id, x);
  }
  x = exec_new(exec_id);
  int failed = x ? exec_cancel_unseen(x) : 0;
  if (!x) answer_error(c, id, E_LIMIT, 0, 0, "too many execs");
  else if (failed) answer_error(c, id, E_SYSTEM, failed, 0, "the cancelling cannot be journalled");
  else return answer_state(c, CANCEL, id, x);
  return true;
}

static bool request_stdin(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  uint64_t writer = get_u64(r), offset = get_u64(r);
  uint8_t flags = get_u8(r);
  struct span bytes = get_bytes(r, MAX_DATA);
  if (!reader_done(r) || flags > 1) return false;
  if (!x->is_running || x->reaped) {
    answer_error(c, id, E_ENDED, 0, 0, "the exec has ended");
    return true;
  }
  // Started a moment ago, not yet forked: its pipe is a sync away.
  if (x->spec) exec_sync();
  if (x->spec) {
    answer_error(c, id, E_LIMIT, 0, 0, "the sandbox stands still for a checkpoint: try again");
    return true;
  }
  if (!x->had_stdin) {
    answer_error(c, id, E_NO_STDIN, 0, 0, "the exec was started without stdin");
    return true;
  }
  struct stdin_result result = input_write(x, writer, offset, flags & 1, bytes);
  if (result.error) {
    answer_error(c, id, (uint16_t)result.error, 0, result.detail, result.error == E_GAP ? "input is missing before this offset" : "this writer is older than those remembered");
    return true;
  }
  struct req *q = result.full ? req_new(c, id, STDIN) : NULL;
  if (result.full && !q) return true;
  frame_begin(&c->out, STDIN_ACK, id);
  put_u64(&c->out, result.next);
  put_u8(&c->out, (uint8_t)((result.full ? 1 : 0) | (result.ended ? 2 : 0)));
  frame_end(&c->out);
  if (q) {
    q->produce = produce_stdin_ready;
    req_attach(q, x);
  }
  return true;
}

static bool request_resize(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  uint16_t cols = get_u16(r), rows = get_u16(r);
  if (!reader_done(r)) return false;
  if (x->spec) exec_sync();
  int failed = 0;
  if (x->spec) answer_error(c, id, E_LIMIT, 0, 0, "the sandbox stands still for a checkpoint: try again");
  else if (!(x->flags & XF_PTY)) answer_error(c, id, E_NO_TERMINAL, 0, 0, "the exec has no terminal");
  else if (x->in.fd < 0 || x->reaped) answer_error(c, id, E_ENDED, 0, 0, "the exec has ended");
  else if (cols == 0 || rows == 0) answer_error(c, id, E_INVALID, 0, 0, "a terminal has columns and rows");
  else if ((failed = output_resize(x, cols, rows))) answer_error(c, id, E_SYSTEM, failed, 0, "the terminal cannot be resized");
  else answer_ok(c, id, 0);
  return true;
}

static bool request_signal(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  uint32_t signal = get_u32(r);
  if (!reader_done(r)) return false;
  if (x->spec) exec_sync();
  int failed = 0;
  if (signal < 1 || signal > 64) answer_error(c, id, E_INVALID, 0, 0, "no such signal");
  else if (!x->is_running || x->reaped) answer_error(c, id, E_ENDED, 0, 0, "the exec has ended");
  else if ((failed = exec_signal(x, (int)signal))) answer_error(c, id, E_SYSTEM, failed, 0, "the signal cannot be sent");
  else answer_ok(c, id, 0);
  return true;
}

static bool request_ack(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  uint64_t offset = get_u64(r);
  if (!reader_done(r)) return false;
  if (offset > exec_merged(x)) {
    answer_error(c, id, E_RANGE, 0, exec_merged(x), "there is less output than that");
    return true;
  }
  exec_ack(x, offset);
  answer_ok(c, id, x->acked);
  return true;
}

static bool request_release(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  if (!reader_done(r)) return false;
  int failed = 0;
  if (!exec_ended(x)) answer_error(c, id, E_RUNNING, 0, 0, "the exec has not ended");
  else if ((failed = exec_release(x))) answer_error(c, id, E_SYSTEM, failed, 0, "the release cannot be journalled");
  else answer_ok(c, id, 0);
  return true;
}

// As FIGURES: 1 cpuUs, 4 memoryPeak, 14 readBytes, 15 writtenBytes; none while it runs.
void put_usage(struct conn *c, uint32_t id, const struct exec *x) {
  const struct usage *u = &x->usage;
  const struct {
    uint16_t key;
    uint64_t value;
  } figures[] = {{1, u->cpu_us}, {4, u->peak_bytes}, {14, u->read_bytes}, {15, u->written_bytes}};
  uint16_t n = u->known ? sizeof figures / sizeof *figures : 0;
  frame_begin(&c->out, FIGURES_ARE, id);
  put_u16(&c->out, n);
  for (uint16_t i = 0; i < n; i++) {
    put_u16(&c->out, figures[i].key);
    put_u64(&c->out, figures[i].value);
  }
  frame_end(&c->out);
}

static bool request_usage(struct conn *c, uint32_t id, struct exec *x, struct reader *r) {
  if (!reader_done(r)) return false;
  put_usage(c, id, x);
  return true;
}

static bool request_known(struct conn *c, uint8_t type, uint32_t id, struct exec *x, struct reader *r) {
  switch (type) {
    case STDIN: return request_stdin(c, id, x, r);
    case RESIZE: return request_resize(c, id, x, r);
    case SIGNAL: return request_signal(c, id, x, r);
    case ACK: return request_ack(c, id, x, r);
    case USAGE: return request_usage(c, id, x, r);
    default: return request_release(c, id, x, r);
  }
}

bool request_exec(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  struct span exec_id = get_bytes(r, MAX_EXEC_ID);
  if (r->bad) return false;
  if (!valid_name(exec_id.data, exec_id.len, MAX_EXEC_ID)) {
    answer_error(c, id, E_INVALID, 0, 0, "an exec id is 1-64 of A-Za-z0-9._-");
    return true;
  }
  struct exec *x = exec_find(exec_id);
  struct record released;
  bool was_released = !x && exec_find_released(exec_id, &released);
  if (type == START && !was_released) return request_start(c, id, exec_id, x, r);
  uint32_t grace_ms = type == CANCEL ? get_u32(r) : 0;
  if ((type == CANCEL || type == STATE) && !reader_done(r)) return false;
  if (was_released) {
    if (type == START || type == CANCEL || type == STATE) answer_released(c, id, &released);
    else if (type == RELEASE || type == ACK) answer_ok(c, id, 0);
    else answer_error(c, id, E_ENDED, 0, 0, "this exec has been released");
    return true;
  }
  if (type == CANCEL) return request_cancel(c, id, exec_id, x, grace_ms);
  if (x && type == STATE) return answer_state(c, STATE, id, x);
  if (x) return request_known(c, type, id, x, r);
  answer_error(c, id, E_NOT_FOUND, 0, 0, "no such exec");
  return true;
}
