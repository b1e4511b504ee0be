// Frames as bytes: a reader that cannot leave its body, and a buffer that frames are written to.
#pragma once

#include "base.h"

enum frame_type {
  HELLO = 0x01, ERROR, OK, PING, PONG, CREDIT, DATA, END, CLOSE, CLOSED, ACCEPTED,
  START = 0x10, CANCEL, SIGNAL, STATE, WATCH, READ, ACK, RELEASE, STDIN, RESIZE, USAGE,
  PORTS = 0x20, DIAL,
  FILE_STAT = 0x30, FILE_LIST, FILE_READ, FILE_WRITE, FILE_REMOVE, FILE_MKDIR, TAR_OUT, TAR_IN,
  FIGURES, STOP, QUIT, FREEZE, THAW, SCAN, READ_MANY, UNPACK,
  EXEC = 0x50, OUTPUT, STDIN_ACK, STDIN_READY, PORT, FIGURES_ARE,
};

enum error_code {
  E_MALFORMED = 1, E_VERSION, E_MISMATCH, E_LIMIT, E_NOT_FOUND, E_ENDED, E_GONE, E_RANGE,
  E_STALE_WRITER, E_GAP, E_SYSTEM, E_READ_ONLY, E_STOPPING, E_NO_STDIN, E_NO_TERMINAL, E_RUNNING,
  E_INVALID, E_UNSAFE,
};

#define HELLO_MAGIC 0x58554d56u
enum { FRAME_HEADER = 9 };

struct reader {
  const uint8_t *at;
  size_t left;
  bool bad;
};

uint8_t get_u8(struct reader *);
uint16_t get_u16(struct reader *);
uint32_t get_u32(struct reader *);
uint64_t get_u64(struct reader *);
// Longer than `max` is bad; the span points into the frame.
struct span get_bytes(struct reader *, size_t max);
// Nothing was bad and nothing is left over.
bool reader_done(const struct reader *);

struct buffer {
  uint8_t *base;
  size_t size, start, end;
  size_t frame;   // where the frame being written begins
  bool overflow;  // a frame did not fit: callers ensure room, so this is a fault
};

size_t buffer_room(const struct buffer *);
void buffer_compact(struct buffer *);
void frame_begin(struct buffer *, uint8_t type, uint32_t id);
void frame_end(struct buffer *);
// As if the frame had not been begun.
void frame_cancel(struct buffer *);
void put_u8(struct buffer *, uint8_t);
void put_u16(struct buffer *, uint16_t);
void put_u32(struct buffer *, uint32_t);
void put_u64(struct buffer *, uint64_t);
void put_bytes(struct buffer *, const void *, size_t);
// A length and room for that many bytes, to be filled by the caller; NULL: no room.
uint8_t *put_space(struct buffer *, size_t);
// The space just put turned out longer than what there was.
void put_shrink(struct buffer *, size_t put, size_t used);

void store_u16(uint8_t *, uint16_t);
void store_u32(uint8_t *, uint32_t);
void store_u64(uint8_t *, uint64_t);
uint32_t load_u32(const uint8_t *);
uint64_t load_u64(const uint8_t *);
