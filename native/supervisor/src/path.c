#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker.h"

enum { MAX_DEPTH = 8000 };

int path_open_at(int dir, const char *path, int flags, uint64_t resolve) {
  struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC, .resolve = resolve};
  return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

int path_open(const char *path, int flags) {
  int fd = path_open_at(AT_FDCWD, path, flags, RESOLVE_NO_MAGICLINKS);
  // Kernels without openat2: this process holds no descriptor through which a magic link could lead out.
  if (fd < 0 && errno == ENOSYS) fd = open(path, flags | O_CLOEXEC);
  return fd;
}

int path_parent(const char *path, char base[256]) {
  char dir[4096];
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/') len--;
  size_t cut = len;
  while (cut > 0 && path[cut - 1] != '/') cut--;
  size_t base_len = len - cut;
  if (path[0] != '/' || base_len < 1 || base_len > 255) {
    errno = EINVAL;
    return -1;
  }
  memcpy(base, path + cut, base_len);
  base[base_len] = 0;
  if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0) {
    errno = EINVAL;
    return -1;
  }
  memcpy(dir, path, cut);
  dir[cut] = 0;
  return path_open(dir, O_PATH | O_DIRECTORY);
}

int path_make_directories(const char *path, uint32_t mode) {
  int at = path_open("/", O_PATH | O_DIRECTORY);
  while (at >= 0) {
    while (*path == '/') path++;
    if (!*path) return at;
    char name[256];
    size_t len = strcspn(path, "/");
    if (len > 255) {
      close(at);
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(name, path, len);
    name[len] = 0;
    path += len;
    int next = -1;
    if (mkdirat(at, name, mode) == 0 || errno == EEXIST) {
      next = path_open_at(at, name, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
      if (next < 0 && errno == ENOSYS) next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    int error = errno;
    close(at);
    errno = error;
    at = next;
  }
  return -1;
}

void path_temporary(char name[40]) {
  uint64_t random[2];
  if (getrandom(random, sizeof random, 0) != sizeof random) random[0] = now_us(), random[1] = (uint64_t)getpid();
  snprintf(name, 40, ".vmux-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
}

bool write_all(int fd, const void *data, size_t len) {
  for (const char *p = data; len > 0;) {
    ssize_t n = write(fd, p, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    len -= (size_t)n;
  }
  return true;
}

struct entry {
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[];
};

static int remove_at(int dir, const char *name, int depth);

// Files go at once; a directory is emptied first, then everything is read anew. The buffer is shared
// by all depths: nothing in it is used after a deeper one has run.
static int remove_contents(int dir, int depth) {
  static char buffer[32768] __attribute__((aligned(8)));
  for (;;) {
    char inner[256] = "";
    bool removed = false;
    if (lseek(dir, 0, SEEK_SET) < 0) return errno;
    long n = syscall(SYS_getdents64, dir, buffer, sizeof buffer);
    if (n < 0) return errno;
    for (long at = 0; at < n && !*inner;) {
      struct entry *e = (struct entry *)(buffer + at);
      at += e->length;
      if (strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0) continue;
      removed = true;
      if (unlinkat(dir, e->name, 0) == 0 || errno == ENOENT) continue;
      if (errno != EISDIR && errno != EPERM) return errno;
      snprintf(inner, sizeof inner, "%s", e->name);
    }
    int failed = *inner ? remove_at(dir, inner, depth + 1) : 0;
    if (failed && failed != ENOENT) return failed;
    if (!removed) return 0;
  }
}

static int remove_at(int dir, const char *name, int depth) {
  if (unlinkat(dir, name, 0) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return errno;
  if (depth > MAX_DEPTH) return ENAMETOOLONG;
  int inner = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inner < 0) return errno;
  int failed = remove_contents(inner, depth);
  close(inner);
  if (failed) return failed;
  return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? errno : 0;
}

int path_remove_all(int dir, const char *name) { return remove_at(dir, name, 0); }
