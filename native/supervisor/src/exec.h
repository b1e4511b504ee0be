// Execs: their table, their life from START to the journalled end, their output and input.
#pragma once

#include <sys/resource.h>

#include "base.h"
#include "loop.h"
#include "spool.h"

enum exec_state { X_STARTING = 1, X_RUNNING, X_EXITED, X_SIGNALED, X_FAILED, X_CANCELLED, X_LOST };
enum exec_flag { XF_PTY = 1, XF_STDIN = 2, XF_RELEASED = 4, XF_CORE = 8, XF_INCOMPLETE = 16 };
enum fail_stage { STAGE_USER = 1, STAGE_CWD, STAGE_EXEC, STAGE_SETUP };
enum { KIND_STDOUT = 1, KIND_STDERR, KIND_RESIZE };

// Everything a start needs, in one block that is freed after the fork.
struct spec {
  size_t bytes;
  uint16_t cols, rows;
  char *user, *cwd;
  char **argv, **envp;
};

struct output {
  struct source source;   // the read end of the pipe, or the terminal
  struct exec *exec;
  int file;
  uint8_t kind;
  bool open, stalled;
  bool bounded;           // after the grace: only `left` bytes more are taken
  uint64_t left;
  uint64_t size;          // recorded in the order file
  uint64_t unrecorded;    // in the file, not yet in the order file
  uint8_t *hold;          // read but not yet in the file (terminals; pipes only without splice)
  size_t held;
};

struct writer {
  uint64_t id, next;
};

// Of the main process and of what it waited for.
struct usage {
  bool known;
  uint64_t cpu_us, peak_bytes, read_bytes, written_bytes;
};

struct exec {
  struct link hashed, by_change, running, synced;
  struct link reqs;       // requests that wait for something of this exec
  bool used, is_running, waits_for_sync, end_unwritten, cancelled_early;
  uint8_t state, flags, stage, id_len;
  uint8_t id[MAX_EXEC_ID];
  int32_t code;
  uint32_t seq;
  uint64_t change, started_us, ended_us, acked, late;
  uint64_t dropped[2];    // of each stream, acknowledged and no longer on disk
  // while it runs
  struct spec *spec;
  pid_t pid;
  bool reaped, had_stdin;
  int wait_status;
  struct usage usage;
  struct output out[2];
  struct source spawn;    // tells whether exec(2) worked
  struct source in;       // stdin's write end, or a second descriptor of the terminal
  struct timer grace, kill_timer;
  struct writer writers[MAX_WRITERS];
  int writer_count;
  uint64_t writer_floor;
  // order file, shared by the pump and by readers
  int order_file;
  uint64_t order_count;
  struct order resize;    // a resize not yet recorded: length is 1 while it waits
  uint32_t readers;
};

extern struct link exec_by_change, exec_running;
extern uint32_t exec_running_count;

void exec_init(void);
// Reads the journal; what was running is lost.
void exec_recover(void);
struct exec *exec_find(struct span id);
// A released exec's record, from the journal.
bool exec_find_released(struct span id, struct record *);
// NULL when a limit is reached.
struct exec *exec_new(struct span id);
void exec_forget(struct exec *);
struct record exec_record(const struct exec *, uint8_t type);
void exec_changed(struct exec *);
// Ended execs only. Zero or an errno.
int exec_release(struct exec *);
void exec_ack(struct exec *, uint64_t merged);
// How much of each stream lies below a merged offset.
void exec_streams_at(struct exec *, uint64_t merged, uint64_t at[2]);
// Ended, and the journal says so on disk: only then is anyone told.
static inline bool exec_ended(const struct exec *x) { return x->state >= X_EXITED && !x->waits_for_sync; }
static inline uint64_t exec_merged(const struct exec *x) { return x->out[0].size + x->out[1].size; }

// life.c
// Zero or an errno; then there is no such exec. Takes the spec only when it returns zero.
int exec_start(struct exec *, struct spec *);
int exec_cancel_unseen(struct exec *);
void exec_cancel(struct exec *, uint64_t grace_ms);
// Zero or an errno.
int exec_signal(struct exec *, int signal);
void exec_spawned(struct exec *, uint8_t failed_stage, int error);
// Main processes and strangers: everything that waitpid gives.
void exec_reaped(pid_t, int status, const struct rusage *);
void exec_maybe_end(struct exec *);
// Writes the journal down and lets what waited for that go on; once per turn.
void exec_sync(void);
// Starts what was to start while everything stood still.
void exec_thawed(void);

// output.c
void output_watch(struct output *, int fd);
void output_close_all(struct exec *);
void output_after_exit(struct exec *);
bool output_files_open(struct exec *);
void output_files_release(struct exec *);
void output_recover(struct exec *);
int output_resize(struct exec *, uint16_t cols, uint16_t rows);
// Takes a descriptor that background processes still hold and discards what comes.
void linger(int fd, uint32_t seq);

// spawn.c
int spawn(struct exec *);  // zero or an errno; the rest is told through exec->spawn

// input.c
struct stdin_result {
  int error;  // an error_code, or zero
  uint64_t detail, next;
  bool full, ended;
};
struct stdin_result input_write(struct exec *, uint64_t writer, uint64_t offset, bool eof, struct span);

// Told to requests (requests.c).
void reqs_output_came(struct exec *);
void reqs_exec_changed(struct exec *);
void reqs_input_ready(struct exec *);
void reqs_output_gone(struct exec *);
