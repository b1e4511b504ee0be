// Input: each writer's bytes are numbered from 0 and go into the pipe or terminal at most once.
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <termios.h>
#include <unistd.h>

#include "exec.h"
#include "wire.h"

static struct writer *find_writer(struct exec *x, uint64_t id) {
  for (int i = 0; i < x->writer_count; i++)
    if (x->writers[i].id == id) return &x->writers[i];
  return NULL;
}

// The oldest (smallest) writer makes room, and its id and all below are refused from then on: were it
// forgotten, its repeats would be taken for new bytes.
static struct writer *add_writer(struct exec *x, uint64_t id) {
  if (id < x->writer_floor) return NULL;
  if (x->writer_count < MAX_WRITERS) {
    x->writers[x->writer_count] = (struct writer){id, 0};
    return &x->writers[x->writer_count++];
  }
  struct writer *oldest = &x->writers[0];
  for (int i = 1; i < MAX_WRITERS; i++)
    if (x->writers[i].id < oldest->id) oldest = &x->writers[i];
  if (id < oldest->id) {
    x->writer_floor = oldest->id;
    return NULL;
  }
  x->writer_floor = oldest->id + 1;
  *oldest = (struct writer){id, 0};
  return oldest;
}

static void on_writable(struct source *s, uint32_t events) {
  (void)events;
  loop_set(s, 0);
  reqs_input_ready(container_of(s, struct exec, in));
}

static bool type_eof(struct exec *x) {
  struct termios t;
  if (tcgetattr(x->in.fd, &t) < 0) return false;
  return write(x->in.fd, &t.c_cc[VEOF], 1) == 1;
}

static void close_input(struct exec *x) {
  loop_close(&x->in);
  x->flags &= (uint8_t)~XF_STDIN;
  reqs_input_ready(x);
}

static void wait_for_room(struct exec *x, struct stdin_result *result) {
  result->full = true;
  if (!x->in.ready) x->in.ready = on_writable;
  loop_set(&x->in, EPOLLOUT);
}

struct stdin_result input_write(struct exec *x, uint64_t writer, uint64_t offset, bool eof, struct span data) {
  struct stdin_result result = {0};
  struct writer *w = find_writer(x, writer);
  if (!w) {
    if (offset != 0) return (struct stdin_result){.error = E_GAP};
    w = add_writer(x, writer);
    if (!w) return (struct stdin_result){.error = E_STALE_WRITER, .detail = x->writer_floor};
  }
  if (offset > w->next) return (struct stdin_result){.error = E_GAP, .detail = w->next};
  result.next = w->next;
  if (x->in.fd < 0) {
    result.ended = true;
    return result;
  }
  uint64_t known = w->next - offset;
  if (known > data.len) return result;
  while (known < data.len) {
    ssize_t n = write(x->in.fd, data.data + known, data.len - known);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      wait_for_room(x, &result);
      return result;
    }
    if (n < 0) {
      close_input(x);
      result.ended = true;
      return result;
    }
    known += (uint64_t)n;
    w->next += (uint64_t)n;
    result.next = w->next;
  }
  if (!eof) return result;
  if (x->flags & XF_PTY) {
    if (!type_eof(x)) {
      wait_for_room(x, &result);
      return result;
    }
  } else {
    close_input(x);
    result.ended = true;
  }
  // The EOF takes a number of its own, so that a repeat is known as one.
  result.next = ++w->next;
  return result;
}
