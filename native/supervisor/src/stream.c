#include "stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct stream streams[MAX_STREAMS];

static enum produced produce_stream(struct req *);
static void on_stream(struct source *, uint32_t);

static void abandon(struct req *q) {
  if (q->pipe) stream_discard(q->pipe);
  q->pipe = NULL;
}

void stream_discard(struct stream *s) {
  // A file process whose control descriptor closes without a commit undoes what it began.
  loop_close(&s->source);
  loop_close(&s->control);
  if (s->window) madvise(s->window, LARGEST_WINDOW, MADV_DONTNEED);
  s->used = false;
}

struct stream *stream_new(struct conn *c, uint32_t id, uint8_t type, uint32_t credit) {
  struct stream *s = NULL;
  for (int i = 0; i < MAX_STREAMS && !s; i++)
    if (!streams[i].used) s = &streams[i];
  if (!s) {
    answer_error(c, id, E_LIMIT, 0, 0, "too many streams");
    return NULL;
  }
  struct req *q = req_new(c, id, type);
  if (!q) return NULL;
  uint8_t *window = s->window;
  memset(s, 0, sizeof *s);
  s->window = window ? window : reserve(LARGEST_WINDOW);
  bool bulk = type == UNPACK || type == TAR_IN || type == FILE_WRITE;
  // What may be under way to a port: over a distance this is how fast it is.
  s->window_size = bulk ? LARGEST_WINDOW : type == DIAL ? DIAL_WINDOW : WINDOW;
  s->source.fd = s->control.fd = -1;
  s->used = true;
  s->req = q;
  q->pipe = s;
  q->credit = credit;
  q->produce = produce_stream;
  q->abandon = abandon;
  return s;
}

static void want(struct stream *s) {
  uint32_t events = 0;
  if (s->connecting || s->window_len > 0) events |= EPOLLOUT;
  if (!s->connecting && !s->readable && !s->taken_end) events |= EPOLLIN;
  loop_set(&s->source, events);
}

static void fail(struct stream *s, uint16_t code, int error, const char *message) {
  s->verdict = (struct verdict){.code = code, .error = error};
  snprintf(s->verdict.message, sizeof s->verdict.message, "%s", message);
  s->judged = s->taken_end = true;
  loop_close(&s->source);
  req_ready(s->req);
}

static void on_control(struct source *source, uint32_t events) {
  (void)events;
  struct stream *s = container_of(source, struct stream, control);
  ssize_t n = read(source->fd, &s->verdict, sizeof s->verdict);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  s->verdict.message[sizeof s->verdict.message - 1] = 0;
  if (n != sizeof s->verdict)
    s->verdict = (struct verdict){.code = E_SYSTEM, .error = EIO, .message = "the file process ended without an answer"};
  s->judged = true;
  loop_set(source, 0);
  req_ready(s->req);
}

void stream_open(struct stream *s, int fd, int control_fd) {
  loop_add(&s->source, fd, 0, on_stream);
  if (control_fd >= 0) loop_add(&s->control, control_fd, EPOLLIN, on_control);
  want(s);
  req_ready(s->req);
}

static void finish_input(struct stream *s) {
  if (!s->req->end_of_input || s->given_end || s->window_len > 0 || s->source.fd < 0) return;
  s->given_end = true;
  // 'C' is the commit: END came, as opposed to a client that went away.
  if (s->control.fd >= 0 && !s->judged && write(s->control.fd, "C", 1) != 1 && errno != EPIPE)
    fail(s, E_SYSTEM, errno, "the file process cannot be told the end");
  if (s->source.fd >= 0) shutdown(s->source.fd, SHUT_WR);
  req_ready(s->req);
}

static void write_window(struct stream *s) {
  while (s->window_len > 0 && s->source.fd >= 0) {
    size_t until_wrap = s->window_size - s->window_start;
    size_t n = s->window_len < until_wrap ? s->window_len : until_wrap;
    ssize_t put = send(s->source.fd, s->window + s->window_start, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) {
      // A file process that stops reading says why on its control descriptor.
      int error = errno;
      s->owed += (uint32_t)s->window_len;
      s->window_len = 0;
      if (s->control.fd < 0) fail(s, E_SYSTEM, error, "the connection broke");
      break;
    }
    s->window_start = (s->window_start + (size_t)put) % s->window_size;
    s->window_len -= (size_t)put;
    s->owed += (uint32_t)put;
  }
  if (s->owed >= s->window_size / 4 || (s->owed && s->window_len == 0)) req_ready(s->req);
  finish_input(s);
}

bool stream_data(struct req *q, struct span bytes) {
  struct stream *s = q->pipe;
  if (!s->accepted || q->end_of_input || bytes.len + s->window_len + s->owed > s->window_size) return false;
  for (uint32_t done = 0; done < bytes.len;) {
    size_t at = (s->window_start + s->window_len) % s->window_size;
    size_t n = s->window_size - at < bytes.len - done ? s->window_size - at : bytes.len - done;
    memcpy(s->window + at, bytes.data + done, n);
    s->window_len += n;
    done += (uint32_t)n;
  }
  write_window(s);
  want(s);
  return true;
}

void stream_end(struct req *q) {
  q->end_of_input = true;
  write_window(q->pipe);
  want(q->pipe);
}

static int dial(struct stream *s, int family) {
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(s->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  int failed = family == AF_INET ? connect(fd, (struct sockaddr *)&v4, sizeof v4) : connect(fd, (struct sockaddr *)&v6, sizeof v6);
  if (failed < 0 && errno != EINPROGRESS) {
    int error = errno;
    close(fd);
    return error;
  }
  s->connecting = true;
  stream_open(s, fd, -1);
  return 0;
}

static void dial_v6_or_fail(struct stream *s, int error) {
  loop_close(&s->source);
  if (!s->tried_v6) {
    s->tried_v6 = true;
    if (dial(s, AF_INET6) == 0) return;
  }
  fail(s, E_SYSTEM, error, "nothing answers on this port");
}

static void on_stream(struct source *source, uint32_t events) {
  struct stream *s = container_of(source, struct stream, source);
  if (s->connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) error = errno;
    if (!error && !(events & EPOLLOUT)) return;
    s->connecting = false;
    if (error) {
      dial_v6_or_fail(s, error);
      return;
    }
    req_ready(s->req);
  }
  if (events & EPOLLOUT) write_window(s);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    s->readable = true;
    req_ready(s->req);
  }
  want(s);
}

static void produce_credit(struct stream *s) {
  struct buffer *b = &s->req->conn->out;
  if (!s->accepted && s->wants_input && !s->connecting && s->source.fd >= 0) {
    s->accepted = true;
    frame_begin(b, ACCEPTED, s->req->id);
    put_u32(b, (uint32_t)s->window_size);
    frame_end(b);
  }
  if (s->owed && !s->req->end_of_input) {
    frame_begin(b, CREDIT, s->req->id);
    put_u32(b, s->owed);
    frame_end(b);
    s->owed = 0;
  }
}

// One frame of what the descriptor has. False: nothing for now.
static bool produce_data(struct stream *s) {
  struct req *q = s->req;
  struct buffer *b = &q->conn->out;
  if (s->taken_end || !s->readable) return false;
  size_t max = q->credit < MAX_DATA ? (size_t)q->credit : MAX_DATA;
  ssize_t n;
  frame_begin(b, DATA, q->id);
  if (max > 0) {
    uint8_t *into = put_space(b, max);
    n = into ? recv(s->source.fd, into, max, MSG_DONTWAIT) : 0;
  } else {
    // Without credit only the end can be passed on.
    char peeked;
    n = recv(s->source.fd, &peeked, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0) {
      frame_cancel(b);
      return false;
    }
  }
  if (n > 0) {
    put_shrink(b, max, (size_t)n);
    frame_end(b);
    q->credit -= (uint64_t)n;
    s->sent += (uint64_t)n;
    return true;
  }
  int error = n < 0 ? errno : 0;
  frame_cancel(b);
  s->readable = false;
  if (error == EAGAIN || error == EINTR) return false;
  if (error && s->control.fd < 0) {
    fail(s, E_SYSTEM, error, "the connection broke");
    return false;
  }
  s->taken_end = true;
  if (q->type == DIAL) {
    frame_begin(b, END, q->id);
    frame_end(b);
  }
  return false;
}

static enum produced produce_stream(struct req *q) {
  struct stream *s = q->pipe;
  produce_credit(s);
  bool more = produce_data(s);
  want(s);
  if (more) return P_AGAIN;
  bool is_file = q->type != DIAL;
  // A verdict is the last word only after everything the process sent has been passed on.
  if (s->judged && (s->taken_end || s->verdict.code)) {
    if (s->verdict.code) answer_error(q->conn, q->id, s->verdict.code, s->verdict.error, 0, s->verdict.message);
    else answer_ok(q->conn, q->id, s->verdict.value);
    return P_DONE;
  }
  if (!is_file && s->taken_end && s->given_end) {
    answer_ok(q->conn, q->id, s->sent);
    return P_DONE;
  }
  return P_IDLE;
}

bool request_dial(struct conn *c, uint32_t id, struct reader *r) {
  uint16_t port = get_u16(r);
  uint32_t credit = get_u32(r);
  if (!reader_done(r)) return false;
  if (port == 0) {
    answer_error(c, id, E_INVALID, 0, 0, "a port is 1-65535");
    return true;
  }
  if (settings.own_ports && !port_is_ours(port)) {
    answer_error(c, id, E_SYSTEM, ECONNREFUSED, 0, "nothing of this sandbox listens on this port");
    return true;
  }
  struct stream *s = stream_new(c, id, DIAL, credit);
  if (!s) return true;
  s->port = port;
  s->wants_input = true;
  int failed = dial(s, AF_INET);
  if (failed) dial_v6_or_fail(s, failed);
  return true;
}
