// Puts a checkpoint's files back: entry after entry, in the order of their paths, into a sandbox in which
// nothing runs yet. Nothing is made behind a link, no device is made.
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_PATH = 4096, MAX_DEPTH = 2048, MAX_VALUE = 65536, MAX_PIECE = 1 << 20, MAX_XATTRS = 16 * MAX_VALUE };

struct entry {
  uint8_t type;
  uint32_t mode, uid, gid;
  uint64_t size;
  struct timespec mtime;
  char path[MAX_PATH], link[MAX_PATH];
  uint32_t path_len;
};

// A directory's mode and times are set when everything beneath it is made.
struct open_directory {
  char *path;
  uint32_t mode;
  struct timespec mtime;
};

static int root = -1;
static struct open_directory open_directories[MAX_DEPTH];
static size_t depth;
static char problem[112];

static void fail_at(const char *what, const char *path, int error) __attribute__((noreturn));
static void fail_at(const char *what, const char *path, int error) {
  snprintf(problem, sizeof problem, "%s /%.60s", what, path);
  give_up(error ? E_SYSTEM : E_UNSAFE, error, problem);
}

static void read_exactly(void *into, size_t len) {
  for (uint8_t *p = into; len > 0;) {
    size_t n = take_input(p, len);
    if (n == 0) give_up(E_INVALID, 0, "the checkpoint is cut off");
    p += n;
    len -= n;
  }
}

static uint64_t read_number(int bytes) {
  uint8_t b[8] = {0};
  read_exactly(b, (size_t)bytes);
  return load_u64(b);
}

static uint32_t read_text(char *into, size_t size) {
  uint32_t len = (uint32_t)read_number(4);
  if (len >= size) give_up(E_INVALID, 0, "a name of the checkpoint is too long");
  read_exactly(into, len);
  into[len] = 0;
  if (strlen(into) != len) give_up(E_INVALID, 0, "a name of the checkpoint cannot be used");
  return len;
}

static void check_path(const char *path) {
  if (!*path) return;
  for (const char *at = path;;) {
    size_t len = strcspn(at, "/");
    bool dots = (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.');
    if (len == 0 || len > 255 || dots) fail_at("a path that cannot be used:", path, 0);
    if (!at[len]) return;
    at += len + 1;
  }
}

static struct timespec time_of(uint64_t ns) {
  int64_t t = (int64_t)ns, seconds = t / 1000000000, rest = t % 1000000000;
  if (rest < 0) seconds--, rest += 1000000000;
  return (struct timespec){.tv_sec = seconds, .tv_nsec = (long)rest};
}

// Of one entry: each name with its end, the length of its value, its value.
static char xattrs[MAX_XATTRS];
static size_t xattrs_len;

// They follow the entry in the stream.
static void read_xattrs(void) {
  xattrs_len = 0;
  for (uint16_t count = (uint16_t)read_number(2); count > 0; count--) {
    if (sizeof xattrs - xattrs_len < MAX_VALUE + 512) give_up(E_INVALID, 0, "too many attributes of the checkpoint");
    xattrs_len += read_text(xattrs + xattrs_len, 256) + 1;
    uint32_t len = (uint32_t)read_number(4);
    if (len > MAX_VALUE) give_up(E_INVALID, 0, "an attribute of the checkpoint is too long");
    memcpy(xattrs + xattrs_len, &len, sizeof len);
    read_exactly(xattrs + xattrs_len + sizeof len, len);
    xattrs_len += sizeof len + len;
  }
}

static void read_entry(struct entry *e, uint8_t type) {
  e->type = type;
  e->mode = (uint32_t)read_number(4) & 07777;
  e->uid = (uint32_t)read_number(4);
  e->gid = (uint32_t)read_number(4);
  e->size = read_number(8);
  e->mtime = time_of(read_number(8));
  e->path_len = read_text(e->path, sizeof e->path);
  read_text(e->link, sizeof e->link);
  check_path(e->path);
  read_xattrs();
}

static int open_directory(const char *path) {
  int fd = path_open_at(root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                        RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
  if (fd >= 0 || errno != ENOSYS) return fd;
  // Without openat2 each step is taken by itself.
  char part[256];
  fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd >= 0 && *path) {
    size_t len = strcspn(path, "/");
    memcpy(part, path, len);
    part[len] = 0;
    path += path[len] ? len + 1 : len;
    int next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    close(fd);
    errno = error;
    fd = next;
  }
  return fd;
}

// The directory that holds the path, made if missing and `make`; -1 when it is missing.
static int holder(char *path, const char **base, bool make) {
  char *slash = strrchr(path, '/');
  *base = slash ? slash + 1 : path;
  if (slash) *slash = 0;
  int fd = open_directory(slash ? path : "");
  int error = fd < 0 ? errno : 0;
  if (fd < 0 && error == ENOENT && make && slash) {
    const char *inner;
    int above = holder(path, &inner, true);
    if (mkdirat(above, inner, 0755) < 0) fail_at("cannot make", path, errno);
    close(above);
    fd = open_directory(path);
    error = fd < 0 ? errno : 0;
  }
  if (slash) *slash = '/';
  if (error == ELOOP || error == ENOTDIR || error == EXDEV) {
    // What is no directory here, or behind a link, does not hold what is to be removed.
    if (make) fail_at("a directory is something else in this sandbox, on the way to", path, 0);
    return -1;
  }
  if (error && (make || error != ENOENT)) fail_at("cannot open the directory of", path, error);
  return fd;
}

static void stamp(int dir, const char *base, struct timespec mtime, const char *path) {
  struct timespec times[2] = {mtime, mtime};
  if (utimensat(dir, base, times, AT_SYMLINK_NOFOLLOW) < 0) fail_at("cannot set the time of", path, errno);
}

// After the owner and the bytes: changing either clears some.
static void set_xattrs(int dir, const char *base, const char *path) {
  if (xattrs_len && fchdir(dir) < 0) fail_at("cannot enter the directory of", path, errno);
  for (size_t at = 0; at < xattrs_len;) {
    const char *name = xattrs + at;
    uint32_t len;
    at += strlen(name) + 1;
    memcpy(&len, xattrs + at, sizeof len);
    at += sizeof len;
    if (lsetxattr(base, name, xattrs + at, len, 0) < 0) fail_at("cannot set an attribute of", path, errno);
    at += len;
  }
}

static void clear_way(int dir, const char *base, const char *path) {
  int failed = path_remove_all(dir, base);
  if (failed && failed != ENOENT) fail_at("cannot make way for", path, failed);
}

static void own(int dir, const char *base, const struct entry *e) {
  if (fchownat(dir, base, e->uid, e->gid, AT_SYMLINK_NOFOLLOW) < 0) fail_at("cannot set the owner of", e->path, errno);
}

// A file that stands alone is filled anew where it is: its directory is not touched.
static int open_file(int dir, const char *base, const char *path) {
  struct stat st;
  if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISREG(st.st_mode) && st.st_nlink == 1) {
      int fd = openat(dir, base, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (fd >= 0) return fd;
    }
    clear_way(dir, base, path);
  }
  int fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) fail_at("cannot make", path, errno);
  return fd;
}

static void fill(int fd, const struct entry *e) {
  static uint8_t piece[MAX_PIECE];
  for (uint32_t len; (len = (uint32_t)read_number(4));) {
    uint64_t at = read_number(8);
    if (len > sizeof piece || at > e->size || len > e->size - at) give_up(E_INVALID, 0, "bytes beyond the end of a file");
    read_exactly(piece, len);
    for (size_t done = 0; done < len;) {
      ssize_t n = pwrite(fd, piece + done, len - done, (off_t)(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_at("cannot write", e->path, n < 0 ? errno : EIO);
      done += (size_t)n;
    }
  }
  if (e->size > INT64_MAX || ftruncate(fd, (off_t)e->size) < 0) fail_at("cannot size", e->path, errno);
}

static void make_file(struct entry *e) {
  const char *base;
  int dir = holder(e->path, &base, true);
  int fd = open_file(dir, base, e->path);
  own(dir, base, e);
  fill(fd, e);
  set_xattrs(dir, base, e->path);
  // After the owner and the bytes: changing either clears the set-id bits.
  if (fchmod(fd, e->mode) < 0) fail_at("cannot set the mode of", e->path, errno);
  close(fd);
  stamp(dir, base, e->mtime, e->path);
  close(dir);
}

static void make_directory(struct entry *e) {
  const char *base = ".";
  int dir = *e->path ? holder(e->path, &base, true) : open_directory("");
  struct stat st;
  if (dir < 0) fail_at("cannot open", e->path, errno);
  if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
    clear_way(dir, base, e->path);
    if (mkdirat(dir, base, 0700) < 0) fail_at("cannot make", e->path, errno);
  }
  own(dir, base, e);
  set_xattrs(dir, base, e->path);
  close(dir);
  if (depth == MAX_DEPTH) fail_at("too deep a tree at", e->path, ENAMETOOLONG);
  open_directories[depth++] = (struct open_directory){strdup(e->path), e->mode, e->mtime};
}

static void close_directory(void) {
  struct open_directory *d = &open_directories[--depth];
  int fd = d->path ? open_directory(d->path) : -1;
  if (fd < 0 || fchmod(fd, d->mode) < 0) fail_at("cannot set the mode of", d->path ? d->path : "", errno);
  stamp(fd, ".", d->mtime, d->path);
  close(fd);
  free(d->path);
}

static void close_directories_before(const struct entry *e) {
  while (depth > 0) {
    const char *top = open_directories[depth - 1].path;
    size_t len = strlen(top);
    bool inside = len == 0 || (strncmp(e->path, top, len) == 0 && e->path[len] == '/');
    if (inside) return;
    close_directory();
  }
}

static void make_link(struct entry *e) {
  const char *base, *old_base;
  int dir = holder(e->path, &base, true), failed = 0;
  clear_way(dir, base, e->path);
  if (e->type == 'h') {
    check_path(e->link);
    int old = *e->link ? holder(e->link, &old_base, false) : -1;
    if (old < 0 || linkat(old, old_base, dir, base, 0) < 0) failed = old < 0 ? ENOENT : errno;
    close_fd(&old);
  } else if (e->type == 'l') {
    if (symlinkat(e->link, dir, base) < 0) failed = errno;
  } else if (mkfifoat(dir, base, 0600) < 0) {
    failed = errno;
  }
  if (failed) fail_at("cannot make", e->path, failed);
  if (e->type != 'h') own(dir, base, e);
  set_xattrs(dir, base, e->path);
  if (e->type == 'p' && fchmodat(dir, base, e->mode, 0) < 0) fail_at("cannot set the mode of", e->path, errno);
  if (e->type != 'h') stamp(dir, base, e->mtime, e->path);
  close(dir);
}

static void remove_entry(struct entry *e) {
  const char *base;
  int dir = *e->path ? holder(e->path, &base, false) : -1;
  if (dir >= 0) clear_way(dir, base, e->path);
  close_fd(&dir);
}

void run_unpack(const struct job *job) {
  (void)job;
  static struct entry e;
  uint64_t made = 0;
  root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) give_up(E_SYSTEM, errno, "unpack");
  umask(0);
  for (uint8_t type; (type = (uint8_t)read_number(1)) != 'z'; made++) {
    read_entry(&e, type);
    close_directories_before(&e);
    if (type == 'd') make_directory(&e);
    else if (!*e.path) fail_at("an entry without a name", "", 0);
    else if (type == 'f') make_file(&e);
    else if (type == 'l' || type == 'p' || type == 'h') make_link(&e);
    else if (type == 'w') remove_entry(&e);
    else give_up(E_INVALID, 0, "an entry of an unknown type");
  }
  while (depth > 0) close_directory();
  uint8_t rest;
  if (take_input(&rest, 1) > 0) give_up(E_INVALID, 0, "bytes after the end of the checkpoint");
  if (!committed()) give_up(E_SYSTEM, ECANCELED, "unpack");
  finish(made);
}
