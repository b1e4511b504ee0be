#include "loop.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static int epoll_fd = -1;
static struct link timers;
static void (*turn_end)(void);
static bool soon;

void loop_init(void) {
  list_init(&timers);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) die(4, "epoll: %s", strerror(errno));
}

bool loop_add(struct source *s, int fd, uint32_t events, void (*ready)(struct source *, uint32_t)) {
  s->fd = fd;
  s->ready = ready;
  s->events = 0;
  loop_set(s, events);
  return events == 0 || s->events == events;
}

void loop_set(struct source *s, uint32_t events) {
  if (s->fd < 0 || s->events == events) return;
  struct epoll_event e = {.events = events, .data.ptr = s};
  int op = events == 0 ? EPOLL_CTL_DEL : s->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(epoll_fd, op, s->fd, &e) == 0) s->events = events;
  else say("epoll_ctl: %s", strerror(errno));
}

void loop_close(struct source *s) {
  if (s->fd < 0) return;
  loop_set(s, 0);
  close_fd(&s->fd);
}

void timer_set(struct timer *t, uint64_t after_ms, void (*fire)(struct timer *)) {
  timer_clear(t);
  t->at_ms = now_ms() + after_ms;
  t->fire = fire;
  t->armed = true;
  struct link *at = timers.prev;
  while (at != &timers && container_of(at, struct timer, link)->at_ms > t->at_ms) at = at->prev;
  t->link.prev = at;
  t->link.next = at->next;
  at->next->prev = &t->link;
  at->next = &t->link;
}

void timer_clear(struct timer *t) {
  if (!t->armed) return;
  list_remove(&t->link);
  t->armed = false;
}

void loop_soon(void) { soon = true; }
void loop_at_turn_end(void (*work)(void)) { turn_end = work; }

static int wait_for(int max_wait_ms) {
  if (list_empty(&timers)) return max_wait_ms;
  uint64_t at = container_of(timers.next, struct timer, link)->at_ms, now = now_ms();
  uint64_t wait = at > now ? at - now : 0;
  if (wait > 3600000) wait = 3600000;
  return max_wait_ms >= 0 && (uint64_t)max_wait_ms < wait ? max_wait_ms : (int)wait;
}

void loop_turn(int max_wait_ms) {
  struct epoll_event ready[64];
  int n = epoll_wait(epoll_fd, ready, 64, soon ? 0 : wait_for(max_wait_ms));
  if (n < 0 && errno != EINTR) die(4, "epoll_wait: %s", strerror(errno));
  for (int i = 0; i < n; i++) {
    struct source *s = ready[i].data.ptr;
    if (s->fd >= 0 && s->events != 0) s->ready(s, ready[i].events);
  }
  uint64_t now = now_ms();
  while (!list_empty(&timers)) {
    struct timer *t = container_of(timers.next, struct timer, link);
    if (t->at_ms > now) break;
    timer_clear(t);
    t->fire(t);
  }
  soon = false;
  if (turn_end) turn_end();
}

void loop_run(void) {
  for (;;) loop_turn(-1);
}
