#include "freeze.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conn.h"
#include "procs.h"
#include "worker.h"

enum { MAX_PROCS = 65536, LOOK_MS = 1, GIVE_UP_MS = 5000, STUCK_AFTER_MS = 500, SILENCE_MS = 8000 };

struct stopped {
  pid_t pid;
  uint64_t started;
};

static enum { RUNNING, STOPPING, FROZEN } state;
static struct stopped *stopped;
static size_t stopped_count;
static struct proc *procs;
static bool held;
static uint32_t holders;
static uint64_t begun_ms;
static int failure;
static struct timer look_timer, silence_timer;
static struct link waiting = {&waiting, &waiting};

bool frozen(void) { return state != RUNNING; }

static bool ours(pid_t pid, uint64_t started) {
  for (size_t i = 0; i < stopped_count; i++)
    if (stopped[i].pid == pid && stopped[i].started == started) return true;
  return false;
}

static bool stands(char s, bool late) { return s == 'T' || s == 't' || s == 'Z' || s == 'X' || (late && s == 'D'); }

// Every thread: the first one may stand, or be gone, while others still run.
static bool all_threads_stand(const struct proc *p, bool late) {
  char path[64], text[512];
  if (p->threads <= 1) return stands(p->state, late);
  snprintf(path, sizeof path, "/proc/%d/task", p->pid);
  DIR *d = opendir(path);
  if (!d) return true;  // ended meanwhile
  bool all = true;
  for (struct dirent *e; all && (e = readdir(d));) {
    if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", p->pid, e->d_name);
    if (read_small_file(path, text, sizeof text) <= 0) continue;
    char *rest = strrchr(text, ')');
    all = rest && rest[1] == ' ' && stands(rest[2], late);
  }
  closedir(d);
  return all;
}

// Parents before children, so that no shell sees a child stop: a parent is never the younger one.
static int by_age(const void *a, const void *b) {
  const struct proc *x = a, *y = b;
  if (x->started != y->started) return x->started < y->started ? -1 : 1;
  return x->pid < y->pid ? -1 : x->pid > y->pid;
}

// Stops what runs. True when nothing does any more.
static bool stop_all(void) {
  size_t count;
  bool late = now_ms() - begun_ms > STUCK_AFTER_MS, all = true;
  if (!procs_read(procs, MAX_PROCS, &count)) {
    failure = ENOSYS;
    return false;
  }
  if (count == MAX_PROCS) {
    failure = E2BIG;
    return false;
  }
  count = procs_of_workload(procs, count);
  qsort(procs, count, sizeof *procs, by_age);
  for (size_t i = 0; i < count; i++) {
    struct proc *p = &procs[i];
    if (worker_reads(p->pid)) continue;
    if (ours(p->pid, p->started)) {
      // A process in the middle of a system call that does not end cannot run anything else either.
      all &= all_threads_stand(p, late);
    } else if (!all_threads_stand(p, false)) {
      all = false;
      if (kill(p->pid, SIGSTOP) == 0) stopped[stopped_count++] = (struct stopped){p->pid, p->started};
      if (stopped_count == MAX_PROCS) {
        failure = E2BIG;
        return false;
      }
    }
  }
  return all;
}

static void go_on(void) {
  size_t count;
  timer_clear(&look_timer);
  if (procs_read(procs, MAX_PROCS, &count)) {
    for (size_t i = stopped_count; i-- > 0;)
      for (size_t j = 0; j < count; j++)
        // A number used again is another process.
        if (procs[j].pid == stopped[i].pid && procs[j].started == stopped[i].started) kill(procs[j].pid, SIGCONT);
  } else {
    for (size_t i = stopped_count; i-- > 0;) kill(stopped[i].pid, SIGCONT);
  }
  stopped_count = 0;
  state = RUNNING;
  exec_thawed();
}

static void tell_waiting(void) {
  list_each(l, &waiting) req_ready(container_of(l, struct req, watching));
}

static void look(struct timer *t) {
  if (stop_all()) {
    state = FROZEN;
    tell_waiting();
    return;
  }
  if (!failure && now_ms() - begun_ms > GIVE_UP_MS) failure = ETIMEDOUT;
  if (failure) {
    go_on();
    held = false;
    tell_waiting();
    return;
  }
  timer_set(t, LOOK_MS, look);
}

// A pipe may outlive the runner behind it (an exec of a provider that nobody ends): who holds everything
// still and says nothing for long is gone.
static void listen_to_holders(struct timer *t) {
  if (state == RUNNING || !holders) return;
  list_each(l, &waiting) {
    struct req *q = container_of(l, struct req, watching);
    if (!q->follow || now_ms() - q->conn->heard_ms < SILENCE_MS) continue;
    conn_fail(q->conn, E_ENDED, "silent while everything stood still");
    break;
  }
  timer_set(t, SILENCE_MS / 8, listen_to_holders);
}

static void release(struct req *q) {
  list_remove(&q->watching);
  if (!q->follow) return;
  q->follow = false;
  if (--holders == 0 && !held && state != RUNNING) go_on();
}

static enum produced produce_freeze(struct req *q) {
  if (state == FROZEN && !q->caught_up) {
    q->caught_up = true;
    answer_ok(q->conn, q->id, stopped_count);
    // One that is held outlives its request; the other ends with it.
    return q->follow ? P_IDLE : P_DONE;
  }
  if (state == RUNNING && !q->caught_up) {
    answer_error(q->conn, q->id, E_SYSTEM, failure, 0, "the processes cannot be stopped");
    return P_DONE;
  }
  // Thawed by somebody else.
  if (state == RUNNING) {
    answer_error(q->conn, q->id, E_ENDED, 0, 0, "thawed");
    return P_DONE;
  }
  return P_IDLE;
}

bool request_freeze(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  uint8_t hold = type == FREEZE ? get_u8(r) : 0;
  if (!reader_done(r)) return false;
  if (type == THAW) {
    freeze_end();
    answer_ok(c, id, 0);
    return true;
  }
  struct req *q = req_new(c, id, FREEZE);
  if (!q) return true;
  if (!procs) {
    procs = reserve(MAX_PROCS * sizeof *procs);
    stopped = reserve(MAX_PROCS * sizeof *stopped);
  }
  q->produce = produce_freeze;
  q->abandon = release;
  q->follow = !hold;
  list_append(&waiting, &q->watching);
  if (hold) held = true;
  else {
    holders++;
    timer_set(&silence_timer, SILENCE_MS / 8, listen_to_holders);
  }
  if (state == RUNNING) {
    state = STOPPING;
    failure = 0;
    begun_ms = now_ms();
    look(&look_timer);
  } else if (state == FROZEN) {
    req_ready(q);
  }
  return true;
}

void freeze_end(void) {
  held = false;
  if (state == RUNNING) return;
  go_on();
  tell_waiting();
}

void freeze_forget(void) {
  held = false;
  timer_clear(&look_timer);
  stopped_count = 0;
  state = RUNNING;
  exec_thawed();
  tell_waiting();
}

static uint64_t ns_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t since_ns;
static int64_t lowest_offset;
static bool begun;

// The wall clock may be set back while the sandbox lives; the other never is.
static int64_t clock_offset(void) { return (int64_t)(ns_of(CLOCK_REALTIME) - ns_of(CLOCK_BOOTTIME)); }

uint64_t record_since_ns(void) {
  static int64_t first_offset;
  if (!since_ns) {
    since_ns = settings.since_ns ? settings.since_ns : ns_of(CLOCK_REALTIME);
    first_offset = lowest_offset = clock_offset();
  }
  int64_t now = clock_offset();
  if (now < lowest_offset) lowest_offset = now;
  int64_t back = first_offset - lowest_offset;
  // Below a millisecond it is two clocks read one after the other.
  return since_ns - (back > 1000000 ? (uint64_t)back : 0);
}

void record_begin(void) {
  uint64_t since = record_since_ns();
  while (!begun && ns_of(CLOCK_REALTIME_COARSE) <= since) usleep(200);
  begun = true;
}
