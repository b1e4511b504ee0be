#include "conn.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  OUT_SIZE = 256 << 10,
  IN_SIZE = MAX_FRAME + 4,
  // Direct answers always find this much: no frame is taken while there is less.
  ANSWER_ROOM = 8 << 10,
  STREAM_ROOM = ANSWER_ROOM + MAX_DATA + 256,
  READ_AT_ONCE = 64 << 10,
  BUCKETS = 4096,
  HELLO_WITHIN_MS = 10000,
  CLOSE_WITHIN_MS = 1000,
  SILENT_MS = 180000,
};

static struct conn conns[MAX_CONNS];
static struct req *req_pool, *free_reqs;
static struct link buckets[BUCKETS], pending;
static uint32_t req_high;
static struct source listener;

static struct link *bucket_of(const struct conn *c, uint32_t id) {
  return &buckets[(id * 2654435761u ^ (uint32_t)(c - conns) * 40503u) % BUCKETS];
}

struct req *req_find(struct conn *c, uint32_t id) {
  list_each(l, bucket_of(c, id)) {
    struct req *r = container_of(l, struct req, hashed);
    if (r->conn == c && r->id == id) return r;
  }
  return NULL;
}

struct req *req_new(struct conn *c, uint32_t id, uint8_t type) {
  struct req *r = free_reqs;
  if (r) free_reqs = (struct req *)r->hashed.next;
  else if (req_high < MAX_REQS) r = &req_pool[req_high++];
  if (!r || c->req_count >= MAX_REQS_PER_CONN) {
    if (r) {
      r->hashed.next = (struct link *)free_reqs;
      free_reqs = r;
    }
    answer_error(c, id, E_LIMIT, 0, 0, "too many open requests");
    return NULL;
  }
  memset(r, 0, sizeof *r);
  r->conn = c;
  r->id = id;
  r->type = type;
  list_append(bucket_of(c, id), &r->hashed);
  list_append(&c->reqs, &r->in_conn);
  list_init(&r->ready);
  list_init(&r->in_exec);
  list_init(&r->watching);
  c->req_count++;
  return r;
}

void req_close(struct req *r) {
  if (r->abandon) r->abandon(r);
  list_remove(&r->hashed);
  list_remove(&r->in_conn);
  list_remove(&r->ready);
  list_remove(&r->in_exec);
  list_remove(&r->watching);
  r->conn->req_count--;
  r->produce = NULL;
  r->conn = NULL;
  r->hashed.next = (struct link *)free_reqs;
  free_reqs = r;
}

static void conn_pending(struct conn *c) {
  if (list_empty(&c->pending)) list_append(&pending, &c->pending);
  loop_soon();
}

void req_ready(struct req *r) {
  if (r->is_ready) return;
  r->is_ready = true;
  list_append(&r->conn->ready, &r->ready);
  conn_pending(r->conn);
}

void req_attach(struct req *r, struct exec *x) {
  r->exec = x;
  list_append(&x->reqs, &r->in_exec);
}

void answer_ok(struct conn *c, uint32_t id, uint64_t value) {
  frame_begin(&c->out, OK, id);
  put_u64(&c->out, value);
  frame_end(&c->out);
}

void answer_error(struct conn *c, uint32_t id, uint16_t code, int error, uint64_t detail, const char *message) {
  frame_begin(&c->out, ERROR, id);
  put_u16(&c->out, code);
  put_u16(&c->out, 0);
  put_u32(&c->out, (uint32_t)error);
  put_u64(&c->out, detail);
  put_bytes(&c->out, message, strlen(message));
  frame_end(&c->out);
}

static void close_now(struct timer *t) { conn_close(container_of(t, struct conn, hello_timer)); }

void conn_fail(struct conn *c, uint16_t code, const char *message) {
  if (c->closing) return;
  while (!list_empty(&c->reqs)) req_close(container_of(c->reqs.next, struct req, in_conn));
  answer_error(c, 0, code, 0, 0, message);
  c->closing = true;
  timer_set(&c->hello_timer, CLOSE_WITHIN_MS, close_now);
  conn_pending(c);
}

void conn_close(struct conn *c) {
  if (!c->used) return;
  while (!list_empty(&c->reqs)) req_close(container_of(c->reqs.next, struct req, in_conn));
  timer_clear(&c->hello_timer);
  list_remove(&c->pending);
  loop_close(&c->source);
  // What a large frame touched is given back.
  madvise(c->in, IN_SIZE, MADV_DONTNEED);
  madvise(c->out.base, OUT_SIZE, MADV_DONTNEED);
  c->used = false;
  lease_renew();
}

static bool send_out(struct conn *c) {
  struct buffer *b = &c->out;
  while (b->start < b->end) {
    ssize_t n = send(c->source.fd, b->base + b->start, b->end - b->start, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    b->start += (size_t)n;
  }
  if (b->start == b->end) b->start = b->end = 0;
  return true;
}

bool conn_has_room(const struct conn *c) { return buffer_room(&c->out) >= STREAM_ROOM; }

static void produce(struct conn *c) {
  while (!list_empty(&c->ready) && conn_has_room(c) && !c->closing) {
    struct req *r = container_of(c->ready.next, struct req, ready);
    list_remove(&r->ready);
    r->is_ready = false;
    enum produced did = r->produce(r);
    if (did == P_DONE) req_close(r);
    else if (did == P_AGAIN) req_ready(r);
  }
}

static void conn_flush(struct conn *c) {
  list_remove(&c->pending);
  for (int turns = 0; turns < 8; turns++) {
    produce(c);
    if (!send_out(c) || c->out.overflow) {
      if (c->out.overflow) say("a frame did not fit its buffer: connection closed");
      conn_close(c);
      return;
    }
    if (c->out.end > 0 || list_empty(&c->ready)) break;
  }
  bool unsent = c->out.end > c->out.start;
  if (c->closing && !unsent) {
    // What the client still sends is read and dropped until it has seen our last words: closing on
    // unread bytes would reset the connection under them.
    shutdown(c->source.fd, SHUT_WR);
    loop_set(&c->source, EPOLLIN);
    return;
  }
  bool readable = !c->closing && buffer_room(&c->out) >= ANSWER_ROOM;
  loop_set(&c->source, (readable ? EPOLLIN : 0) | (unsent ? EPOLLOUT : 0));
  // Room again and more to say or to take: go on next turn, after others had theirs.
  if (readable && c->blocked) conn_process(c);
  else if (!unsent && !list_empty(&c->ready)) conn_pending(c);
}

void conns_flush(void) {
  struct link now;
  list_init(&now);
  while (!list_empty(&pending)) {
    struct link *l = pending.next;
    list_remove(l);
    list_append(&now, l);
  }
  while (!list_empty(&now)) {
    struct conn *c = container_of(now.next, struct conn, pending);
    conn_flush(c);
  }
}

void conn_process(struct conn *c) {
  size_t at = 0;
  c->blocked = false;
  while (!c->closing && c->in_len - at >= 4) {
    if (buffer_room(&c->out) < ANSWER_ROOM) {
      c->blocked = true;
      break;
    }
    uint32_t length = load_u32(c->in + at);
    if (length < 5 || length > MAX_FRAME) {
      conn_fail(c, E_MALFORMED, "a frame's length is out of bounds");
      break;
    }
    if (c->in_len - at - 4 < length) break;
    const uint8_t *frame = c->in + at + 4;
    struct reader body = {frame + 5, length - 5, false};
    at += 4 + (size_t)length;
    if (!dispatch(c, frame[0], load_u32(frame + 1), &body)) conn_fail(c, E_MALFORMED, "malformed frame");
  }
  if (at > 0) {
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
  }
  if (c->in_len == 0 && c->in_high > 2 * READ_AT_ONCE) {
    madvise(c->in, IN_SIZE, MADV_DONTNEED);
    c->in_high = 0;
  }
  conn_pending(c);
}

static void on_conn(struct source *s, uint32_t events) {
  struct conn *c = container_of(s, struct conn, source);
  if (events & EPOLLOUT) {
    if (!send_out(c)) {
      conn_close(c);
      return;
    }
    conn_pending(c);
  }
  if (c->closing) {
    ssize_t n = read(s->fd, c->in, READ_AT_ONCE);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) conn_close(c);
    return;
  }
  size_t room = IN_SIZE - c->in_len;
  if (buffer_room(&c->out) >= ANSWER_ROOM && room > 0) {
    ssize_t n = read(s->fd, c->in + c->in_len, room < READ_AT_ONCE ? room : READ_AT_ONCE);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      conn_close(c);
      return;
    }
    if (n > 0) c->in_len += (size_t)n;
    if (c->in_len > c->in_high) c->in_high = c->in_len;
  }
  conn_process(c);
}

static void hello_timeout(struct timer *t) {
  conn_fail(container_of(t, struct conn, hello_timer), E_MALFORMED, "no HELLO came");
}

static void say_hello(struct conn *c) {
  frame_begin(&c->out, HELLO, 0);
  put_u32(&c->out, HELLO_MAGIC);
  put_u16(&c->out, PROTOCOL_VERSION);
  put_u16(&c->out, (uint16_t)((settings.pid1 ? 1 : 0) | (settings.read_only ? 2 : 0) | (stopping() ? 4 : 0) | 8 | 16 | 32));
  put_u64(&c->out, settings.epoch);
  put_u64(&c->out, settings.started_us);
  put_u32(&c->out, MAX_FRAME);
  put_bytes(&c->out, settings.instance, strlen(settings.instance));
  put_bytes(&c->out, "vmux-supervisor " SUPERVISOR_VERSION, strlen("vmux-supervisor " SUPERVISOR_VERSION));
  frame_end(&c->out);
}

// The place of whoever has been silent for longest: a client says something every minute, or is gone.
static struct conn *silent_place(void) {
  struct conn *found = NULL;
  for (int i = 0; i < MAX_CONNS; i++)
    if (conns[i].greeted && (!found || conns[i].heard_ms < found->heard_ms)) found = &conns[i];
  uint64_t silent_ms = settings.lease_ms && settings.lease_ms < SILENT_MS ? settings.lease_ms : SILENT_MS;
  if (!found || now_ms() - found->heard_ms < silent_ms) return NULL;
  conn_close(found);
  return found;
}

struct conn *conn_new(int fd) {
  struct conn *c = NULL;
  for (int i = 0; i < MAX_CONNS && !c; i++)
    if (!conns[i].used) c = &conns[i];
  if (!c) c = silent_place();
  if (!c) return NULL;
  uint8_t *in = c->in, *out = c->out.base;
  memset(c, 0, sizeof *c);
  c->in = in ? in : reserve(IN_SIZE);
  c->out.base = out ? out : reserve(OUT_SIZE);
  c->out.size = OUT_SIZE;
  c->used = true;
  list_init(&c->reqs);
  list_init(&c->ready);
  list_init(&c->pending);
  struct ucred peer = {0};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) c->peer = peer.pid;
  loop_add(&c->source, fd, EPOLLIN, on_conn);
  timer_set(&c->hello_timer, HELLO_WITHIN_MS, hello_timeout);
  say_hello(c);
  conn_pending(c);
  return c;
}

static void listen_again(struct timer *t) {
  (void)t;
  loop_set(&listener, EPOLLIN);
}

static void on_listener(struct source *s, uint32_t events) {
  static struct timer pause;
  (void)events;
  int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // Out of descriptors: the waiting connection would be reported for ever.
    say("accept: %s", strerror(errno));
    loop_set(s, 0);
    timer_set(&pause, 1000, listen_again);
    return;
  }
  if (!conn_new(fd)) close(fd);
}

void conns_init(int listen_fd) {
  req_pool = reserve(sizeof *req_pool * MAX_REQS);
  list_init(&pending);
  for (int i = 0; i < BUCKETS; i++) list_init(&buckets[i]);
  if (listen_fd < 0) return;
  int flags = fcntl(listen_fd, F_GETFL);
  if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
      !loop_add(&listener, listen_fd, EPOLLIN, on_listener))
    die(2, "the listening descriptor cannot be used: %s", strerror(errno));
}

bool conns_peer(pid_t pid) {
  for (int i = 0; i < MAX_CONNS; i++)
    if (conns[i].used && conns[i].peer == pid) return true;
  return false;
}

uint64_t conns_heard_ms(void) {
  uint64_t heard_ms = 0;
  for (int i = 0; i < MAX_CONNS; i++)
    if (conns[i].used && conns[i].greeted && !conns[i].closing && conns[i].heard_ms > heard_ms) heard_ms = conns[i].heard_ms;
  return heard_ms;
}

uint32_t conns_greeted(void) {
  uint32_t n = 0;
  for (int i = 0; i < MAX_CONNS; i++) n += conns[i].used && conns[i].greeted && !conns[i].closing;
  return n;
}

void conns_drain_and_close(void) {
  for (int i = 0; i < MAX_CONNS; i++) {
    if (!conns[i].used) continue;
    produce(&conns[i]);
    send_out(&conns[i]);
    conn_close(&conns[i]);
  }
}
