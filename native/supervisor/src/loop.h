// One thread, one epoll: descriptors that become ready, timers, and what is done once per turn.
#pragma once

#include "base.h"

// Handlers never trust `events` alone: a source may be called once after it was re-used, so they
// read or write without blocking and look at the result.
struct source {
  int fd;
  uint32_t events;
  void (*ready)(struct source *, uint32_t events);
};

struct timer {
  struct link link;
  uint64_t at_ms;
  bool armed;
  void (*fire)(struct timer *);
};

void loop_init(void);
bool loop_add(struct source *, int fd, uint32_t events, void (*ready)(struct source *, uint32_t));
// Zero events takes the source out of the set: a hang-up would otherwise be reported for ever.
void loop_set(struct source *, uint32_t events);
// Takes the source out and closes its descriptor.
void loop_close(struct source *);
void timer_set(struct timer *, uint64_t after_ms, void (*fire)(struct timer *));
void timer_clear(struct timer *);
// There is work left for the next turn: it does not wait.
void loop_soon(void);
// Called after every turn, before waiting again.
void loop_at_turn_end(void (*work)(void));
void loop_turn(int max_wait_ms);
void loop_run(void) __attribute__((noreturn));
