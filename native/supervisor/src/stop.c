// A clean stop: TERM to everything, KILL after the grace, ends journalled. And the lease.
#include "stop.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "conn.h"
#include "freeze.h"
#include "procs.h"

enum { LOOK_MS = 20, WAIT_AFTER_KILL = 250, LAST_CALL_MS = 60000 };

static bool stop_begun, stop_done, quit_after, last_call;
static uint64_t kill_at_ms;
static int looks_after_kill;
static struct timer look_timer, lease_timer;
static struct link waiting = {&waiting, &waiting};

bool stopping(void) { return stop_begun; }

// How many of the workload's processes there are; each gets the signal (0: none).
static size_t signal_workload(int signal) {
  static struct proc list[4096];
  size_t count;
  if (!procs_read(list, 4096, &count)) {
    list_each(l, &exec_running) exec_signal(container_of(l, struct exec, running), signal);
    if (settings.pid1 && signal) kill(-1, signal);
    return 0;
  }
  count = procs_of_workload(list, count);
  for (size_t i = 0; signal && i < count; i++) {
    kill(list[i].pid, signal);
    // A stopped process takes no TERM until it goes on.
    if (signal == SIGTERM) kill(list[i].pid, SIGCONT);
  }
  return count;
}

static void quit(void) __attribute__((noreturn));
static void quit(void) {
  conns_drain_and_close();
  exit(0);
}

static void look(struct timer *t) {
  bool kill_now = now_ms() >= kill_at_ms;
  size_t left = signal_workload(kill_now ? SIGKILL : 0);
  if (kill_now) looks_after_kill++;
  // Processes that do not die even of KILL (stuck in the kernel) do not hold up the stop for ever.
  bool gone = left == 0 || looks_after_kill > WAIT_AFTER_KILL;
  if (exec_running_count > 0 || !gone) {
    timer_set(t, LOOK_MS, look);
    return;
  }
  exec_sync();
  stop_done = true;
  list_each(l, &waiting) req_ready(container_of(l, struct req, watching));
  if (quit_after) quit();
}

void stop_begin(uint64_t grace_ms, bool then_quit) {
  quit_after |= then_quit;
  uint64_t at = now_ms() + grace_ms;
  if (!stop_begun || at < kill_at_ms) kill_at_ms = at;
  stop_done = false;
  if (!stop_begun) looks_after_kill = 0;
  stop_begun = true;
  exec_sync();
  // What stands still and is to be killed at once does not run on in between.
  bool at_once = frozen() && grace_ms == 0;
  if (at_once) freeze_forget();
  else freeze_end();
  signal_workload(at_once ? SIGKILL : SIGTERM);
  timer_set(&look_timer, 1, look);
}

static enum produced produce_stop(struct req *q) {
  if (!stop_done) return P_IDLE;
  answer_ok(q->conn, q->id, 0);
  return P_DONE;
}

static void quit_soon(struct timer *t) {
  (void)t;
  quit();
}

bool request_stop(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  uint32_t grace_ms = type == STOP ? get_u32(r) : 0;
  if (!reader_done(r)) return false;
  if (type == QUIT) {
    static struct timer soon;
    answer_ok(c, id, 0);
    timer_set(&soon, 1, quit_soon);
    return true;
  }
  struct req *q = req_new(c, id, STOP);
  if (!q) return true;
  q->produce = produce_stop;
  list_append(&waiting, &q->watching);
  stop_begin(grace_ms, false);
  return true;
}

static void lease_over(struct timer *t) {
  // A pipe may outlive the runner behind it (an exec of a provider that nobody ends): what counts is what is heard.
  uint64_t quiet_ms = now_ms() - conns_heard_ms();
  if (quiet_ms < settings.lease_ms) last_call = false;
  else if (conns_greeted() == 0 || last_call) {
    say("no runner for %llu s: stopping", (unsigned long long)(settings.lease_ms / 1000));
    stop_begin(settings.stop_grace_ms, true);
    return;
  } else last_call = true;
  // Who stood still with us, and has not been read since, still has its say.
  uint64_t call_ms = settings.lease_ms < LAST_CALL_MS ? settings.lease_ms : LAST_CALL_MS;
  timer_set(t, last_call ? call_ms : settings.lease_ms - quiet_ms, lease_over);
}

void lease_renew(void) {
  if (settings.lease_ms == 0 || quit_after) return;
  last_call = false;
  timer_set(&lease_timer, settings.lease_ms, lease_over);
}
