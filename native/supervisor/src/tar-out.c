// An archive of a directory or a file: pax, sorted by name within each directory.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tar.h"
#include "worker.h"

enum { MAX_NAME = 16384, MAX_DEPTH = 4000 };

static const struct job *the_job;
static dev_t the_device;
static char name[MAX_NAME];  // of the current entry, relative
static size_t name_len;

static void octal(char *field, size_t size, uint64_t value) {
  field[size - 1] = 0;
  for (size_t i = size - 1; i-- > 0; value >>= 3) field[i] = (char)('0' + (value & 7));
}

static void seal(struct tar_header *h) {
  memcpy(h->magic, "ustar", 6);
  memcpy(h->version, "00", 2);
  memset(h->checksum, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < sizeof *h; i++) sum += ((uint8_t *)h)[i];
  octal(h->checksum, 7, sum);
  emit(h, sizeof *h);
}

static void pad(uint64_t size) {
  static const char zeros[512];
  if (size % 512) emit(zeros, 512 - size % 512);
}

// "length key=value\n", where length counts itself.
static size_t pax_record(char *into, const char *key, const char *value, size_t value_len) {
  size_t rest = strlen(key) + value_len + 3, len = rest + 1;
  for (int i = 0; i < 3; i++) {
    char digits[24];
    len = rest + (size_t)snprintf(digits, sizeof digits, "%zu", len);
  }
  size_t n = (size_t)sprintf(into, "%zu %s=", len, key);
  memcpy(into + n, value, value_len);
  into[n + value_len] = '\n';
  return len;
}

static size_t pax_number(char *into, const char *key, uint64_t value) {
  char digits[24];
  int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  return pax_record(into, key, digits, (size_t)n);
}

static void header(const struct stat *st, char type, const char *link, size_t link_len, uint64_t size) {
  static char extra[2 * MAX_NAME];
  struct tar_header h = {0};
  size_t n = 0;
  uint64_t mtime = st->st_mtim.tv_sec > 0 ? (uint64_t)st->st_mtim.tv_sec : 0;
  char when[40];
  int when_len = snprintf(when, sizeof when, "%lld.%09ld", (long long)mtime, st->st_mtim.tv_nsec);
  if (name_len > sizeof h.name) n += pax_record(extra + n, "path", name, name_len);
  if (link_len > sizeof h.link) n += pax_record(extra + n, "linkpath", link, link_len);
  if (size >> 33) n += pax_number(extra + n, "size", size);
  if (st->st_uid >> 21) n += pax_number(extra + n, "uid", st->st_uid);
  if (st->st_gid >> 21) n += pax_number(extra + n, "gid", st->st_gid);
  if (st->st_mtim.tv_nsec) n += pax_record(extra + n, "mtime", when, (size_t)when_len);
  if (n) {
    struct tar_header x = {.name = "pax", .type = 'x'};
    octal(x.mode, 8, 0644);
    octal(x.uid, 8, 0);
    octal(x.gid, 8, 0);
    octal(x.size, 12, n);
    octal(x.mtime, 12, 0);
    seal(&x);
    emit(extra, n);
    pad(n);
  }
  memcpy(h.name, name, name_len < sizeof h.name ? name_len : sizeof h.name);
  memcpy(h.link, link, link_len < sizeof h.link ? link_len : sizeof h.link);
  octal(h.mode, 8, st->st_mode & 07777);
  octal(h.uid, 8, st->st_uid >> 21 ? 0 : st->st_uid);
  octal(h.gid, 8, st->st_gid >> 21 ? 0 : st->st_gid);
  octal(h.size, 12, size >> 33 ? 0 : size);
  octal(h.mtime, 12, mtime >> 33 ? 0 : mtime);
  h.type = type;
  seal(&h);
}

// Exactly `size` bytes, as the header said: a file that shrinks meanwhile is filled with zeros.
static void contents(int fd, uint64_t size) {
  static uint8_t buffer[65536];
  for (uint64_t left = size; left > 0;) {
    size_t want = left < sizeof buffer ? (size_t)left : sizeof buffer;
    ssize_t n = read(fd, buffer, want);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      memset(buffer, 0, want);
      n = (ssize_t)want;
    }
    emit(buffer, (size_t)n);
    left -= (uint64_t)n;
  }
  pad(size);
}

static bool excluded(void) {
  for (uint16_t i = 0; i < the_job->excluded_count; i++) {
    struct span e = the_job->excluded[i];
    if (e.len == name_len && memcmp(e.data, name, name_len) == 0) return true;
  }
  return false;
}

static void add(int dir, const char *entry, int depth);

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void add_directory(int fd, int depth) {
  int own = dup(fd);
  DIR *d = own < 0 ? NULL : fdopendir(own);
  if (!d) give_up(E_SYSTEM, errno, "tar");
  char **names = NULL;
  size_t count = 0, room = 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (count == room) names = realloc(names, sizeof *names * (room = room ? room * 2 : 64));
    if (!names || !(names[count++] = strdup(e->d_name))) give_up(E_SYSTEM, ENOMEM, "tar");
  }
  closedir(d);
  qsort(names, count, sizeof *names, by_name);
  for (size_t i = 0; i < count; i++) {
    size_t before = name_len, len = strlen(names[i]);
    if (name_len + len + 2 >= MAX_NAME || depth > MAX_DEPTH) give_up(E_SYSTEM, ENAMETOOLONG, "tar");
    memcpy(name + name_len, names[i], len);
    name_len += len;
    if (!excluded()) add(fd, names[i], depth);
    name_len = before;
    free(names[i]);
  }
  free(names);
}

static void add(int dir, const char *entry, int depth) {
  struct stat st;
  char link[4096];
  if (fstatat(dir, entry, &st, AT_SYMLINK_NOFOLLOW) < 0) return;  // removed meanwhile
  if ((the_job->flags & 1) && st.st_dev != the_device) return;
  if (S_ISLNK(st.st_mode)) {
    ssize_t n = readlinkat(dir, entry, link, sizeof link);
    if (n > 0) header(&st, '2', link, (size_t)n, 0);
  } else if (S_ISFIFO(st.st_mode)) {
    header(&st, '6', "", 0, 0);
  } else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
    int fd = openat(dir, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return;
    if (fd < 0 || fstat(fd, &st) < 0) give_up(E_SYSTEM, errno, entry);
    if (S_ISREG(st.st_mode)) {
      header(&st, '0', "", 0, (uint64_t)st.st_size);
      contents(fd, (uint64_t)st.st_size);
    } else if (S_ISDIR(st.st_mode)) {
      name[name_len++] = '/';
      header(&st, '5', "", 0, 0);
      add_directory(fd, depth + 1);
      name_len--;
    }
    close(fd);
  }
}

void run_tar_out(const struct job *job) {
  static const char zeros[1024];
  struct stat st;
  the_job = job;
  int fd = path_open(job->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  if (fd >= 0) {
    if (fstat(fd, &st) < 0) give_up(E_SYSTEM, errno, "tar");
    the_device = st.st_dev;
    add_directory(fd, 0);
  } else if (errno == ENOTDIR) {
    char base[256];
    int dir = path_parent(job->path, base);
    if (dir < 0 || fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0) give_up(E_SYSTEM, errno, "tar");
    the_device = st.st_dev;
    name_len = strlen(base);
    memcpy(name, base, name_len);
    add(dir, base, 0);
  } else {
    give_up(E_SYSTEM, errno, "tar");
  }
  emit(zeros, sizeof zeros);
  finish(emitted());
}
