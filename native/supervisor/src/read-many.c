// The bytes of many files, one after the other: paths come in, blocks go out. Blocks are aligned and those
// that hold nothing but zeros are left out, so that a file is the same wherever its holes are.
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker.h"

enum { BLOCK = 65536, MAX_PATH = 4096 };

static uint64_t ns(struct timespec t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec; }

static bool read_exactly(void *into, size_t len, bool may_end) {
  for (uint8_t *p = into; len > 0;) {
    size_t n = take_input(p, len);
    if (n == 0 && may_end && p == into) return false;
    if (n == 0) give_up(E_INVALID, 0, "the list of files is cut off");
    p += n;
    len -= n;
  }
  return true;
}

static void emit_status(char kind, const struct stat *st) {
  emit_number((uint8_t)kind, 1);
  emit_number((uint64_t)st->st_size, 8);
  emit_number(ns(st->st_mtim), 8);
  emit_number(ns(st->st_ctim), 8);
  emit_number(st->st_ino, 8);
}

static bool all_zero(const uint8_t *block, size_t len) { return block[0] == 0 && memcmp(block, block + 1, len - 1) == 0; }

// A block may come in pieces; only a short one at the end of the file is not whole.
static size_t read_block(int fd, uint8_t *block, uint64_t at) {
  size_t len = 0;
  while (len < BLOCK) {
    ssize_t n = pread(fd, block + len, BLOCK - len, (off_t)(at + len));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up(E_SYSTEM, errno, "a file cannot be read");
    if (n == 0) break;
    len += (size_t)n;
  }
  return len;
}

static void send_blocks(int fd) {
  static uint8_t block[BLOCK];
  for (uint64_t at = 0;;) {
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;
    if (data > 0) at = (uint64_t)data / BLOCK * BLOCK;
    size_t len = read_block(fd, block, at);
    if (len == 0) return;
    if (!all_zero(block, len)) {
      emit_number('D', 1);
      emit_number(at, 8);
      emit_bytes(block, len);
    }
    if (len < BLOCK) return;
    at += BLOCK;
  }
}

static void send_file(int root, const char *path) {
  struct stat st;
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_NOATIME;
  int fd = path_open_at(root, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
  // Not the owner: its time of reading may change then.
  if (fd < 0 && errno == EPERM)
    fd = path_open_at(root, path, flags & ~O_NOATIME, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
  if (fd < 0 && errno == ENOSYS) fd = openat(root, path, (flags & ~O_NOATIME) | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  if (!error && fstat(fd, &st) < 0) error = errno;
  if (!error && !S_ISREG(st.st_mode)) error = EINVAL;
  if (error) {
    emit_number('X', 1);
    emit_number((uint64_t)error, 4);
  } else {
    emit_status('F', &st);
    send_blocks(fd);
    if (fstat(fd, &st) < 0) give_up(E_SYSTEM, errno, "a file cannot be read");
    emit_status('E', &st);
  }
  close_fd(&fd);
}

void run_read_many(const struct job *job) {
  (void)job;
  char path[MAX_PATH];
  uint8_t length[4];
  int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) give_up(E_SYSTEM, errno, "read");
  while (read_exactly(length, sizeof length, true)) {
    uint32_t len = load_u32(length);
    if (len < 1 || len >= sizeof path) give_up(E_INVALID, 0, "a path is 1-4095 bytes");
    read_exactly(path, len, false);
    path[len] = 0;
    if (strlen(path) != len || path[0] == '/') give_up(E_INVALID, 0, "a path cannot be used");
    send_file(root, path);
  }
  finish(emitted());
}
