// The table of execs: those in memory, those released (an index into the journal), and recovery.
#include "exec.h"

#include <string.h>

enum { BUCKETS = 4096, OLD_BUCKETS = 16384 };

struct link exec_by_change, exec_running;
uint32_t exec_running_count;

static struct exec *pool;
static struct link buckets[BUCKETS];
static uint32_t live_count, used_high, next_seq = 1;
static uint64_t changes;

// What stays in memory of a released exec: where its record stands. Index 0 ends a chain.
struct old {
  uint64_t hash;
  uint32_t record, next;
};
static struct old *olds;
static uint32_t *old_heads, old_count;

void exec_init(void) {
  list_init(&exec_by_change);
  list_init(&exec_running);
  for (int i = 0; i < BUCKETS; i++) list_init(&buckets[i]);
  pool = reserve(sizeof *pool * MAX_EXECS);
  olds = reserve(sizeof *olds * (MAX_EXEC_IDS + 1));
  old_heads = reserve(sizeof *old_heads * OLD_BUCKETS);
}

struct exec *exec_find(struct span id) {
  struct link *bucket = &buckets[hash_of(id.data, id.len) % BUCKETS];
  list_each(l, bucket) {
    struct exec *x = container_of(l, struct exec, hashed);
    if (x->id_len == id.len && memcmp(x->id, id.data, id.len) == 0) return x;
  }
  return NULL;
}

bool exec_find_released(struct span id, struct record *r) {
  uint64_t hash = hash_of(id.data, id.len);
  for (uint32_t i = old_heads[hash % OLD_BUCKETS]; i; i = olds[i].next)
    if (olds[i].hash == hash && journal_read(olds[i].record, r) && r->id_len == id.len &&
        memcmp(r->id, id.data, id.len) == 0)
      return true;
  return false;
}

struct exec *exec_new(struct span id) {
  if (live_count >= MAX_EXECS || live_count + old_count >= MAX_EXEC_IDS) return NULL;
  uint32_t i = 0;
  while (i < used_high && pool[i].used) i++;
  if (i == used_high) used_high++;
  live_count++;
  struct exec *x = &pool[i];
  memset(x, 0, sizeof *x);
  x->used = true;
  x->seq = next_seq++;
  x->id_len = (uint8_t)id.len;
  memcpy(x->id, id.data, id.len);
  x->order_file = x->spawn.fd = x->in.fd = -1;
  for (int s = 0; s < 2; s++)
    x->out[s] = (struct output){.source.fd = -1, .exec = x, .file = -1, .kind = (uint8_t)(s + 1)};
  list_init(&x->reqs);
  list_init(&x->by_change);
  list_init(&x->running);
  list_init(&x->synced);
  list_append(&buckets[hash_of(id.data, id.len) % BUCKETS], &x->hashed);
  return x;
}

void exec_forget(struct exec *x) {
  list_remove(&x->hashed);
  list_remove(&x->by_change);
  x->used = false;
  live_count--;
}

void exec_changed(struct exec *x) {
  x->change = ++changes;
  list_remove(&x->by_change);
  list_append(&exec_by_change, &x->by_change);
  reqs_exec_changed(x);
}

struct record exec_record(const struct exec *x, uint8_t type) {
  struct record r = {.type = type, .state = x->state, .id_len = x->id_len, .flags = x->flags, .stage = x->stage,
                     .seq = x->seq, .code = x->code, .time_us = x->ended_us ? x->ended_us : x->started_us,
                     .stdout_size = x->out[0].size, .stderr_size = x->out[1].size, .acked = x->acked,
                     .started_us = x->started_us};
  memcpy(r.id, x->id, x->id_len);
  return r;
}

static void remember_released(struct exec *x, uint32_t record) {
  uint64_t hash = hash_of(x->id, x->id_len);
  uint32_t *head = &old_heads[hash % OLD_BUCKETS];
  olds[++old_count] = (struct old){hash, record, *head};
  *head = old_count;
  exec_forget(x);
}

int exec_release(struct exec *x) {
  x->flags |= XF_RELEASED;
  struct record r = exec_record(x, R_RELEASED);
  uint32_t index;
  int failed = journal_append(&r, &index);
  if (failed) {
    x->flags &= (uint8_t)~XF_RELEASED;
    return failed;
  }
  reqs_output_gone(x);
  output_files_release(x);
  spool_remove(x->seq);
  remember_released(x, index);
  return 0;
}

void exec_streams_at(struct exec *x, uint64_t merged, uint64_t at[2]) {
  uint64_t low = 0, high = x->order_count;
  struct order o;
  at[0] = at[1] = 0;
  while (low < high) {
    uint64_t mid = (low + high) / 2;
    if (!order_read(x->order_file, mid, &o)) return;
    if (o.merged + o.length <= merged) low = mid + 1;
    else high = mid;
  }
  bool seen[2] = {false, false};
  if (low < x->order_count && order_read(x->order_file, low, &o) && o.merged < merged && o.kind <= KIND_STDERR && o.kind) {
    seen[o.kind - 1] = true;
    at[o.kind - 1] = o.stream + (merged - o.merged);
  }
  for (; low > 0 && !(seen[0] && seen[1]); low--) {
    if (!order_read(x->order_file, low - 1, &o) || o.kind == 0) return;
    if (o.kind > KIND_STDERR || seen[o.kind - 1]) continue;
    seen[o.kind - 1] = true;
    at[o.kind - 1] = o.stream + o.length;
  }
}

void exec_ack(struct exec *x, uint64_t merged) {
  enum { PUNCH_FROM = 1 << 20 };
  if (merged <= x->acked) return;
  uint64_t before = x->acked;
  bool all = exec_ended(x) && merged == exec_merged(x);
  if (!all && (merged & ~(uint64_t)(PUNCH_FROM - 1)) <= before) return;
  x->acked = merged;
  struct record r = exec_record(x, R_ACKED);
  if (journal_append(&r, NULL)) {  // no room for the note: the bytes stay
    x->acked = before;
    return;
  }
  if (all) {
    reqs_output_gone(x);
    output_files_release(x);
    spool_remove(x->seq);
  } else if (output_files_open(x)) {
    exec_streams_at(x, merged, x->dropped);
    for (int s = 0; s < 2; s++) spool_punch(x->out[s].file, x->dropped[s]);
    output_files_release(x);
  }
}

static void replay(const struct record *r, uint32_t index) {
  struct span id = {r->id, r->id_len};
  struct exec *x = exec_find(id);
  if (!x) {
    if (r->type != R_START && r->type != R_CANCELLED) return;
    x = exec_new(id);
    if (!x) die(3, "the journal holds more execs than there is room for");
    x->seq = r->seq;
  }
  if (r->seq >= next_seq) next_seq = r->seq + 1;
  x->state = r->state;
  x->flags = r->flags;
  x->code = r->code;
  x->stage = r->stage;
  x->started_us = r->started_us;
  x->ended_us = r->type == R_START ? 0 : r->time_us;
  x->out[0].size = r->stdout_size;
  x->out[1].size = r->stderr_size;
  x->acked = r->acked;
  if (r->type == R_RELEASED) remember_released(x, index);
}

void exec_recover(void) {
  journal_replay(replay);
  for (uint32_t i = 0; i < used_high; i++) {
    struct exec *x = &pool[i];
    if (!x->used) continue;
    output_recover(x);
    if (!exec_ended(x)) {
      x->state = X_LOST;
      x->flags &= (uint8_t)~XF_STDIN;
      x->ended_us = now_us();
      struct record r = exec_record(x, R_END);
      int failed = journal_append(&r, NULL);
      if (failed) die(3, "cannot journal what was lost: %s", strerror(failed));
    }
    exec_changed(x);
  }
  int failed = journal_sync();
  if (failed) die(3, "cannot sync the journal: %s", strerror(failed));
}
