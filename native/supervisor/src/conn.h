// Connections and their open requests. A request that cannot be answered at once waits in its
// connection's ready queue until there is something to send and room to send it.
#pragma once

#include "base.h"
#include "exec.h"
#include "loop.h"
#include "wire.h"

struct conn {
  struct source source;
  struct buffer out;
  uint8_t *in;
  size_t in_len, in_high;
  bool used, greeted, closing;
  bool blocked;          // whole frames wait in `in` for room to answer them
  struct link reqs, ready;
  struct link pending;   // in the list of connections with something to send
  uint32_t req_count;
  pid_t peer;
  uint64_t heard_ms;     // the last frame
  struct timer hello_timer;
};

// What a request did with its chance to send.
enum produced { P_DONE, P_AGAIN, P_IDLE };

struct req {
  struct link hashed, in_conn, ready, in_exec, watching;
  struct conn *conn;
  uint32_t id;
  uint8_t type;
  bool is_ready, follow, tells_usage, caught_up, end_of_input;
  enum produced (*produce)(struct req *);
  void (*abandon)(struct req *);  // frees what the request holds
  struct exec *exec;
  uint8_t stream;        // READ
  uint64_t offset;
  uint64_t order_index, credit;
  bool placed;
  uint64_t cursor, until;  // WATCH, PORTS
  struct stream *pipe;   // DIAL and files
};

void conns_init(int listen_fd);
// Lets every connection with something to send do so; once per turn, after the journal is synced.
void conns_flush(void);
bool conns_peer(pid_t);
uint32_t conns_greeted(void);
// When the last of them said something; 0 without one.
uint64_t conns_heard_ms(void);
void conns_drain_and_close(void);
struct conn *conn_new(int fd);
// Everything in `in` that is a whole frame; used by the fuzzer too.
void conn_process(struct conn *);
void conn_close(struct conn *);
void conn_fail(struct conn *, uint16_t code, const char *message);

// NULL and the connection failed, or LIMIT answered.
struct req *req_new(struct conn *, uint32_t id, uint8_t type);
struct req *req_find(struct conn *, uint32_t id);
void req_close(struct req *);
void req_ready(struct req *);
// Room for one more frame of data.
bool conn_has_room(const struct conn *);
void req_attach(struct req *, struct exec *);

void answer_ok(struct conn *, uint32_t id, uint64_t value);
void answer_error(struct conn *, uint32_t id, uint16_t code, int error, uint64_t detail, const char *message);

// dispatch.c. False: the frame is malformed.
bool dispatch(struct conn *, uint8_t type, uint32_t id, struct reader *);
bool request_exec(struct conn *, uint8_t type, uint32_t id, struct reader *);
bool request_read(struct conn *, uint32_t id, struct reader *);
bool request_watch(struct conn *, uint32_t id, struct reader *);
bool request_ports(struct conn *, uint32_t id, struct reader *);
bool request_dial(struct conn *, uint32_t id, struct reader *);
// ports.c. Whether the sandbox may be dialled there, by a look at this moment.
bool port_is_ours(uint16_t port);
bool request_file(struct conn *, uint8_t type, uint32_t id, struct reader *);
bool request_figures(struct conn *, uint32_t id, struct reader *);
bool request_stop(struct conn *, uint8_t type, uint32_t id, struct reader *);
// freeze.c
bool request_freeze(struct conn *, uint8_t type, uint32_t id, struct reader *);
void put_exec(struct conn *, uint32_t id, const struct exec *);
void put_usage(struct conn *, uint32_t id, const struct exec *);

// stream.c
bool stream_data(struct req *, struct span);
void stream_end(struct req *);

// stop.c
bool stopping(void);
void lease_renew(void);
