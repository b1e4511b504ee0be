// The frames of one WebSocket, the server's end (RFC 6455), as a stream of bytes in each direction.
#pragma once

#include "base.h"

enum { WEBSOCKET_ACCEPT = 29, WEBSOCKET_BYTES = 65536, WEBSOCKET_CONTROL = 125 };

// What the client sends: bytes `start` to `end` are unmasked and wait to be passed on.
struct websocket_in {
  uint8_t bytes[WEBSOCKET_BYTES];
  size_t start, end;
  uint8_t head[14];
  size_t head_len;
  uint64_t left;  // of the frame's payload
  uint64_t at;    // in it
  uint8_t control[WEBSOCKET_CONTROL];
  size_t control_len;
};

// What the client is sent, in whole frames.
struct websocket_out {
  uint8_t bytes[WEBSOCKET_BYTES + 10];
  size_t start, end;
  uint8_t pong[WEBSOCKET_CONTROL];
  size_t pong_len;
  bool pong_owed;
};

void websocket_accept(const char *key, char into[WEBSOCKET_ACCEPT]);
// Each of these: false when the connection is over.
bool websocket_read(struct websocket_in *in, int fd, struct websocket_out *out);
bool websocket_flush(struct websocket_in *in, int fd);
bool websocket_fill(struct websocket_out *out, int fd);
bool websocket_write(struct websocket_out *out, int fd);
