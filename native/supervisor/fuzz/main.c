// A deterministic mutation fuzzer of everything between a client's bytes and the state they change:
//   vmux-supervisor-fuzz <directory> <seed> <runs>
// Each run is one connection that is fed a few frames, well-formed ones damaged in random places, in
// pieces of random size. The sanitizers are the judges; the invariants below too.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conn.h"

static uint64_t state;

static uint32_t roll(uint32_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)((state >> 16) % below);
}

static struct buffer script = {.size = 1 << 20};

static uint64_t any_number(void) {
  static const uint64_t edges[] = {0, 1, 2, 63, 64, 255, 4095, 65535, 65536, 0x7fffffff, 0xffffffff, UINT64_MAX - 1, UINT64_MAX};
  return roll(3) ? roll(300) : edges[roll(sizeof edges / sizeof *edges)];
}

static void put_text(void) {
  static char bytes[70000];
  uint32_t len = roll(20) ? roll(80) : roll(sizeof bytes);
  for (uint32_t i = 0; i < len && i < 100; i++) bytes[i] = (char)roll(256);
  put_bytes(&script, bytes, len);
}

static void put_exec_id(void) {
  char id[16];
  if (roll(20) == 0) put_text();
  else put_bytes(&script, id, (size_t)snprintf(id, sizeof id, "x%u", roll(roll(2) ? 40 : 6000)));
}

static void put_start(void) {
  put_u32(&script, roll(4));
  put_u32(&script, (uint32_t)any_number());
  put_text();
  put_bytes(&script, "/", 1);
  for (int list = 0; list < 2; list++) {
    uint16_t n = (uint16_t)roll(6);
    put_u16(&script, n);
    for (; n > 0; n--) roll(10) ? put_bytes(&script, "A=b", 3) : put_text();
  }
}

static uint32_t ids;

static void put_frame(void) {
  static const uint8_t types[] = {PING, CREDIT, DATA, END, CLOSE, START, START, CANCEL, SIGNAL, STATE, WATCH, READ,
                                  READ, ACK, RELEASE, STDIN, RESIZE, PORTS, DIAL, FILE_STAT, FILE_READ, FILE_WRITE,
                                  FILE_REMOVE, TAR_OUT, TAR_IN, STOP, QUIT, FREEZE, THAW, SCAN, READ_MANY,
                                  UNPACK, HELLO, EXEC, 0xff};
  uint8_t type = types[roll(sizeof types)];
  // Requests mostly have ids of their own, what belongs to a stream mostly hits one that is open.
  bool of_stream = type == CREDIT || type == DATA || type == END || type == CLOSE;
  frame_begin(&script, type, roll(40) == 0 ? roll(4) : of_stream ? 1 + roll(ids + 1) : ++ids);
  if (type >= START && type <= RESIZE && type != WATCH) put_exec_id();
  switch (type) {
    case PING: case DATA: put_text(); break;
    case CREDIT: case CANCEL: case SIGNAL: case STOP: put_u32(&script, (uint32_t)any_number()); break;
    case START: put_start(); break;
    case WATCH: case PORTS: put_u8(&script, (uint8_t)roll(3)); break;
    case READ:
      put_u8(&script, (uint8_t)roll(4));
      put_u8(&script, (uint8_t)roll(3));
      put_u64(&script, any_number());
      put_u32(&script, (uint32_t)any_number());
      break;
    case ACK: put_u64(&script, any_number()); break;
    case STDIN:
      put_u64(&script, any_number());
      put_u64(&script, any_number());
      put_u8(&script, (uint8_t)roll(3));
      put_text();
      break;
    case RESIZE: put_u32(&script, (uint32_t)any_number()); break;
    case FREEZE: put_u8(&script, (uint8_t)roll(3)); break;
    case READ_MANY: put_u32(&script, (uint32_t)any_number()); break;
    case SCAN: {
      uint16_t n = (uint16_t)roll(roll(10) ? 4 : 300);
      put_u64(&script, any_number());
      put_u16(&script, n);
      for (; n > 0; n--) put_bytes(&script, "proc", 4);
      put_u32(&script, (uint32_t)any_number());
      break;
    }
    case DIAL: put_u16(&script, 0); put_u32(&script, 1); break;
    case FILE_STAT: case FILE_READ: case FILE_WRITE: case FILE_REMOVE: case TAR_OUT: case TAR_IN:
      roll(4) ? put_bytes(&script, "", 0) : put_text();
      roll(4) ? put_bytes(&script, "/no/where", 9) : put_text();
      if (type == FILE_WRITE) put_u32(&script, (uint32_t)any_number());
      if (type == FILE_READ) put_u64(&script, any_number()), put_u64(&script, any_number());
      if (type != FILE_READ) put_u8(&script, (uint8_t)any_number());
      if (type == TAR_OUT) {
        uint16_t n = (uint16_t)roll(4);
        put_u16(&script, n);
        for (; n > 0; n--) put_text();
      }
      if (type == FILE_STAT || type == FILE_READ || type == TAR_OUT) put_u32(&script, (uint32_t)any_number());
      break;
  }
  frame_end(&script);
}

static void damage(size_t from) {
  if (script.end <= from) return;
  for (uint32_t n = roll(4); n > 0; n--) {
    size_t at = from + roll((uint32_t)(script.end - from));
    switch (roll(3)) {
      case 0: script.base[at] ^= (uint8_t)(1 << roll(8)); break;
      case 1: script.base[at] = (uint8_t)any_number(); break;
      case 2: script.end = at; return;
    }
  }
}

static void put_hello(void) {
  frame_begin(&script, HELLO, 0);
  put_u32(&script, HELLO_MAGIC);
  put_u16(&script, PROTOCOL_VERSION);
  put_u16(&script, 0);
  put_u64(&script, settings.epoch);
  put_u64(&script, 0);
  put_u32(&script, 0);
  put_bytes(&script, settings.instance, strlen(settings.instance));
  put_bytes(&script, "fuzz", 4);
  frame_end(&script);
}

static void turn(void) {
  exec_sync();
  conns_flush();
}

// The supervisor's answers are whole frames of known types within bounds.
static void check_answers(int fd, bool first) {
  static uint8_t answers[1 << 20];
  static size_t len;
  if (first) len = 0;
  for (ssize_t n; len < sizeof answers && (n = recv(fd, answers + len, sizeof answers - len, MSG_DONTWAIT)) > 0;) {
    len += (size_t)n;
    size_t at = 0;
    while (at + 4 <= len) {
      uint32_t length = load_u32(answers + at);
      if (length < 5 || length > MAX_DATA + 256) die(1, "an answer of %u bytes", length);
      if (at + 4 + length > len) break;
      at += 4 + (size_t)length;
    }
    memmove(answers, answers + at, len -= at);
  }
}

static void one_run(void) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) die(1, "socketpair: %s", strerror(errno));
  struct conn *c = conn_new(pair[0]);
  if (!c) die(1, "a connection was not given back");
  check_answers(pair[1], true);
  script.start = script.end = 0;
  script.overflow = false;
  ids = 0;
  if (roll(20)) put_hello();
  for (uint32_t n = 1 + roll(24); n > 0; n--) {
    size_t from = script.end;
    put_frame();
    if (roll(8) == 0) damage(from);
  }
  for (size_t at = 0; at < script.end && c->used && !c->closing;) {
    size_t n = 1 + roll((uint32_t)(script.end - at));
    if (n > MAX_FRAME + 4 - c->in_len) n = MAX_FRAME + 4 - c->in_len;
    memcpy(c->in + c->in_len, script.base + at, n);
    c->in_len += n;
    at += n;
    conn_process(c);
    if (roll(2)) turn();
    check_answers(pair[1], false);
  }
  turn();
  check_answers(pair[1], false);
  conn_close(c);
  close(pair[1]);
}

int main(int argc, char **argv) {
  if (argc != 4) die(2, "usage: vmux-supervisor-fuzz <directory> <seed> <runs>");
  state = strtoull(argv[2], NULL, 10) * 2654435761u + 88172645463325252ull;
  signal(SIGPIPE, SIG_IGN);  // as in the supervisor
  script.base = reserve(script.size);
  settings.epoch = 1;
  strcpy(settings.instance, "fuzz");
  settings.output_grace_ms = 10;
  int dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) die(2, "%s: %s", argv[1], strerror(errno));
  loop_init();
  exec_init();
  spool_open(dir);
  exec_recover();
  conns_init(-1);
  unsigned long runs = strtoul(argv[3], NULL, 10);
  for (unsigned long i = 0; i < runs; i++) one_run();
  printf("%lu runs, %u running\n", runs, exec_running_count);
  return 0;
}
