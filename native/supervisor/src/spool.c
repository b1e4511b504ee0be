#include "spool.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "wire.h"

enum { PREFILL = 64 * 1024, NO_FILE = -1 };

static int dir = NO_FILE, journal = NO_FILE;
static uint32_t written, filled;      // records; `filled` includes zeros written ahead
static uint32_t dirty_from, dirty_to; // records not yet known to be on disk

void spool_open(int dir_fd) {
  char name[128];
  snprintf(name, sizeof name, "%" PRIu64 ".%s", settings.epoch, settings.instance);
  if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
    die(3, "cannot make %s in the spool: %s", name, strerror(errno));
  dir = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) die(3, "cannot open %s in the spool: %s", name, strerror(errno));
  journal = openat(dir, "journal", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (journal < 0) die(3, "cannot open the journal: %s", strerror(errno));
  if (flock(journal, LOCK_EX | LOCK_NB) < 0) die(3, "another supervisor holds this spool: %s", strerror(errno));
  filled = (uint32_t)(spool_file_size(journal) / RECORD_SIZE);
  if (fsync(dir) < 0 || fsync(dir_fd) < 0) die(3, "cannot sync the spool: %s", strerror(errno));
}

static void encode(const struct record *r, uint8_t out[RECORD_SIZE]) {
  memset(out, 0, RECORD_SIZE);
  out[4] = r->type;
  out[5] = r->state;
  out[6] = r->id_len;
  out[7] = r->flags;
  store_u32(out + 8, r->seq);
  store_u32(out + 12, (uint32_t)r->code);
  store_u64(out + 16, r->time_us);
  store_u64(out + 24, r->stdout_size);
  store_u64(out + 32, r->stderr_size);
  store_u64(out + 40, r->acked);
  store_u64(out + 48, r->started_us);
  out[56] = r->stage;
  memcpy(out + 64, r->id, r->id_len);
  store_u32(out, crc32_of(out + 4, RECORD_SIZE - 4));
}

static bool decode(const uint8_t in[RECORD_SIZE], struct record *r) {
  if (load_u32(in) != crc32_of(in + 4, RECORD_SIZE - 4)) return false;
  *r = (struct record){
      .type = in[4], .state = in[5], .id_len = in[6], .flags = in[7], .stage = in[56],
      .seq = load_u32(in + 8), .code = (int32_t)load_u32(in + 12), .time_us = load_u64(in + 16),
      .stdout_size = load_u64(in + 24), .stderr_size = load_u64(in + 32), .acked = load_u64(in + 40),
      .started_us = load_u64(in + 48)};
  memcpy(r->id, in + 64, MAX_EXEC_ID);
  return r->type >= R_START && r->type <= R_RELEASED && valid_name(r->id, r->id_len, MAX_EXEC_ID);
}

int journal_make_room(uint32_t records) {
  static const uint8_t zeros[PREFILL];
  while (filled - written < records) {
    ssize_t n = pwrite(journal, zeros, PREFILL, (off_t)filled * RECORD_SIZE);
    if (n < RECORD_SIZE) return n < 0 ? errno : ENOSPC;
    filled += (uint32_t)(n / RECORD_SIZE);
    // The new length is made durable here, so that later syncs only write data.
    if (fsync(journal) < 0) return errno;
  }
  return 0;
}

int journal_append(const struct record *r, uint32_t *index) {
  uint8_t bytes[RECORD_SIZE];
  encode(r, bytes);
  int failed = journal_make_room(1);
  if (failed) return failed;
  ssize_t n = pwrite(journal, bytes, RECORD_SIZE, (off_t)written * RECORD_SIZE);
  if (n != RECORD_SIZE) return n < 0 ? errno : ENOSPC;
  if (dirty_from == dirty_to) dirty_from = written;
  if (index) *index = written;
  dirty_to = ++written;
  return 0;
}

bool journal_dirty(void) { return dirty_from != dirty_to; }

int journal_sync(void) {
  if (!journal_dirty()) return 0;
  // Of a sandbox that ends with its host the page cache keeps whatever can still be asked for.
  if (settings.ends_with_host || fdatasync(journal) == 0) {
    dirty_from = dirty_to = written;
    return 0;
  }
  int failed = errno;
  // After a failed sync the kernel takes the pages for clean: only writing them again makes the next
  // sync mean something.
  for (uint32_t i = dirty_from; i < dirty_to; i++) {
    uint8_t bytes[RECORD_SIZE];
    off_t at = (off_t)i * RECORD_SIZE;
    if (pread(journal, bytes, RECORD_SIZE, at) != RECORD_SIZE || pwrite(journal, bytes, RECORD_SIZE, at) < 0)
      return failed;
  }
  return failed;
}

bool journal_read(uint32_t index, struct record *r) {
  uint8_t bytes[RECORD_SIZE];
  return pread(journal, bytes, RECORD_SIZE, (off_t)index * RECORD_SIZE) == RECORD_SIZE && decode(bytes, r);
}

void journal_replay(void (*each)(const struct record *, uint32_t)) {
  struct record r;
  for (written = 0; written < filled && journal_read(written, &r); written++) each(&r, written);
  dirty_from = dirty_to = written;
  // Whatever lies behind the last good record is a torn write: it must not be read after the next one.
  if (ftruncate(journal, (off_t)written * RECORD_SIZE) < 0 || fsync(journal) < 0)
    die(3, "cannot cut the journal behind its last record: %s", strerror(errno));
  filled = written;
}

static void file_name(uint32_t seq, char suffix, char out[16]) { snprintf(out, 16, "x%08x.%c", seq, suffix); }

int spool_file(uint32_t seq, char suffix, bool create) {
  char name[16];
  file_name(seq, suffix, name);
  int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
  return fd < 0 ? -errno : fd;
}

void spool_remove(uint32_t seq) {
  for (const char *suffix = "12o"; *suffix; suffix++) {
    char name[16];
    file_name(seq, *suffix, name);
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT) say("cannot remove %s: %s", name, strerror(errno));
  }
}

uint64_t spool_file_size(int fd) {
  struct stat st;
  return fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

bool order_read(int fd, uint64_t index, struct order *o) {
  uint8_t b[ORDER_SIZE];
  if (pread(fd, b, ORDER_SIZE, (off_t)(index * ORDER_SIZE)) != ORDER_SIZE) return false;
  *o = (struct order){load_u64(b), load_u64(b + 8), load_u64(b + 16), load_u32(b + 24), b[28]};
  return true;
}

int order_write(int fd, uint64_t index, const struct order *o) {
  uint8_t b[ORDER_SIZE] = {0};
  store_u64(b, o->merged);
  store_u64(b + 8, o->stream);
  store_u64(b + 16, o->time_us);
  store_u32(b + 24, o->length);
  b[28] = o->kind;
  ssize_t n = pwrite(fd, b, ORDER_SIZE, (off_t)(index * ORDER_SIZE));
  return n == ORDER_SIZE ? 0 : n < 0 ? errno : ENOSPC;
}

void spool_punch(int fd, uint64_t upto) {
  off_t len = (off_t)(upto & ~(uint64_t)4095);
  if (fd < 0 || len == 0) return;
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, len) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    say("cannot free acknowledged output: %s", strerror(errno));
}

uint64_t spool_free_bytes(void) {
  struct statvfs fs;
  return fstatvfs(dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
}
