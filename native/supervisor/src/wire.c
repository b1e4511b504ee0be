#include "wire.h"

#include <string.h>

static uint64_t load(const uint8_t *p, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

static void store(uint8_t *p, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> (8 * i));
}

void store_u16(uint8_t *p, uint16_t v) { store(p, v, 2); }
void store_u32(uint8_t *p, uint32_t v) { store(p, v, 4); }
void store_u64(uint8_t *p, uint64_t v) { store(p, v, 8); }
uint32_t load_u32(const uint8_t *p) { return (uint32_t)load(p, 4); }
uint64_t load_u64(const uint8_t *p) { return load(p, 8); }

static uint64_t get(struct reader *r, int bytes) {
  if (r->bad || r->left < (size_t)bytes) {
    r->bad = true;
    return 0;
  }
  uint64_t v = load(r->at, bytes);
  r->at += bytes;
  r->left -= (size_t)bytes;
  return v;
}

uint8_t get_u8(struct reader *r) { return (uint8_t)get(r, 1); }
uint16_t get_u16(struct reader *r) { return (uint16_t)get(r, 2); }
uint32_t get_u32(struct reader *r) { return (uint32_t)get(r, 4); }
uint64_t get_u64(struct reader *r) { return get(r, 8); }

struct span get_bytes(struct reader *r, size_t max) {
  uint32_t len = get_u32(r);
  if (r->bad || len > r->left || len > max) {
    r->bad = true;
    return (struct span){r->at, 0};
  }
  struct span s = {r->at, len};
  r->at += len;
  r->left -= len;
  return s;
}

bool reader_done(const struct reader *r) { return !r->bad && r->left == 0; }

size_t buffer_room(const struct buffer *b) { return b->size - (b->end - b->start); }

void buffer_compact(struct buffer *b) {
  if (b->start == 0) return;
  memmove(b->base, b->base + b->start, b->end - b->start);
  b->end -= b->start;
  b->start = 0;
}

static uint8_t *claim(struct buffer *b, size_t n) {
  if (b->overflow || n > b->size - b->end) {
    b->overflow = true;
    return NULL;
  }
  uint8_t *p = b->base + b->end;
  b->end += n;
  return p;
}

static void put(struct buffer *b, uint64_t v, int bytes) {
  uint8_t *p = claim(b, (size_t)bytes);
  if (p) store(p, v, bytes);
}

void frame_begin(struct buffer *b, uint8_t type, uint32_t id) {
  // Room is counted over the whole buffer; a frame is written in one piece.
  if (b->start > 0 && b->size - b->end < b->size / 2) buffer_compact(b);
  b->frame = b->end;
  put_u32(b, 0);
  put_u8(b, type);
  put_u32(b, id);
}

void frame_end(struct buffer *b) {
  if (!b->overflow) store_u32(b->base + b->frame, (uint32_t)(b->end - b->frame - 4));
}

void frame_cancel(struct buffer *b) { b->end = b->frame; }

void put_u8(struct buffer *b, uint8_t v) { put(b, v, 1); }
void put_u16(struct buffer *b, uint16_t v) { put(b, v, 2); }
void put_u32(struct buffer *b, uint32_t v) { put(b, v, 4); }
void put_u64(struct buffer *b, uint64_t v) { put(b, v, 8); }

void put_bytes(struct buffer *b, const void *data, size_t len) {
  put_u32(b, (uint32_t)len);
  uint8_t *p = claim(b, len);
  if (p && len) memcpy(p, data, len);
}

uint8_t *put_space(struct buffer *b, size_t len) {
  put_u32(b, (uint32_t)len);
  return claim(b, len);
}

void put_shrink(struct buffer *b, size_t put, size_t used) {
  store_u32(b->base + b->end - put - 4, (uint32_t)used);
  b->end -= put - used;
}
