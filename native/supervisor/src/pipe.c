// stdin and stdout ⇄ a unix socket, so that any exec's stdio is a pipe to the supervisor.
#include "pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base.h"

struct half {
  int from, to;
  bool open;
  size_t start, end;
  char buffer[65536];
};

// False: this direction is over.
static bool move(struct half *h, bool readable, bool writable) {
  if (readable && h->start == h->end) {
    ssize_t n = read(h->from, h->buffer, sizeof h->buffer);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    h->start = 0;
    h->end = (size_t)n;
    writable = true;
  }
  if (writable && h->start < h->end) {
    ssize_t n = write(h->to, h->buffer + h->start, h->end - h->start);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    h->start += (size_t)n;
  }
  return true;
}

// A sandbox that has just been started may not listen yet.
static bool connected(int fd, const struct sockaddr_un *address) {
  for (int left = 500; connect(fd, (const struct sockaddr *)address, sizeof *address) < 0; left--) {
    if ((errno != ENOENT && errno != ECONNREFUSED) || left == 0) return false;
    poll(NULL, 0, 10);
  }
  return true;
}

int supervisor_connect(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) die(2, "the socket's path is too long");
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || !connected(fd, &address))
    die(4, "cannot connect to %s: %s", path, strerror(errno));
  return fd;
}

int pipe_main(const char *path) {
  static struct half in = {.from = 0, .open = true}, out = {.to = 1, .open = true};
  signal(SIGPIPE, SIG_IGN);
  int fd = supervisor_connect(path);
  if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) die(4, "%s", strerror(errno));
  in.to = out.from = fd;
  while (out.open) {
    struct pollfd p[3] = {
        {.fd = in.open && in.start == in.end ? 0 : -1, .events = POLLIN},
        {.fd = fd, .events = (short)((out.start == out.end ? POLLIN : 0) | (in.start < in.end ? POLLOUT : 0))},
        {.fd = out.start < out.end ? 1 : -1, .events = POLLOUT},
    };
    if (p[1].events == 0) p[1].fd = -1;
    if (poll(p, 3, -1) < 0 && errno != EINTR) die(4, "poll: %s", strerror(errno));
    if (in.open && !move(&in, p[0].revents != 0, p[1].revents & POLLOUT)) {
      in.open = false;
      in.start = in.end;
      shutdown(fd, SHUT_WR);
    }
    bool readable = p[1].revents & (POLLIN | POLLHUP | POLLERR);
    if (!move(&out, readable && out.start == out.end, p[2].revents != 0)) out.open = false;
  }
  return 0;
}
