// What every file of the supervisor shares: limits, lists, bytes, time.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUPERVISOR_VERSION "0.1.0"
#define PROTOCOL_VERSION 1

enum {
  MAX_FRAME = 1 << 20,
  MAX_DATA = 65536,
  MAX_EXEC_ID = 64,
  MAX_INSTANCE = 64,
  MAX_CONNS = 64,
  MAX_REQS = 8192,
  MAX_REQS_PER_CONN = 1024,
  MAX_EXECS = 4096,
  MAX_RUNNING = 1024,
  MAX_EXEC_IDS = 100000,
  MAX_STREAMS = 256,
  MAX_LINGERING = 1024,
  MAX_WRITERS = 32,
};

struct link {
  struct link *prev, *next;
};

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_each(it, head) for (struct link *it = (head)->next; it != (head); it = it->next)
// For loops whose body may remove the current element.
#define list_each_safe(it, head) \
  for (struct link *it = (head)->next, *it##_next = it->next; it != (head); it = it##_next, it##_next = it->next)

static inline void list_init(struct link *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct link *l) { return l->next == l; }
static inline void list_remove(struct link *l) {
  l->prev->next = l->next;
  l->next->prev = l->prev;
  list_init(l);
}
static inline void list_append(struct link *head, struct link *l) {
  l->prev = head->prev;
  l->next = head;
  head->prev->next = l;
  head->prev = l;
}

struct span {
  const uint8_t *data;
  uint32_t len;
};

// The settings of this process, fixed once the arguments are read.
struct settings {
  uint64_t epoch;
  const char *listen_path;  // NULL when the socket was given as a descriptor
  char instance[MAX_INSTANCE + 1];
  uint64_t lease_ms, stop_grace_ms, output_grace_ms;
  bool read_only, pid1;
  bool ends_with_host;  // what is written need only outlive the processes that wrote it
  bool own_ports;  // the network is not the sandbox's own: only what its processes listen on is its
  uint64_t started_us;
  uint64_t since_ns;  // of a disk that another sandbox wrote on; 0 for a fresh one
};
extern struct settings settings;

uint64_t now_us(void);  // since 1970
uint64_t now_ms(void);  // monotonic
uint32_t crc32_of(const void *data, size_t len);
uint64_t hash_of(const void *data, size_t len);
bool valid_name(const uint8_t *s, size_t len, size_t max);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
// Zeroed address space that costs memory only where it is touched; never given back.
void *reserve(size_t bytes);
void close_fd(int *fd);
ssize_t read_small_file(const char *path, char *into, size_t size);
