// Stat, list, read, write, remove, make: what a file process does.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker.h"

static const uint32_t KEEP_MODE = 0xffffffff;

static char type_letter(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return 'f';
    case S_IFDIR: return 'd';
    case S_IFLNK: return 'l';
    case S_IFCHR: return 'c';
    case S_IFBLK: return 'b';
    case S_IFIFO: return 'p';
    default: return 's';
  }
}

static void emit_entry(int dir, const char *name, const char *shown, const struct stat *st) {
  char target[4096];
  ssize_t len = S_ISLNK(st->st_mode) ? readlinkat(dir, name, target, sizeof target) : 0;
  emit_number((uint8_t)type_letter(st->st_mode), 1);
  emit_number(st->st_mode & 07777, 4);
  emit_number(st->st_uid, 4);
  emit_number(st->st_gid, 4);
  emit_number((uint64_t)st->st_size, 8);
  emit_number((uint64_t)(st->st_mtim.tv_sec * 1000000 + st->st_mtim.tv_nsec / 1000), 8);
  emit_bytes(shown, strlen(shown));
  emit_bytes(target, len > 0 ? (size_t)len : 0);
}

static void do_stat(const struct job *job) {
  char base[256] = "/";
  struct stat st;
  int fd = -1;
  if (strspn(job->path, "/") == strlen(job->path)) {
    if (stat("/", &st) < 0) give_up(E_SYSTEM, errno, "stat");
    emit_entry(AT_FDCWD, "/", "/", &st);
    finish(emitted());
  }
  int dir = path_parent(job->path, base);
  if (dir < 0) give_up(E_SYSTEM, errno, "stat");
  if (job->flags) {
    fd = path_open(job->path, O_PATH);
    if (fd < 0 || fstat(fd, &st) < 0) give_up(E_SYSTEM, errno, "stat");
  } else if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0) {
    give_up(E_SYSTEM, errno, "stat");
  }
  emit_entry(dir, base, base, &st);
  finish(emitted());
}

static void do_list(const struct job *job) {
  int fd = path_open(job->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) give_up(E_SYSTEM, errno, "list");
  for (;;) {
    errno = 0;
    struct dirent *e = readdir(d);
    if (!e && errno) give_up(E_SYSTEM, errno, "list");
    if (!e) break;
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;  // removed meanwhile
    emit_entry(fd, e->d_name, e->d_name, &st);
  }
  finish(emitted());
}

static void do_read(const struct job *job) {
  static uint8_t buffer[65536];
  struct stat st;
  int fd = path_open(job->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, &st) < 0) give_up(E_SYSTEM, errno, "read");
  if (S_ISDIR(st.st_mode)) give_up(E_SYSTEM, EISDIR, "read");
  if (!S_ISREG(st.st_mode)) give_up(E_INVALID, 0, "not a regular file");
  if (job->offset > INT64_MAX) give_up(E_INVALID, 0, "offset out of range");
  if (job->offset && lseek(fd, (off_t)job->offset, SEEK_SET) < 0) give_up(E_SYSTEM, errno, "read");
  for (uint64_t left = job->length; left > 0;) {
    ssize_t n = read(fd, buffer, left < sizeof buffer ? (size_t)left : sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up(E_SYSTEM, errno, "read");
    if (n == 0) break;
    emit(buffer, (size_t)n);
    left -= (uint64_t)n;
  }
  finish(emitted());
}

static int parent_for_writing(const struct job *job, char base[256], bool make) {
  int dir = path_parent(job->path, base);
  if (dir >= 0 || errno != ENOENT || !make) return dir;
  char parent[4096];
  memcpy(parent, job->path, sizeof parent);
  size_t len = strlen(parent);
  while (len > 1 && parent[len - 1] == '/') len--;
  while (len > 1 && parent[len - 1] != '/') len--;
  parent[len] = 0;
  return path_make_directories(parent, 0755);
}

static void do_write(const struct job *job) {
  static uint8_t buffer[65536];
  char base[256], temporary[40];
  struct stat old;
  int dir = parent_for_writing(job, base, job->flags & 1);
  if (dir < 0) give_up(E_SYSTEM, errno, "write");
  path_temporary(temporary);
  int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) give_up(E_SYSTEM, errno, "write");
  uint64_t total = 0;
  int failed = 0;
  for (size_t n; !failed && (n = take_input(buffer, sizeof buffer)) > 0; total += n)
    if (!write_all(fd, buffer, n)) failed = errno;
  if (!failed && !committed()) failed = ECANCELED;
  bool keep = job->mode == KEEP_MODE && fstatat(dir, base, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
  uint32_t mode = keep ? old.st_mode & 07777 : job->mode == KEEP_MODE ? 0644 : job->mode & 07777;
  // Keeping an owner needs privilege; without it the file is the writer's.
  if (!failed && keep && fchown(fd, old.st_uid, old.st_gid) < 0 && errno != EPERM) failed = errno;
  if (!failed && fchmod(fd, mode) < 0) failed = errno;
  if (!failed && fsync(fd) < 0) failed = errno;
  if (!failed && renameat(dir, temporary, dir, base) < 0) failed = errno;
  if (!failed) finish(total);
  unlinkat(dir, temporary, 0);
  give_up(E_SYSTEM, failed, "write");
}

static void do_remove(const struct job *job) {
  char base[256];
  int dir = path_parent(job->path, base);
  int failed = dir < 0 ? errno : 0;
  if (!failed && (job->flags & 1)) {
    failed = path_remove_all(dir, base);
  } else if (!failed && unlinkat(dir, base, 0) < 0) {
    failed = errno;
    if (failed == EISDIR || failed == EPERM) failed = unlinkat(dir, base, AT_REMOVEDIR) < 0 ? errno : 0;
  }
  if (failed == ENOENT && (job->flags & 2)) failed = 0;
  if (failed) give_up(E_SYSTEM, failed, "remove");
  finish(0);
}

static void do_mkdir(const struct job *job) {
  char base[256];
  int dir = parent_for_writing(job, base, job->flags & 1);
  if (dir < 0) give_up(E_SYSTEM, errno, "mkdir");
  if (mkdirat(dir, base, job->mode & 07777) == 0) {
    // The mode asked for, whatever the umask.
    if (fchmodat(dir, base, job->mode & 07777, 0) < 0) give_up(E_SYSTEM, errno, "mkdir");
    finish(0);
  }
  struct stat st;
  int failed = errno;
  if (failed == EEXIST && (job->flags & 1) && fstatat(dir, base, &st, 0) == 0 && S_ISDIR(st.st_mode)) finish(0);
  give_up(E_SYSTEM, failed, "mkdir");
}

void run_file_job(const struct job *job) {
  switch (job->type) {
    case FILE_STAT: do_stat(job); break;
    case FILE_LIST: do_list(job); break;
    case FILE_READ: do_read(job); break;
    case FILE_WRITE: do_write(job); break;
    case FILE_REMOVE: do_remove(job); break;
    case FILE_MKDIR: do_mkdir(job); break;
  }
  give_up(E_INVALID, 0, "no such file work");
}
