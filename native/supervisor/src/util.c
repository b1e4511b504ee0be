#include "base.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct settings settings;

static uint64_t clock_us(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t now_us(void) { return clock_us(CLOCK_REALTIME); }
uint64_t now_ms(void) { return clock_us(CLOCK_MONOTONIC) / 1000; }

uint32_t crc32_of(const void *data, size_t len) {
  const uint8_t *p = data;
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < len; i++) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc;
}

uint64_t hash_of(const void *data, size_t len) {
  const uint8_t *p = data;
  uint64_t h = 0xcbf29ce484222325;
  for (size_t i = 0; i < len; i++) h = (h ^ p[i]) * 0x100000001b3;
  return h ^ (h >> 29);
}

bool valid_name(const uint8_t *s, size_t len, size_t max) {
  if (len < 1 || len > max) return false;
  for (size_t i = 0; i < len; i++) {
    uint8_t c = s[i];
    bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!alnum && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

static void vsay(const char *format, va_list args) {
  char line[512];
  int n = snprintf(line, sizeof line, "vmux-supervisor: ");
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
  n += m < (int)sizeof line - n - 1 ? m : (int)sizeof line - n - 2;
  line[n++] = '\n';
  // A diagnostic that cannot be written has nowhere else to go.
  if (write(2, line, (size_t)n) < 0) return;
}

void say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsay(format, args);
  va_end(args);
}

void die(int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsay(format, args);
  va_end(args);
  exit(status);
}

void *reserve(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) die(4, "no address space for %zu bytes: %s", bytes, strerror(errno));
  return p;
}

void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

ssize_t read_small_file(const char *path, char *into, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = read(fd, into, size - 1);
  close(fd);
  if (n >= 0) into[n] = 0;
  return n;
}

#ifdef SANITIZED
// The leak check traces this process, which being undumpable forbids to all but root.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return getuid() == 0 ? "" : "detect_leaks=0"; }
#endif
