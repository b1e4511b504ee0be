// What is on disk beneath the spool directory: the journal and the output files of execs.
#pragma once

#include "base.h"

enum record_type { R_START = 1, R_CANCELLED, R_END, R_ACKED, R_RELEASED };
enum { RECORD_SIZE = 128, ORDER_SIZE = 32 };

struct record {
  uint8_t type, state, id_len, flags, stage;
  uint32_t seq;
  int32_t code;
  uint64_t time_us, stdout_size, stderr_size, acked, started_us;
  uint8_t id[MAX_EXEC_ID];
};

struct order {
  uint64_t merged, stream, time_us;
  uint32_t length;
  uint8_t kind;
};

// Opens (or makes) the directory of this {epoch, instance} beneath `dir_fd`. Ends the process with
// status 3 when that cannot be, or when another supervisor holds it.
void spool_open(int dir_fd);
// Zero, or an errno: nothing was written then. `index` receives the record's place.
int journal_append(const struct record *, uint32_t *index);
// Makes room for the ends of this many execs, so that an end can be written on a full disk.
int journal_make_room(uint32_t records);
bool journal_dirty(void);
int journal_sync(void);
bool journal_read(uint32_t index, struct record *);
// Calls `each` for every record, oldest first, and continues behind the last good one.
void journal_replay(void (*each)(const struct record *, uint32_t index));

// Suffix '1', '2' or 'o'. Negative errno on failure.
int spool_file(uint32_t seq, char suffix, bool create);
void spool_remove(uint32_t seq);
uint64_t spool_file_size(int fd);
bool order_read(int fd, uint64_t index, struct order *);
int order_write(int fd, uint64_t index, const struct order *);
// Frees the disk below `upto`; a filesystem that cannot keeps the bytes.
void spool_punch(int fd, uint64_t upto);
uint64_t spool_free_bytes(void);
