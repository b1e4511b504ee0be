// Which frame goes where.
#include <string.h>

#include "conn.h"
#include "freeze.h"

static bool hello(struct conn *c, struct reader *r) {
  uint32_t magic = get_u32(r);
  uint16_t version = get_u16(r);
  get_u16(r);
  uint64_t epoch = get_u64(r);
  get_u64(r);
  get_u32(r);
  struct span instance = get_bytes(r, MAX_INSTANCE);
  get_bytes(r, 64);
  if (!reader_done(r) || magic != HELLO_MAGIC || c->greeted) return false;
  bool ours = epoch == settings.epoch && instance.len == strlen(settings.instance) &&
              memcmp(instance.data, settings.instance, instance.len) == 0;
  if (version != PROTOCOL_VERSION) conn_fail(c, E_VERSION, "this supervisor speaks protocol version 1");
  else if (!ours) conn_fail(c, E_MISMATCH, "another epoch or instance runs here");
  if (c->closing) return true;
  c->greeted = true;
  timer_clear(&c->hello_timer);
  lease_renew();
  return true;
}

static bool ping(struct conn *c, uint32_t id, struct reader *r) {
  struct span echo = get_bytes(r, 64);
  if (!reader_done(r)) return false;
  frame_begin(&c->out, PONG, id);
  put_bytes(&c->out, echo.data, echo.len);
  frame_end(&c->out);
  return true;
}

static bool credit(struct conn *c, uint32_t id, struct reader *r) {
  uint32_t more = get_u32(r);
  if (!reader_done(r)) return false;
  struct req *q = req_find(c, id);
  if (!q) return true;
  q->credit += more;
  if (q->produce) req_ready(q);
  return true;
}

static bool data(struct conn *c, uint32_t id, struct reader *r) {
  struct span bytes = get_bytes(r, MAX_DATA);
  if (!reader_done(r)) return false;
  struct req *q = req_find(c, id);
  if (!q) return true;
  return q->pipe && stream_data(q, bytes);
}

static bool end(struct conn *c, uint32_t id, struct reader *r) {
  if (!reader_done(r)) return false;
  struct req *q = req_find(c, id);
  if (q && !q->pipe) return false;
  if (q) stream_end(q);
  return true;
}

static bool close_request(struct conn *c, uint32_t id, struct reader *r) {
  if (!reader_done(r)) return false;
  struct req *q = req_find(c, id);
  if (q) req_close(q);
  frame_begin(&c->out, CLOSED, id);
  frame_end(&c->out);
  return true;
}

// What a read-only supervisor, or one that is stopping, still does.
static uint16_t refused(uint8_t type) {
  bool looks = type == STATE || type == WATCH || type == READ || type == ACK || type == RELEASE || type == USAGE || type == FIGURES || type == QUIT;
  if (settings.read_only && !looks) return E_READ_ONLY;
  if (stopping() && (type == START || type == FREEZE)) return E_STOPPING;
  bool changes = type == FILE_WRITE || type == FILE_REMOVE || type == FILE_MKDIR || type == TAR_IN || type == UNPACK;
  if (frozen() && changes) return E_LIMIT;
  return 0;
}

static bool request(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  switch (type) {
    case START: case CANCEL: case SIGNAL: case STATE: case ACK: case RELEASE: case STDIN: case RESIZE: case USAGE:
      return request_exec(c, type, id, r);
    case WATCH: return request_watch(c, id, r);
    case READ: return request_read(c, id, r);
    case PORTS: return request_ports(c, id, r);
    case DIAL: return request_dial(c, id, r);
    case FILE_STAT: case FILE_LIST: case FILE_READ: case FILE_WRITE: case FILE_REMOVE: case FILE_MKDIR:
    case TAR_OUT: case TAR_IN: case SCAN: case READ_MANY: case UNPACK:
      return request_file(c, type, id, r);
    case FIGURES: return request_figures(c, id, r);
    case STOP: case QUIT: return request_stop(c, type, id, r);
    case FREEZE: case THAW: return request_freeze(c, type, id, r);
    default: return false;
  }
}

bool dispatch(struct conn *c, uint8_t type, uint32_t id, struct reader *r) {
  c->heard_ms = now_ms();
  if (!c->greeted) return type == HELLO && id == 0 && hello(c, r);
  switch (type) {
    case PING: return ping(c, id, r);
    case CREDIT: return credit(c, id, r);
    case DATA: return data(c, id, r);
    case END: return end(c, id, r);
    case CLOSE: return close_request(c, id, r);
  }
  if (id == 0 || type < START || type > UNPACK || req_find(c, id)) return false;
  uint16_t no = refused(type);
  if (no) {
    const char *why = no == E_STOPPING ? "the sandbox is stopping"
                      : no == E_LIMIT  ? "the sandbox stands still for a checkpoint: try again"
                                       : "this supervisor only serves what is on disk";
    answer_error(c, id, no, 0, 0, why);
    return true;
  }
  return request(c, type, id, r);
}
