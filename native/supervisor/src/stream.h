// A byte stream between a request and a descriptor: a socket of the sandbox's own loopback (DIAL) or
// a process of ours that does file work.
#pragma once

#include "conn.h"

// A checkpoint is put back over a pipe that may be long: more of it is on its way at once.
enum { WINDOW = 65536, DIAL_WINDOW = 256 << 10, LARGEST_WINDOW = 4 << 20 };

// How a file process says how it went, on its control descriptor, before it exits.
struct verdict {
  uint16_t code;  // an error_code, or zero
  int32_t error;
  uint64_t value;
  char message[112];
};

struct stream {
  struct source source, control;
  struct req *req;
  bool used, connecting, accepted, taken_end, given_end, judged;
  bool wants_input;      // the client sends DATA
  uint16_t port;
  bool tried_v6;
  uint8_t *window;       // the client's bytes that the descriptor has not taken yet
  size_t window_size, window_start, window_len;
  uint32_t owed;         // credit to give back
  uint64_t sent;
  bool readable;
  struct verdict verdict;
};

// NULL: LIMIT was answered, or the request cannot be opened.
struct stream *stream_new(struct conn *, uint32_t id, uint8_t type, uint32_t credit);
void stream_open(struct stream *, int fd, int control_fd);
void stream_discard(struct stream *);
