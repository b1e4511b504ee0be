// One WebSocket ⇄ the supervisor's unix socket, for providers that carry WebSockets to a port of the sandbox.
#include "bridge.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base.h"
#include "pipe.h"
#include "websocket.h"

enum { ASKED_WITHIN_S = 30, HEAD_WITHIN_S = 5, MAX_HEAD = 16384, MAX_SECRET = 128, MIN_SECRET = 32 };

static char mark[128];
static char secret[MAX_SECRET + 1];

static void tidy(void) {
  if (*mark) unlink(mark);
}

static void leave(int sig) {
  (void)sig;
  tidy();
  _exit(5);
}

// Whoever may connect to a port inside the sandbox does not know it: it comes with our input, not our arguments.
static void read_secret(void) {
  size_t len = 0;
  for (;;) {
    char c;
    ssize_t n = read(0, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) die(2, "the secret is missing");
    if (c == '\n') break;
    if (len == MAX_SECRET || c <= ' ' || c > '~') die(2, "the secret cannot be used");
    secret[len++] = c;
  }
  if (len < MIN_SECRET) die(2, "the secret is too short");
}

static int listen_anywhere(const char *socket_path) {
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_storage bound;
  socklen_t size = sizeof bound;
  int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 || bind(fd, (struct sockaddr *)&v6, sizeof v6) < 0))
    close_fd(&fd);
  if (fd < 0) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&v4, sizeof v4) < 0) die(4, "no port: %s", strerror(errno));
  }
  if (getsockname(fd, (struct sockaddr *)&bound, &size) < 0) die(4, "no port: %s", strerror(errno));
  unsigned port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port : ((struct sockaddr_in *)&bound)->sin_port);
  // Before it listens: the supervisor tells nobody of a port that is marked so.
  if ((size_t)snprintf(mark, sizeof mark, "%s.%u", socket_path, port) >= sizeof mark) die(2, "the socket's path is too long");
  int marked = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  // Held to our end, however that comes.
  if (marked < 0 || flock(marked, LOCK_EX) < 0) die(4, "cannot make %s: %s", mark, strerror(errno));
  if (listen(fd, 8) < 0) die(4, "cannot listen: %s", strerror(errno));
  printf("%u\n", port);
  fflush(stdout);
  return fd;
}

static bool same(const char *given, const char *wanted) {
  size_t len = strlen(wanted);
  if (strlen(given) != len) return false;
  unsigned char differ = 0;
  for (size_t i = 0; i < len; i++) differ |= (unsigned char)(given[i] ^ wanted[i]);
  return differ == 0;
}

// The value of a field of the head, whose lines end in NUL; the first one counts.
static const char *field(const char *head, const char *end, const char *name) {
  size_t len = strlen(name);
  for (const char *line = head; line < end; line += strlen(line) + 1) {
    if (strncasecmp(line, name, len) != 0 || line[len] != ':') continue;
    const char *value = line + len + 1;
    while (*value == ' ' || *value == '\t') value++;
    return value;
  }
  return "";
}

static bool read_head(int fd, char *head, size_t *len) {
  struct timeval limit = {.tv_sec = HEAD_WITHIN_S};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  uint64_t until = now_ms() + HEAD_WITHIN_S * 1000;
  for (*len = 0; *len < MAX_HEAD && now_ms() < until;) {
    ssize_t n = read(fd, head + *len, MAX_HEAD - *len);
    if (n <= 0) return false;
    *len += (size_t)n;
    // A client sends nothing more before it is answered.
    if (*len >= 4 && memcmp(head + *len - 4, "\r\n\r\n", 4) == 0) return memchr(head, 0, *len) == NULL;
  }
  return false;
}

static void answer(int fd, const char *text) {
  if (write(fd, text, strlen(text)) < 0) return;
}

// True: it is who it should be, and wants a WebSocket.
static bool welcome(int fd, char accept[WEBSOCKET_ACCEPT]) {
  static char head[MAX_HEAD + 1];
  size_t len;
  if (!read_head(fd, head, &len)) return false;
  for (size_t i = 0; i < len; i++)
    if (head[i] == '\r' || head[i] == '\n') head[i] = 0;
  head[len] = 0;
  const char *key = field(head, head + len, "sec-websocket-key");
  if (!same(field(head, head + len, "x-vmux-bridge"), secret)) {
    answer(fd, "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    return false;
  }
  if (strncmp(head, "GET ", 4) != 0 || strcasecmp(field(head, head + len, "upgrade"), "websocket") != 0 ||
      strcmp(field(head, head + len, "sec-websocket-version"), "13") != 0 || strlen(key) != 24) {
    answer(fd, "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    return false;
  }
  websocket_accept(key, accept);
  return true;
}

static void turn_away(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  close_fd(&fd);
}

static void carry(int listener, int client, int supervisor) {
  static struct websocket_in up;
  static struct websocket_out down;
  for (;;) {
    bool up_full = up.start < up.end, down_full = down.start < down.end || down.pong_owed;
    struct pollfd p[3] = {
        {.fd = listener, .events = POLLIN},
        {.fd = client, .events = (short)((up_full ? 0 : POLLIN) | (down_full ? POLLOUT : 0))},
        {.fd = supervisor, .events = (short)((down_full ? 0 : POLLIN) | (up_full ? POLLOUT : 0))},
    };
    for (int i = 1; i < 3; i++)
      if (p[i].events == 0) p[i].fd = -1;
    if (poll(p, 3, -1) < 0) {
      if (errno == EINTR) continue;
      die(4, "poll: %s", strerror(errno));
    }
    if (p[0].revents) turn_away(listener);
    if (!up_full && p[1].revents && !websocket_read(&up, client, &down)) return;
    if (!down_full && p[2].revents && !websocket_fill(&down, supervisor)) return;
    if (!websocket_write(&down, client) || !websocket_flush(&up, supervisor)) return;
  }
}

int bridge_main(const char *socket_path) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGALRM, leave);
  signal(SIGTERM, leave);
  signal(SIGHUP, leave);
  atexit(tidy);
  alarm(ASKED_WITHIN_S);
  read_secret();
  int listener = listen_anywhere(socket_path);
  int client;
  char accepted[WEBSOCKET_ACCEPT];
  for (;;) {
    client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0 && errno != EINTR && errno != ECONNABORTED) break;
    if (client >= 0 && welcome(client, accepted)) break;
    close_fd(&client);
  }
  if (client < 0) die(4, "cannot accept: %s", strerror(errno));
  int supervisor = supervisor_connect(socket_path);
  alarm(0);
  int on = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  char head[256];
  snprintf(head, sizeof head, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n", accepted);
  answer(client, head);
  if (fcntl(client, F_SETFL, O_NONBLOCK) == 0 && fcntl(supervisor, F_SETFL, O_NONBLOCK) == 0) carry(listener, client, supervisor);
  return 0;
}
