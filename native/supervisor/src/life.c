// The life of an exec: journalled start, fork, cancel, reaping, journalled end.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "exec.h"
#include "freeze.h"

enum { SYNC_RETRY_MS = 1000, SPECS_HELD = 4 << 20 };

static struct link waiting = {&waiting, &waiting};
// Journalled while everything stands still: they start when it goes on.
static struct link held = {&held, &held};
static size_t specs_held;
static struct timer sync_retry;

static void wait_for_sync(struct exec *x) {
  if (x->waits_for_sync) return;
  x->waits_for_sync = true;
  list_append(&waiting, &x->synced);
}

int exec_start(struct exec *x, struct spec *spec) {
  x->state = X_STARTING;
  x->started_us = now_us();
  // An end must find room even on a full disk: it is set aside before the start is written.
  int failed = journal_make_room(exec_running_count + 2);
  struct record r = exec_record(x, R_START);
  if (!failed) failed = journal_append(&r, NULL);
  if (failed) {
    exec_forget(x);
    return failed;
  }
  x->spec = spec;
  specs_held += spec->bytes;
  x->is_running = true;
  list_append(&exec_running, &x->running);
  exec_running_count++;
  wait_for_sync(x);
  if (specs_held > SPECS_HELD) exec_sync();
  return 0;
}

int exec_cancel_unseen(struct exec *x) {
  x->state = X_CANCELLED;
  x->ended_us = now_us();
  struct record r = exec_record(x, R_CANCELLED);
  int failed = journal_append(&r, NULL);
  if (failed) exec_forget(x);
  else wait_for_sync(x);
  return failed;
}

static void append_end(struct exec *x) {
  struct record r = exec_record(x, R_END);
  int failed = journal_append(&r, NULL);
  if (failed) say("the end of an exec cannot be journalled yet: %s", strerror(failed));
  x->end_unwritten = failed != 0;
  wait_for_sync(x);
}

static void end(struct exec *x, uint8_t state, int32_t code, uint8_t stage) {
  timer_clear(&x->grace);
  timer_clear(&x->kill_timer);
  loop_close(&x->in);
  loop_close(&x->spawn);
  output_close_all(x);
  list_remove(&x->running);
  x->is_running = false;
  exec_running_count--;
  x->ended_us = now_us();
  x->state = state;
  x->code = code;
  x->stage = stage;
  x->flags &= (uint8_t)~XF_STDIN;
  append_end(x);
}

void exec_maybe_end(struct exec *x) {
  bool busy = x->spawn.fd >= 0 || x->out[0].open || x->out[1].open || x->resize.length;
  if (!x->is_running || !x->reaped || busy) return;
  if (x->stage) {
    end(x, X_FAILED, x->code, x->stage);
  } else if (WIFSIGNALED(x->wait_status)) {
    if (WCOREDUMP(x->wait_status)) x->flags |= XF_CORE;
    end(x, X_SIGNALED, WTERMSIG(x->wait_status), 0);
  } else {
    end(x, X_EXITED, WEXITSTATUS(x->wait_status), 0);
  }
}

static void after_sync(struct exec *x) {
  x->waits_for_sync = false;
  list_remove(&x->synced);
  if (x->end_unwritten) {
    append_end(x);
  } else if (x->spec && frozen() && !x->cancelled_early) {
    list_append(&held, &x->synced);
  } else if (x->spec) {
    specs_held -= x->spec->bytes;
    record_begin();
    int failed = x->cancelled_early ? 0 : spawn(x);
    free(x->spec);
    x->spec = NULL;
    if (x->cancelled_early) end(x, X_CANCELLED, 0, 0);
    else if (failed) end(x, X_FAILED, failed, STAGE_SETUP);
  } else {
    output_files_release(x);
    exec_changed(x);
    reqs_output_came(x);
  }
}

static void retry_sync(struct timer *t) {
  (void)t;
  exec_sync();
}

void exec_sync(void) {
  // A spawn that fails at once appends its end: go on until nothing waits.
  for (int round = 0; round < 4 && !list_empty(&waiting); round++) {
    int failed = journal_sync();
    if (failed) {
      say("the journal cannot be synced: %s", strerror(failed));
      break;
    }
    struct link *last = waiting.prev;
    for (bool more = true; more && !list_empty(&waiting);) {
      more = waiting.next != last;
      after_sync(container_of(waiting.next, struct exec, synced));
    }
  }
  if (!list_empty(&waiting)) timer_set(&sync_retry, SYNC_RETRY_MS, retry_sync);
}

void exec_thawed(void) {
  while (!list_empty(&held)) {
    struct exec *x = container_of(held.next, struct exec, synced);
    list_remove(&x->synced);
    wait_for_sync(x);
  }
  exec_sync();
}

void exec_spawned(struct exec *x, uint8_t failed_stage, int error) {
  loop_close(&x->spawn);
  if (failed_stage) {
    x->stage = failed_stage;
    x->code = error;
  } else {
    x->state = X_RUNNING;
    exec_changed(x);
  }
  exec_maybe_end(x);
}

int exec_signal(struct exec *x, int signal) {
  if (x->pid <= 0 || x->reaped) return ESRCH;
  if (signal == SIGCONT && frozen()) return EAGAIN;
  // Between fork and setsid there is no group yet.
  if (kill(-x->pid, signal) == 0) return 0;
  return kill(x->pid, signal) == 0 ? 0 : errno;
}

static void kill_now(struct timer *t) {
  exec_signal(container_of(t, struct exec, kill_timer), SIGKILL);
}

void exec_cancel(struct exec *x, uint64_t grace_ms) {
  if (!x->is_running || x->reaped) return;
  if (x->spec) {
    x->cancelled_early = true;
    return;
  }
  if (exec_signal(x, SIGTERM) == 0) exec_signal(x, SIGCONT);
  timer_set(&x->kill_timer, grace_ms, kill_now);
}

static struct usage usage_of(const struct rusage *r) {
  return (struct usage){
    .known = true,
    .cpu_us = (uint64_t)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) * 1000000 + (uint64_t)(r->ru_utime.tv_usec + r->ru_stime.tv_usec),
    .peak_bytes = (uint64_t)r->ru_maxrss * 1024,
    .read_bytes = (uint64_t)r->ru_inblock * 512,
    .written_bytes = (uint64_t)r->ru_oublock * 512,
  };
}

void exec_reaped(pid_t pid, int status, const struct rusage *used) {
  list_each_safe(l, &exec_running) {
    struct exec *x = container_of(l, struct exec, running);
    if (x->pid != pid || x->reaped) continue;
    x->reaped = true;
    x->wait_status = status;
    x->usage = usage_of(used);
    timer_clear(&x->kill_timer);
    loop_close(&x->in);
    reqs_input_ready(x);
    output_after_exit(x);
    exec_maybe_end(x);
    return;
  }
}
