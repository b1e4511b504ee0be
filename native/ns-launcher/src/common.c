#include "common.h"

#include <dirent.h>
#include <time.h>

int error_fd = 2;
void (*on_death)(void) = NULL;

static void leave(int status, const char *message) {
  (void)!write(error_fd, message, strlen(message));
  (void)!write(error_fd, "\n", 1);
  if (on_death) {
    void (*last)(void) = on_death;
    on_death = NULL;
    last();
  }
  _exit(status);
}

void die(int status, const char *format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  leave(status, text);
  __builtin_unreachable();
}

void fail(const char *format, ...) {
  int saved = errno;
  char text[1024];
  va_list list;
  va_start(list, format);
  int used = vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (used >= 0 && (size_t)used < sizeof text)
    snprintf(text + used, sizeof text - (size_t)used, ": %s", strerror(saved));
  /* The kernel lacks the call, the flag or the filesystem: trying again changes nothing. */
  bool lacking = saved == ENOSYS || saved == EINVAL || saved == ENODEV || saved == EOPNOTSUPP || saved == EPERM;
  leave(lacking ? EXIT_REFUSED : EXIT_FAILED, text);
  __builtin_unreachable();
}

int write_at(int dirfd, const char *path, const char *text) {
  int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  ssize_t length = (ssize_t)strlen(text);
  ssize_t written = write(fd, text, (size_t)length);
  int saved = errno;
  close(fd);
  errno = saved;
  return written == length ? 0 : -1;
}

int write_path(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t length = (ssize_t)strlen(text);
  ssize_t written = write(fd, text, (size_t)length);
  int saved = errno;
  close(fd);
  errno = saved;
  return written == length ? 0 : -1;
}

ssize_t read_at(int dirfd, const char *path, char *buffer, size_t size) {
  int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  ssize_t got = read(fd, buffer, size - 1);
  int saved = errno;
  close(fd);
  errno = saved;
  if (got >= 0) buffer[got] = 0;
  return got;
}

char *format_text(const char *format, ...) {
  char *text = NULL;
  va_list list;
  va_start(list, format);
  int made = vasprintf(&text, format, list);
  va_end(list);
  if (made < 0) die(EXIT_FAILED, "out of memory");
  return text;
}

long start_time_of(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (read_at(AT_FDCWD, path, text, sizeof text) <= 0) return -1;
  char *after_name = strrchr(text, ')');
  if (!after_name || after_name[1] != ' ') return -1;
  char *field = after_name + 2;
  if (*field == 'Z' || *field == 'X') return -1;
  for (int number = 3; number < 22; number++) {
    field = strchr(field, ' ');
    if (!field) return -1;
    field++;
  }
  return strtol(field, NULL, 10);
}

/* A sandbox may nest its directories deeper than this process may open files: what is that deep is moved up first. */
enum { DEEP = 64 };

static bool move_up(int from, const char *name, int top) {
  static unsigned long number;
  for (int attempt = 0; attempt < 10000; attempt++) {
    char target[40];
    snprintf(target, sizeof target, ".up-%lu", number++);
    if (renameat(from, name, top, target) == 0) return true;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return false;
  }
  return false;
}

/* How much was moved up; -1 when something stays. */
static int remove_below(int top, int fd, int depth) {
  DIR *directory = fdopendir(fd);
  if (!directory) {
    close(fd);
    return -1;
  }
  int moved = 0;
  bool failed = false;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT || unlinkat(fd, name, AT_REMOVEDIR) == 0) continue;
    if (depth == DEEP) {
      if (move_up(fd, name, top)) moved++;
      else failed = true;
      continue;
    }
    int deeper = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int below = deeper < 0 ? -1 : remove_below(top, deeper, depth + 1);
    if (below < 0 || (unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)) failed = true;
    else moved += below;
  }
  closedir(directory);
  return failed ? -1 : moved;
}

int remove_tree_at(int dirfd, const char *name) {
  if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  int top = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (top < 0) return errno == ENOENT ? 0 : -1;
  int moved;
  do {
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    moved = fd < 0 ? -1 : remove_below(top, fd, 0);
  } while (moved > 0);
  close(top);
  if (moved < 0) return -1;
  return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

void sleep_ms(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}
