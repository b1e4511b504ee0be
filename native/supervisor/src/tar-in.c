// Unpacking an archive that may be hostile: nothing is made outside the target directory, nothing is
// written through a link, no device is made.
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tar.h"
#include "worker.h"

enum { MAX_NAME = 16384, MAX_PAX = 1 << 20, MAX_LATER = 65536, KEEP_OWNER = 1, KEEP_SETID = 2 };

struct entry {
  char name[MAX_NAME], link[MAX_NAME];
  bool has_name, has_link, has_size, has_uid, has_gid, has_mtime;
  uint64_t size;
  uint32_t mode, uid, gid;
  struct timespec mtime;
};

// A directory's mode and time are set last: until then it must be writable.
struct later {
  char *name;
  uint32_t mode;
  struct timespec mtime;
};

static int target = -1;
static uint8_t flags;
static struct later *laters;
static size_t later_count;

static void unsafe(const char *why, const char *name) __attribute__((noreturn));
static void unsafe(const char *why, const char *name) {
  char text[112];
  snprintf(text, sizeof text, "%s: %.60s", why, name);
  give_up(E_UNSAFE, 0, text);
}

static void read_exactly(void *into, size_t len) {
  for (uint8_t *p = into; len > 0;) {
    size_t n = take_input(p, len);
    if (n == 0) give_up(E_INVALID, 0, "the archive is cut off");
    p += n;
    len -= n;
  }
}

static void skip(uint64_t size) {
  static uint8_t sink[65536];
  for (uint64_t left = (size + 511) / 512 * 512; left > 0;) {
    size_t n = left < sizeof sink ? (size_t)left : sizeof sink;
    read_exactly(sink, n);
    left -= n;
  }
}

// Octal, or base 256 when the first bit is set.
static uint64_t number(const char *field, size_t size) {
  uint64_t v = 0;
  if ((uint8_t)field[0] & 0x80) {
    if ((uint8_t)field[0] != 0x80) give_up(E_INVALID, 0, "a number in the archive is out of range");
    for (size_t i = 1; i < size; i++) {
      if (v >> 55) give_up(E_INVALID, 0, "a number in the archive is out of range");
      v = v << 8 | (uint8_t)field[i];
    }
    return v;
  }
  size_t i = 0;
  while (i < size && field[i] == ' ') i++;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) v = v << 3 | (uint64_t)(field[i] - '0');
  return v;
}

static bool checks(const struct tar_header *h) {
  unsigned sum = 0;
  const uint8_t *p = (const uint8_t *)h;
  for (size_t i = 0; i < 512; i++) sum += i >= 148 && i < 156 ? ' ' : p[i];
  return sum == number(h->checksum, 8);
}

// Drops leading slashes and "./"; refuses "..". Empty: the target itself.
static void tidy(char *name) {
  char *out = name;
  for (const char *in = name; *in;) {
    size_t len = strcspn(in, "/");
    if (len == 2 && in[0] == '.' && in[1] == '.') unsafe("an entry leads out by ..", name);
    if (len > 255) give_up(E_SYSTEM, ENAMETOOLONG, "a name in the archive");
    bool dot = len == 1 && in[0] == '.';
    if (len > 0 && !dot) {
      if (out > name) *out++ = '/';
      memmove(out, in, len);
      out += len;
    }
    in += len;
    while (*in == '/') in++;
  }
  *out = 0;
}

// Without openat2: no symlink is followed on the way at all.
static int walk(const char *path) {
  int at = fcntl(target, F_DUPFD_CLOEXEC, 3);
  while (at >= 0 && *path) {
    char part[256];
    size_t len = strcspn(path, "/");
    memcpy(part, path, len);
    part[len] = 0;
    path += path[len] ? len + 1 : len;
    int next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    close(at);
    errno = error;
    at = next;
  }
  return at;
}

static int open_beneath(const char *path) {
  int fd = path_open_at(target, *path ? path : ".", O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
  if (fd < 0 && errno == ENOSYS) fd = walk(path);
  return fd;
}

// The directory that holds `name`, made if missing; `base` points into `name`.
static int holder(char *name, const char **base) {
  char *slash = strrchr(name, '/');
  *base = slash ? slash + 1 : name;
  if (!slash) return open_beneath("");
  *slash = 0;
  int fd = open_beneath(name);
  if (fd < 0 && errno == ENOENT) {
    const char *inner;
    int above = holder(name, &inner);
    int failed = mkdirat(above, inner, 0755) < 0 && errno != EEXIST ? errno : 0;
    // `holder` put the slash back, so the name is whole up to ours.
    close(above);
    fd = open_beneath(name);
    if (failed) give_up(E_SYSTEM, failed, "a directory of the archive");
  }
  int error = errno;
  *slash = '/';
  if (fd < 0 && (error == EXDEV || error == ELOOP || error == ENOTDIR)) unsafe("an entry lies behind a link that leads out", name);
  if (fd < 0) give_up(E_SYSTEM, error, "a directory of the archive");
  return fd;
}

static uint32_t mode_of(const struct entry *e) { return e->mode & (flags & KEEP_SETID ? 07777 : 01777); }

static void own(int dir, const char *base, const struct entry *e) {
  if ((flags & KEEP_OWNER) && fchownat(dir, base, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) < 0)
    give_up(E_SYSTEM, errno, "an owner of the archive");
}

static void stamp(int dir, const char *base, struct timespec mtime) {
  struct timespec times[2] = {mtime, mtime};
  // A time that the filesystem cannot hold is not worth failing for.
  if (utimensat(dir, base, times, AT_SYMLINK_NOFOLLOW) < 0) return;
}

static void make_way(int dir, const char *base) {
  if (unlinkat(dir, base, 0) < 0 && errno != ENOENT) give_up(E_SYSTEM, errno, "an entry in the way");
}

static void make_file(struct entry *e) {
  static uint8_t buffer[65536];
  const char *base;
  int dir = holder(e->name, &base);
  make_way(dir, base);
  int fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) give_up(E_SYSTEM, errno, "a file of the archive");
  for (uint64_t left = e->size; left > 0;) {
    size_t n = take_input(buffer, left < sizeof buffer ? (size_t)left : sizeof buffer);
    if (n == 0) give_up(E_INVALID, 0, "the archive is cut off");
    if (!write_all(fd, buffer, n)) give_up(E_SYSTEM, errno, "a file of the archive");
    left -= n;
  }
  if (e->size % 512) read_exactly(buffer, 512 - e->size % 512);
  own(dir, base, e);
  // After the owner: changing it clears the set-id bits.
  if (fchmod(fd, mode_of(e)) < 0) give_up(E_SYSTEM, errno, "a mode of the archive");
  stamp(dir, base, e->mtime);
  close(fd);
  close(dir);
}

static void make_directory(struct entry *e) {
  const char *base;
  if (!*e->name) return;
  int dir = holder(e->name, &base);
  struct stat st;
  if (mkdirat(dir, base, 0700) < 0) {
    if (errno != EEXIST || fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0) give_up(E_SYSTEM, errno, "a directory of the archive");
    if (!S_ISDIR(st.st_mode)) {
      // A link to a directory inside stays: root trees hold such links (lib -> usr/lib).
      int inside = open_beneath(e->name);
      if (inside < 0) unsafe("a directory is a link that leads out", e->name);
      close(inside);
      close(dir);
      return;
    }
  }
  own(dir, base, e);
  if (fchmodat(dir, base, (mode_of(e) | 0700) & 01777, 0) < 0) give_up(E_SYSTEM, errno, "a mode of the archive");
  close(dir);
  if (later_count == MAX_LATER) return;
  if (!laters && !(laters = malloc(sizeof *laters * MAX_LATER))) give_up(E_SYSTEM, ENOMEM, "tar");
  laters[later_count] = (struct later){strdup(e->name), mode_of(e), e->mtime};
  if (!laters[later_count++].name) give_up(E_SYSTEM, ENOMEM, "tar");
}

static void make_link(struct entry *e, bool hard) {
  const char *base, *old_base;
  int dir = holder(e->name, &base), failed = 0;
  if (hard) {
    tidy(e->link);
    if (!*e->link) unsafe("a hard link to the target itself", e->name);
    int old = holder(e->link, &old_base);
    struct stat a, b;
    bool same = fstatat(old, old_base, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstatat(dir, base, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
                a.st_ino == b.st_ino && a.st_dev == b.st_dev;
    if (!same) make_way(dir, base);
    if (!same && linkat(old, old_base, dir, base, 0) < 0) failed = errno;
    close(old);
  } else {
    make_way(dir, base);
    if (symlinkat(e->link, dir, base) < 0) failed = errno;
  }
  if (failed) give_up(E_SYSTEM, failed, "a link of the archive");
  if (!hard) {
    own(dir, base, e);
    stamp(dir, base, e->mtime);
  }
  close(dir);
}

static void make_fifo(struct entry *e) {
  const char *base;
  int dir = holder(e->name, &base);
  make_way(dir, base);
  if (mkfifoat(dir, base, mode_of(e) & 0777) < 0) give_up(E_SYSTEM, errno, "a fifo of the archive");
  own(dir, base, e);
  close(dir);
}

static void set_text(char *into, const char *from, size_t len) {
  if (len >= MAX_NAME || memchr(from, 0, len)) give_up(E_INVALID, 0, "a name in the archive cannot be used");
  memcpy(into, from, len);
  into[len] = 0;
}

static void pax_value(struct entry *e, const char *key, size_t key_len, const char *value, size_t len) {
#define KEY(k) (key_len == sizeof k - 1 && memcmp(key, k, key_len) == 0)
  char text[64] = "";
  if (len < sizeof text) memcpy(text, value, len);
  if (KEY("path")) {
    set_text(e->name, value, len);
    e->has_name = true;
  } else if (KEY("linkpath")) {
    set_text(e->link, value, len);
    e->has_link = true;
  } else if (KEY("size")) {
    e->size = strtoull(text, NULL, 10);
    e->has_size = true;
  } else if (KEY("uid")) {
    e->uid = (uint32_t)strtoull(text, NULL, 10);
    e->has_uid = true;
  } else if (KEY("gid")) {
    e->gid = (uint32_t)strtoull(text, NULL, 10);
    e->has_gid = true;
  } else if (KEY("mtime")) {
    char *point;
    e->mtime = (struct timespec){.tv_sec = strtoll(text, &point, 10)};
    long nanos = 0;
    if (*point == '.')
      for (int i = 1; i <= 9; i++) nanos = nanos * 10 + (point[i] >= '0' && point[i] <= '9' ? point[i] - '0' : (point[i] = '0', 0));
    e->mtime.tv_nsec = nanos;
    e->has_mtime = true;
  }
#undef KEY
}

static char *read_extra(uint64_t size) {
  if (size > MAX_PAX) give_up(E_INVALID, 0, "an extended header is too large");
  char *text = malloc((size_t)size + 512 + 1);
  if (!text) give_up(E_SYSTEM, ENOMEM, "tar");
  read_exactly(text, (size_t)(size + 511) / 512 * 512);
  text[size] = 0;
  return text;
}

static void read_pax(struct entry *e, uint64_t size) {
  char *text = read_extra(size), *at = text, *end = text + size;
  while (at < end) {
    char *space;
    unsigned long len = strtoul(at, &space, 10);
    if (len < 5 || len > (size_t)(end - at) || *space != ' ' || at[len - 1] != '\n') give_up(E_INVALID, 0, "an extended header is malformed");
    char *key = space + 1, *stop = at + len - 1;
    char *equals = key < stop ? memchr(key, '=', (size_t)(stop - key)) : NULL;
    if (!equals) give_up(E_INVALID, 0, "an extended header is malformed");
    pax_value(e, key, (size_t)(equals - key), equals + 1, (size_t)(stop - equals - 1));
    at += len;
  }
  free(text);
}

static void read_long(char *into, uint64_t size) {
  char *text = read_extra(size);
  set_text(into, text, strlen(text));
  free(text);
}

static void complete(struct entry *e, const struct tar_header *h) {
  if (!e->has_name) {
    bool posix = memcmp(h->magic, "ustar\0", 6) == 0;
    if (posix && h->prefix[0]) snprintf(e->name, MAX_NAME, "%.155s/%.100s", h->prefix, h->name);
    else snprintf(e->name, MAX_NAME, "%.100s", h->name);
  }
  if (!e->has_link) snprintf(e->link, MAX_NAME, "%.100s", h->link);
  if (!e->has_size) e->size = number(h->size, 12);
  if (!e->has_uid) e->uid = (uint32_t)number(h->uid, 8);
  if (!e->has_gid) e->gid = (uint32_t)number(h->gid, 8);
  if (!e->has_mtime) e->mtime = (struct timespec){.tv_sec = (time_t)number(h->mtime, 12)};
  e->mode = (uint32_t)number(h->mode, 8) & 07777;
}

static void make(struct entry *e, char type) {
  bool directory = type == '5' || (type != '1' && type != '2' && *e->name && e->name[strlen(e->name) - 1] == '/');
  bool has_data = type == '0' || type == 0 || type == '7';
  tidy(e->name);
  if (type == '3' || type == '4') unsafe("a device", e->name);
  if (!*e->name && !directory) unsafe("an entry without a name", "");
  if (directory) make_directory(e);
  else if (has_data) make_file(e);
  else if (type == '1' || type == '2') make_link(e, type == '1');
  else if (type == '6') make_fifo(e);
  else give_up(E_INVALID, 0, "an entry of the archive has an unknown type");
  if (directory || !has_data) skip(e->size);
}

static void apply_later(void) {
  while (later_count > 0) {
    struct later *l = &laters[--later_count];
    const char *base;
    int dir = holder(l->name, &base);
    struct stat st;
    // Only what is still a directory of ours: a later entry may have put a link in its place.
    if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
      int fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (fd >= 0 && fchmod(fd, l->mode) < 0) give_up(E_SYSTEM, errno, "a mode of the archive");
      close_fd(&fd);
      stamp(dir, base, l->mtime);
    }
    close(dir);
  }
}

void run_tar_in(const struct job *job) {
  static struct entry e;
  struct tar_header h;
  uint64_t made = 0;
  flags = job->flags;
  target = path_make_directories(job->path, 0755);
  if (target < 0) give_up(E_SYSTEM, errno, "the target directory");
  for (;;) {
    read_exactly(&h, sizeof h);
    static const struct tar_header zero;
    if (memcmp(&h, &zero, sizeof h) == 0) break;
    if (!checks(&h)) give_up(E_INVALID, 0, "not a tar archive");
    uint64_t size = number(h.size, 12);
    if (h.type == 'x') read_pax(&e, size);
    else if (h.type == 'g') skip(size);
    else if (h.type == 'L') read_long(e.name, size), e.has_name = true;
    else if (h.type == 'K') read_long(e.link, size), e.has_link = true;
    else {
      complete(&e, &h);
      make(&e, h.type);
      made++;
      memset(&e, 0, sizeof e);
    }
  }
  static uint8_t rest[65536];
  while (take_input(rest, sizeof rest) > 0) continue;
  apply_later();
  if (!committed()) give_up(E_SYSTEM, ECANCELED, "tar");
  finish(made);
}
