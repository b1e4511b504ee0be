#include "websocket.h"

#include <string.h>
#include <unistd.h>

enum { OP_CONTINUE = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10, FINAL = 0x80, MASKED = 0x80 };

static uint32_t rotated(uint32_t v, int by) { return v << by | v >> (32 - by); }

// SHA-1 of at most 119 bytes: what the answer to a key is made of, and nothing that has to withstand anybody.
static void sha1(const uint8_t *text, size_t len, uint8_t digest[20]) {
  uint8_t padded[128] = {0};
  uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  size_t blocks = (len + 9 + 63) / 64;
  memcpy(padded, text, len);
  padded[len] = 0x80;
  for (int i = 0; i < 8; i++) padded[blocks * 64 - 1 - (size_t)i] = (uint8_t)((uint64_t)len * 8 >> (8 * i));
  for (size_t b = 0; b < blocks; b++) {
    uint32_t w[80], v[5];
    const uint8_t *p = padded + b * 64;
    for (int i = 0; i < 16; i++) w[i] = (uint32_t)p[i * 4] << 24 | (uint32_t)p[i * 4 + 1] << 16 | (uint32_t)p[i * 4 + 2] << 8 | p[i * 4 + 3];
    for (int i = 16; i < 80; i++) w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 80; i++) {
      uint32_t f, k;
      if (i < 20) f = (v[1] & v[2]) | (~v[1] & v[3]), k = 0x5a827999;
      else if (i < 40) f = v[1] ^ v[2] ^ v[3], k = 0x6ed9eba1;
      else if (i < 60) f = (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]), k = 0x8f1bbcdc;
      else f = v[1] ^ v[2] ^ v[3], k = 0xca62c1d6;
      uint32_t next = rotated(v[0], 5) + f + v[4] + k + w[i];
      v[4] = v[3], v[3] = v[2], v[2] = rotated(v[1], 30), v[1] = v[0], v[0] = next;
    }
    for (int i = 0; i < 5; i++) h[i] += v[i];
  }
  for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

void websocket_accept(const char *key, char into[WEBSOCKET_ACCEPT]) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  uint8_t text[24 + sizeof guid], digest[21] = {0};
  memcpy(text, key, 24);
  memcpy(text + 24, guid, sizeof guid - 1);
  sha1(text, 24 + sizeof guid - 1, digest);
  for (int i = 0; i < 7; i++) {
    uint32_t three = (uint32_t)digest[i * 3] << 16 | (uint32_t)digest[i * 3 + 1] << 8 | digest[i * 3 + 2];
    for (int j = 0; j < 4; j++) into[i * 4 + j] = letters[three >> (18 - 6 * j) & 63];
  }
  into[27] = '=';
  into[28] = 0;
}

static size_t head_size(const struct websocket_in *in) {
  if (in->head_len < 2) return 2;
  uint8_t len = in->head[1] & 0x7f;
  return (size_t)(2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + 4);
}

// The head is whole: false when it breaks the rules.
static bool begin_frame(struct websocket_in *in) {
  uint8_t op = in->head[0] & 0x0f, len = in->head[1] & 0x7f;
  size_t more = len == 126 ? 2 : len == 127 ? 8 : 0;
  in->left = more ? 0 : len;
  in->at = 0;
  for (size_t i = 0; i < more; i++) in->left = in->left << 8 | in->head[2 + i];
  if ((in->head[0] & 0x70) || in->left >> 63) return false;
  if (op <= OP_BINARY) return true;
  in->control_len = 0;
  return (op == OP_CLOSE || op == OP_PING || op == OP_PONG) && (in->head[0] & FINAL) && in->left <= WEBSOCKET_CONTROL;
}

static bool end_frame(struct websocket_in *in, struct websocket_out *out) {
  uint8_t op = in->head[0] & 0x0f;
  in->head_len = 0;
  if (op == OP_CLOSE) return false;
  if (op == OP_PING) {
    memcpy(out->pong, in->control, in->control_len);
    out->pong_len = in->control_len;
    out->pong_owed = true;
  }
  return true;
}

bool websocket_read(struct websocket_in *in, int fd, struct websocket_out *out) {
  static uint8_t raw[WEBSOCKET_BYTES];
  ssize_t n = read(fd, raw, sizeof raw);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  in->start = in->end = 0;
  for (ssize_t i = 0; i < n;) {
    size_t wanted = head_size(in);
    if (in->head_len < wanted) {
      in->head[in->head_len++] = raw[i++];
      if (in->head_len == 2 && !(in->head[1] & MASKED)) return false;
      if (in->head_len < head_size(in)) continue;
      if (!begin_frame(in) || (in->left == 0 && !end_frame(in, out))) return false;
      continue;
    }
    const uint8_t *mask = in->head + wanted - 4;
    bool control = in->head[0] & 0x08;
    for (; i < n && in->left > 0; i++, in->left--) {
      uint8_t byte = raw[i] ^ mask[in->at++ & 3];
      if (control) in->control[in->control_len++] = byte;
      else in->bytes[in->end++] = byte;
    }
    if (in->left == 0 && !end_frame(in, out)) return false;
  }
  return true;
}

bool websocket_flush(struct websocket_in *in, int fd) {
  if (in->start == in->end) return true;
  ssize_t n = write(fd, in->bytes + in->start, in->end - in->start);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  in->start += (size_t)n;
  return true;
}

bool websocket_fill(struct websocket_out *out, int fd) {
  // Room for the longest head in front: the payload is read once and stays where it is.
  ssize_t n = read(fd, out->bytes + 10, WEBSOCKET_BYTES);
  if (n == 0) return false;
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  size_t len = (size_t)n, head = len < 126 ? 2 : len < 65536 ? 4 : 10;
  uint8_t *h = out->bytes + 10 - head;
  h[0] = FINAL | OP_BINARY;
  h[1] = (uint8_t)(head == 2 ? len : head == 4 ? 126 : 127);
  for (size_t i = 2; i < head; i++) h[i] = (uint8_t)((uint64_t)len >> (8 * (head - 1 - i)));
  out->start = 10 - head;
  out->end = 10 + len;
  return true;
}

bool websocket_write(struct websocket_out *out, int fd) {
  if (out->start == out->end && out->pong_owed) {
    out->bytes[0] = FINAL | OP_PONG;
    out->bytes[1] = (uint8_t)out->pong_len;
    memcpy(out->bytes + 2, out->pong, out->pong_len);
    out->start = 0;
    out->end = 2 + out->pong_len;
    out->pong_owed = false;
  }
  if (out->start == out->end) return true;
  ssize_t n = write(fd, out->bytes + out->start, out->end - out->start);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  out->start += (size_t)n;
  return true;
}
