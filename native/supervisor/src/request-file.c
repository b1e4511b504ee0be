// Requests for file work: read here, done in a process of their own.
#include <string.h>

#include "worker.h"

static bool copy_text(struct span s, char *into, size_t size) {
  if (s.len >= size || memchr(s.data, 0, s.len)) return false;
  memcpy(into, s.data, s.len);
  into[s.len] = 0;
  return true;
}

static void read_excluded(struct reader *r, struct job *job, struct span *excluded) {
  uint16_t count = get_u16(r);
  if (count > 256) r->bad = true;
  for (; job->excluded_count < count && !r->bad; job->excluded_count++)
    excluded[job->excluded_count] = get_bytes(r, MAX_FRAME);
  job->excluded = excluded;
}

// False: a name cannot be used. A bad reader: malformed.
static bool read_job(struct reader *r, uint8_t type, struct job *job, struct span *excluded, uint32_t *credit) {
  job->type = type;
  if (type == SCAN || type == READ_MANY || type == UNPACK) {
    strcpy(job->path, "/.");
    if (type == SCAN) {
      job->offset = get_u64(r);
      read_excluded(r, job, excluded);
    }
    if (type != UNPACK) *credit = get_u32(r);
    if (!reader_done(r)) r->bad = true;
    return true;
  }
  bool usable = copy_text(get_bytes(r, MAX_FRAME), job->user, sizeof job->user);
  usable &= copy_text(get_bytes(r, MAX_FRAME), job->path, sizeof job->path) && job->path[0] == '/';
  if (type == FILE_WRITE || type == FILE_MKDIR) job->mode = get_u32(r);
  if (type == FILE_READ) {
    job->offset = get_u64(r);
    job->length = get_u64(r);
  }
  if (type != FILE_LIST && type != FILE_READ) job->flags = get_u8(r);
  if (type == TAR_OUT) read_excluded(r, job, excluded);
  if (type == FILE_STAT || type == FILE_LIST || type == FILE_READ || type == TAR_OUT) *credit = get_u32(r);
  if (!reader_done(r)) r->bad = true;
  return usable;
}

bool request_file(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  static struct job job;
  static struct span excluded[256];
  uint32_t credit = 0;
  memset(&job, 0, sizeof job);
  bool usable = read_job(r, type, &job, excluded, &credit);
  if (r->bad) return false;
  if (!usable) {
    answer_error(c, id, E_INVALID, 0, 0, "a path is absolute and below 4096 bytes, a user below 128");
    return true;
  }
  struct stream *s = stream_new(c, id, type, credit);
  if (!s) return true;
  s->wants_input = type == FILE_WRITE || type == TAR_IN || type == READ_MANY || type == UNPACK;
  int failed = worker_start(s, &job);
  if (!failed) return true;
  req_close(s->req);
  answer_error(c, id, E_SYSTEM, failed, 0, "no process for file work");
  return true;
}
