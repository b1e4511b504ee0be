// File work is done in a forked process with two descriptors: its data and its control. It may block,
// recurse and allocate; it can neither hold up the supervisor nor reach the spool.
#pragma once

#include "base.h"
#include "stream.h"

enum { DATA_FD = 0, CONTROL_FD = 1 };

struct job {
  uint8_t type, flags;
  uint32_t mode;
  uint64_t offset, length;
  char user[128];
  char path[4096];
  struct span *excluded;
  uint16_t excluded_count;
};

// Forks; the stream is then connected to the process. Zero or an errno.
int worker_start(struct stream *, const struct job *);
// Whether this is a process that only reads for a checkpoint: it goes on while all else stands still.
bool worker_reads(pid_t);
void worker_reaped(pid_t);
// Each ends the process with its verdict.
void finish(uint64_t value) __attribute__((noreturn));
void give_up(uint16_t code, int error, const char *what) __attribute__((noreturn));
void run_file_job(const struct job *) __attribute__((noreturn));
void run_tar_out(const struct job *) __attribute__((noreturn));
void run_tar_in(const struct job *) __attribute__((noreturn));
void run_scan(const struct job *) __attribute__((noreturn));
void run_read_many(const struct job *) __attribute__((noreturn));
void run_unpack(const struct job *) __attribute__((noreturn));

// Buffered output to the client; ends the process when the client is gone.
void emit(const void *, size_t);
void emit_number(uint64_t, int bytes);
void emit_bytes(const void *, size_t len);
void emit_flush(void);
uint64_t emitted(void);
// Up to `size` bytes from the client; zero at the end.
size_t take_input(void *, size_t size);
// After the end of input: whether the client meant it.
bool committed(void);

// path.c. Descriptors or -1 with errno; no magic link is ever followed.
int path_open(const char *path, int flags);
int path_open_at(int dir, const char *path, int flags, uint64_t resolve);
// The directory that holds `path`, and its last component (1-255 bytes, neither . nor ..).
int path_parent(const char *path, char base[256]);
int path_make_directories(const char *path, uint32_t mode);
// An unpredictable name for a file that is renamed when it is complete.
void path_temporary(char name[40]);
// Removes what `name` is, in `dir`, and all beneath it. Zero or an errno.
int path_remove_all(int dir, const char *name);
bool write_all(int fd, const void *, size_t);
