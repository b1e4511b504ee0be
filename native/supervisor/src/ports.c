// Listening TCP ports, by asking the kernel (NETLINK_SOCK_DIAG) or, without it, /proc/net.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "own-sockets.h"

enum { SCAN_MS = 250, MAX_PORTS = 1024, TCP_LISTEN_STATE = 10, V4 = 1, V6 = 2 };

struct port {
  uint16_t number;
  uint8_t families, seen_families;
  bool used, open, beyond_loopback, seen_beyond;
  uint8_t missed;
  uint64_t change;
};

static struct port ports[MAX_PORTS];
static uint64_t changes;
static struct link watchers = {&watchers, &watchers};
static struct timer scan_timer;
// Ports on which somebody else listens too: it might be they who answer there.
static uint8_t foreign[65536 / 8];

static bool told_to_all(const struct port *p) {
  list_each(l, &watchers) {
    if (container_of(l, struct req, watching)->cursor < p->change) return false;
  }
  return true;
}

// A bridge of ours listens there (bridge.c): nothing of the workload's.
static bool bridged(uint16_t number) {
  char mark[128];
  if (!settings.listen_path) return false;
  snprintf(mark, sizeof mark, "%s.%u", settings.listen_path, number);
  int fd = open(mark, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  // One that was killed holds its mark no more.
  bool left = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (left) unlink(mark);
  close(fd);
  return !left;
}

static void seen(uint16_t number, uint8_t family, bool beyond_loopback) {
  struct port *free_place = NULL;
  for (int i = 0; i < MAX_PORTS; i++) {
    struct port *p = &ports[i];
    if (p->used && p->number == number) {
      if (!p->open && bridged(number)) return;
      p->seen_families |= family;
      p->seen_beyond |= beyond_loopback;
      return;
    }
    if (!free_place && (!p->used || (!p->open && !p->seen_families && told_to_all(p)))) free_place = p;
  }
  if (free_place && !bridged(number))
    *free_place = (struct port){.number = number, .used = true, .seen_families = family, .seen_beyond = beyond_loopback};
}

static void heard(uint16_t number, uint8_t family, bool beyond_loopback, uint64_t inode) {
  if (settings.own_ports && !own_sockets_have(inode)) foreign[number / 8] |= (uint8_t)(1 << number % 8);
  else seen(number, family, beyond_loopback);
}

static bool is_loopback(int family, const void *address) {
  static const uint8_t v6[16] = {[15] = 1}, mapped[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};
  const uint8_t *a = address;
  if (family == AF_INET) return a[0] == 127;
  return memcmp(a, v6, 16) == 0 || memcmp(a, mapped, 13) == 0;
}

static bool ask_kernel(int fd, uint8_t family) {
  struct {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
  } ask = {.header = {.nlmsg_len = sizeof ask, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
           .body = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = 1 << TCP_LISTEN_STATE}};
  if (send(fd, &ask, sizeof ask, 0) < 0) return false;
  for (;;) {
    static char buffer[32768] __attribute__((aligned(8)));
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    unsigned left = (unsigned)n;
    for (struct nlmsghdr *h = (struct nlmsghdr *)buffer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_type == NLMSG_DONE) return true;
      if (h->nlmsg_type == NLMSG_ERROR) return false;
      struct inet_diag_msg *m = NLMSG_DATA(h);
      if (h->nlmsg_len < NLMSG_LENGTH(sizeof *m) || m->id.idiag_sport == 0) continue;
      heard(ntohs(m->id.idiag_sport), family == AF_INET ? V4 : V6, !is_loopback(family, m->id.idiag_src), m->idiag_inode);
    }
  }
}

static bool scan_kernel(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return false;
  struct timeval limit = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  bool v4 = ask_kernel(fd, AF_INET);
  // Without IPv6 in the kernel there is nothing to ask there.
  bool v6 = ask_kernel(fd, AF_INET6);
  close(fd);
  return v4 || v6;
}

static void scan_proc(const char *path, uint8_t family) {
  FILE *f = fopen(path, "re");
  if (!f) return;
  char line[512];
  while (fgets(line, sizeof line, f)) {
    char address[33];
    unsigned port, state, word[4] = {0};
    unsigned long long inode = 0;
    if (sscanf(line, " %*d: %32[0-9A-F]:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %llu", address, &port, &state, &inode) < 3) continue;
    if (state != TCP_LISTEN_STATE || port == 0 || port > 65535) continue;
    int words = sscanf(address, "%8x%8x%8x%8x", &word[0], &word[1], &word[2], &word[3]);
    if (words == (family == V4 ? 1 : 4)) heard((uint16_t)port, family, !is_loopback(family == V4 ? AF_INET : AF_INET6, word), inode);
  }
  fclose(f);
}

static void look(void) {
  for (int i = 0; i < MAX_PORTS; i++) ports[i].seen_families = 0, ports[i].seen_beyond = false;
  memset(foreign, 0, sizeof foreign);
  if (settings.own_ports) own_sockets_look();
  if (!scan_kernel()) {
    scan_proc("/proc/net/tcp", V4);
    scan_proc("/proc/net/tcp6", V6);
  }
  for (int i = 0; i < MAX_PORTS; i++)
    if (foreign[ports[i].number / 8] & (1 << ports[i].number % 8)) ports[i].seen_families = 0;
}

static void scan(void) {
  look();
  bool changed = false;
  for (int i = 0; i < MAX_PORTS; i++) {
    struct port *p = &ports[i];
    if (!p->used) continue;
    bool there = p->seen_families != 0;
    p->missed = there ? 0 : (uint8_t)(p->missed < 2 ? p->missed + 1 : 2);
    bool opened = there && !p->open, closed = p->open && p->missed == 2;
    bool moved = there && p->open && (p->families != p->seen_families || p->beyond_loopback != p->seen_beyond);
    if (!opened && !closed && !moved) continue;
    p->open = !closed;
    if (there) {
      p->families = p->seen_families;
      p->beyond_loopback = p->seen_beyond;
    }
    p->change = ++changes;
    changed = true;
  }
  if (!changed) return;
  list_each(l, &watchers) req_ready(container_of(l, struct req, watching));
}

bool port_is_ours(uint16_t port) {
  look();
  for (int i = 0; i < MAX_PORTS; i++)
    if (ports[i].used && ports[i].number == port) return ports[i].seen_families != 0;
  return false;
}

static void scan_again(struct timer *t) {
  if (list_empty(&watchers)) return;
  scan();
  timer_set(t, SCAN_MS, scan_again);
}

static enum produced produce_ports(struct req *q) {
  struct port *next = NULL;
  for (int i = 0; i < MAX_PORTS; i++) {
    struct port *p = &ports[i];
    bool wanted = p->used && p->change > q->cursor && (p->open || q->caught_up);
    if (wanted && (!next || p->change < next->change)) next = p;
  }
  if (next && (q->caught_up || next->change <= q->until)) {
    struct buffer *b = &q->conn->out;
    q->cursor = next->change;
    frame_begin(b, PORT, q->id);
    put_u16(b, next->number);
    put_u8(b, next->open);
    put_u8(b, next->families);
    put_u8(b, !next->beyond_loopback);
    frame_end(b);
    return P_AGAIN;
  }
  if (q->caught_up) return P_IDLE;
  answer_ok(q->conn, q->id, 0);
  q->caught_up = true;
  q->cursor = q->until;
  return q->follow ? P_AGAIN : P_DONE;
}

bool request_ports(struct conn *c, uint32_t id, struct reader *r) {
  uint8_t follow = get_u8(r);
  if (!reader_done(r) || follow > 1) return false;
  struct req *q = req_new(c, id, PORTS);
  if (!q) return true;
  q->produce = produce_ports;
  q->follow = follow;
  scan();
  // Nobody was looking: what closed in the meantime is not shown as open for one scan more.
  if (list_empty(&watchers)) scan();
  q->until = changes;
  list_append(&watchers, &q->watching);
  if (!scan_timer.armed) timer_set(&scan_timer, SCAN_MS, scan_again);
  req_ready(q);
  return true;
}
