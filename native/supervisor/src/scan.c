// What the workload has changed: every entry of the root whose status is newer than the sandbox, in the
// order of its path, with everything that makes it what it is but its bytes.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "freeze.h"
#include "worker.h"

enum { MAX_PATH = 4096, MAX_DEPTH = 2000, MAX_MAPPED = 65536, MAX_XATTRS = 65536, ENTRY_MAPPED = 1 };

struct mount {
  char *path;
  bool walked;
};

static const struct job *the_job;
static uint64_t since;
static char path[MAX_PATH + 256];
static size_t path_len;
static struct mount *mounts;
static size_t mount_count;
static uint64_t mapped[MAX_MAPPED];
static size_t mapped_count;
static bool must_sync;
// Whatever is changed on an overlay is first copied up with every directory above it, which is newer then:
// beneath an older one there is nothing to find.
static bool copies_up;
static uint64_t entries;
// Of the entry that is looked at, as they are sent.
static uint8_t attributes[8 * MAX_XATTRS];
static size_t attributes_len, attribute_count;

static uint64_t ns(struct timespec t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec; }

// "\040" and the like, as mountinfo writes them.
static void unescape(char *text) {
  char *out = text;
  for (char *in = text; *in;) {
    unsigned code;
    if (in[0] == '\\' && sscanf(in + 1, "%3o", &code) == 1) {
      *out++ = (char)code;
      in += 4;
    } else {
      *out++ = *in++;
    }
  }
  *out = 0;
}

// Mounts of the root's own kind are parts of the root (one overlay for each tree); all others are not ours.
static void read_mounts(void) {
  char *line = NULL, root_kind[64] = "";
  size_t room = 0;
  FILE *f = fopen("/proc/self/mountinfo", "re");
  if (!f) give_up(E_SYSTEM, errno, "the mounts cannot be listed");
  for (int pass = 0; pass < 2; pass++) {
    rewind(f);
    while (getline(&line, &room, f) > 0) {
      char at[MAX_PATH], kind[64];
      char *dash = strstr(line, " - ");
      if (sscanf(line, "%*s %*s %*s %*s %4095s", at) != 1 || !dash || sscanf(dash, " - %63s", kind) != 1) continue;
      unescape(at);
      if (strcmp(at, "/") == 0) {
        memcpy(root_kind, kind, sizeof kind);
        // A directory that may be moved without a copy takes old entries along.
        copies_up = strcmp(kind, "overlay") == 0 && !strstr(dash, "redirect_dir=on");
      }
      if (pass == 0 || strcmp(at, "/") == 0) continue;
      mounts = realloc(mounts, sizeof *mounts * (mount_count + 1));
      if (!mounts) give_up(E_SYSTEM, ENOMEM, "scan");
      mounts[mount_count++] = (struct mount){strdup(at + 1), strcmp(kind, root_kind) == 0};
    }
  }
  free(line);
  fclose(f);
}

// Files that a process has mapped to write: their bytes may change while their times do not.
static void read_maps(pid_t pid) {
  char name[64], *line = NULL;
  size_t room = 0;
  snprintf(name, sizeof name, "/proc/%d/maps", pid);
  FILE *f = fopen(name, "re");
  int error = f ? 0 : errno;
  while (f && getline(&line, &room, f) > 0) {
    char perms[8];
    unsigned long long inode;
    if (sscanf(line, "%*s %7s %*s %*s %llu", perms, &inode) != 2) continue;
    if (perms[1] != 'w' || perms[3] != 's' || !inode) continue;
    if (mapped_count == MAX_MAPPED) must_sync = true;
    else mapped[mapped_count++] = inode;
  }
  if (f && ferror(f)) error = errno;
  if (error && error != ENOENT && error != ESRCH) must_sync = true;
  if (f) fclose(f);
  free(line);
}

static int by_number(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static void read_all_maps(void) {
  DIR *d = opendir("/proc");
  must_sync = !d;
  for (struct dirent *e; d && (e = readdir(d));) {
    pid_t pid = atoi(e->d_name);
    if (pid > 0 && pid != getpid() && pid != getppid()) read_maps(pid);
  }
  if (d) closedir(d);
  qsort(mapped, mapped_count, sizeof *mapped, by_number);
}

static bool is_mapped(uint64_t inode) {
  return bsearch(&inode, mapped, mapped_count, sizeof *mapped, by_number) != NULL;
}

static bool kept(const char *name) {
  return (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0) ||
         strcmp(name, "security.capability") == 0 || strcmp(name, "system.posix_acl_access") == 0 ||
         strcmp(name, "system.posix_acl_default") == 0;
}

// Removed or replaced between two looks at it, which only happens while the workload runs.
static bool is_gone(int error) {
  return error == ENOENT || (!frozen() && (error == ENODATA || error == ENOTDIR || error == ELOOP || error == EINVAL));
}

static void keep_bytes(const void *data, size_t len) {
  if (attributes_len + 4 + len > sizeof attributes) give_up(E_SYSTEM, E2BIG, "the attributes of a file");
  store_u32(attributes + attributes_len, (uint32_t)len);
  memcpy(attributes + attributes_len + 4, data, len);
  attributes_len += 4 + len;
}

// The current directory is the one that holds the entry: these calls know no descriptor. Read before anything
// is sent of the entry, which may take any time. False when it is gone.
static bool read_xattrs(const char *name) {
  static char names[MAX_XATTRS], value[MAX_XATTRS];
  attributes_len = attribute_count = 0;
  ssize_t size = llistxattr(name, names, sizeof names);
  if (size < 0 && is_gone(errno)) return false;
  if (size < 0 && errno != ENOTSUP && errno != EPERM) give_up(E_SYSTEM, errno, "the attributes of a file");
  for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1) {
    if (!kept(names + at)) continue;
    ssize_t len = lgetxattr(name, names + at, value, sizeof value);
    if (len < 0 && is_gone(errno)) continue;
    if (len < 0) give_up(E_SYSTEM, errno, "an attribute of a file");
    keep_bytes(names + at, strlen(names + at));
    keep_bytes(value, (size_t)len);
    attribute_count++;
  }
  return true;
}

static char letter(mode_t mode) {
  if (S_ISREG(mode)) return 'f';
  if (S_ISDIR(mode)) return 'd';
  if (S_ISLNK(mode)) return 'l';
  if (S_ISFIFO(mode)) return 'p';
  return 0;  // a socket is nothing without its process, a device not the sandbox's to make
}

static void emit_entry(int dir, const char *name, const struct stat *st, bool all) {
  char target[MAX_PATH];
  ssize_t link = 0;
  char type = letter(st->st_mode);
  if (!type || (ns(st->st_ctim) <= since && !all)) return;
  if (S_ISLNK(st->st_mode)) link = readlinkat(dir, name, target, sizeof target);
  if (link < 0 || fchdir(dir) < 0) {
    if (is_gone(errno)) return;
    give_up(E_SYSTEM, errno, "scan");
  }
  if (!read_xattrs(name)) return;
  entries++;
  emit_number((uint8_t)type, 1);
  emit_number(is_mapped(st->st_ino) ? ENTRY_MAPPED : 0, 1);
  emit_number(st->st_mode & 07777, 4);
  emit_number(st->st_uid, 4);
  emit_number(st->st_gid, 4);
  emit_number(st->st_nlink > UINT32_MAX ? UINT32_MAX : st->st_nlink, 4);
  emit_number(S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0, 8);
  emit_number(ns(st->st_mtim), 8);
  emit_number(ns(st->st_ctim), 8);
  emit_number(st->st_dev, 8);
  emit_number(st->st_ino, 8);
  emit_bytes(path, path_len);
  emit_bytes(target, (size_t)link);
  emit_number(attribute_count, 2);
  emit(attributes, attributes_len);
}

static bool is_excluded(void) {
  for (uint16_t i = 0; i < the_job->excluded_count; i++) {
    struct span e = the_job->excluded[i];
    if (e.len == path_len && memcmp(e.data, path, path_len) == 0) return true;
  }
  return false;
}

static const struct mount *mount_here(void) {
  // Stacked mounts: the last one named is the one in sight.
  for (size_t i = mount_count; i-- > 0;)
    if (strlen(mounts[i].path) == path_len && memcmp(mounts[i].path, path, path_len) == 0) return &mounts[i];
  return NULL;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void walk(int fd, int depth, bool all);

// The sandbox's root reads whatever is the sandbox's. What it may not read came to be on the host, beneath:
// to be seen where the host's users are not the sandbox's, all as nobody.
static bool is_hosts(int dir, const char *name, const struct stat *st, bool all) {
  enum { NOBODY = 65534 };
  if (st->st_uid != NOBODY || (ns(st->st_ctim) <= since && !all)) return false;
  if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) return false;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno == EACCES;
  close(fd);
  return false;
}

static void visit(int dir, const char *name, int depth, bool all) {
  struct stat st;
  const struct mount *mount = mount_here();
  if (is_excluded() || (mount && !mount->walked)) return;
  if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
    if (errno == ENOENT) return;  // removed meanwhile
    give_up(E_SYSTEM, errno, "scan");
  }
  if (is_hosts(dir, name, &st, all)) return;
  emit_entry(dir, name, &st, all);
  if (!S_ISDIR(st.st_mode)) return;
  bool changed = ns(st.st_ctim) > since;
  if (copies_up && !changed && !mount && !all) return;
  // Newer, but nothing was added or removed: it may have been moved here with all that it holds.
  if (!copies_up && changed && ns(st.st_mtim) <= since) all = true;
  int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && is_gone(errno)) return;
  if (fd < 0) give_up(E_SYSTEM, errno, path);
  walk(fd, depth + 1, all);
}

static void walk(int fd, int depth, bool all) {
  DIR *d = fdopendir(fd);
  if (!d || depth > MAX_DEPTH) give_up(E_SYSTEM, d ? ENAMETOOLONG : errno, "scan");
  char **names = NULL;
  size_t count = 0, room = 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (count == room) names = realloc(names, sizeof *names * (room = room ? room * 2 : 64));
    if (!names || !(names[count++] = strdup(e->d_name))) give_up(E_SYSTEM, ENOMEM, "scan");
  }
  if (count > 1) qsort(names, count, sizeof *names, by_name);
  for (size_t i = 0; i < count; i++) {
    size_t before = path_len, len = strlen(names[i]);
    if (path_len + len + 2 >= MAX_PATH) give_up(E_SYSTEM, ENAMETOOLONG, "a path of the sandbox");
    if (path_len) path[path_len++] = '/';
    memcpy(path + path_len, names[i], len + 1);
    path_len += len;
    visit(fd, names[i], depth, all);
    path_len = before;
    path[path_len] = 0;
    free(names[i]);
  }
  free(names);
  closedir(d);
}

void run_scan(const struct job *job) {
  struct rlimit files;
  struct stat st;
  the_job = job;
  since = job->offset ? job->offset : record_since_ns();
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  read_mounts();
  read_all_maps();
  int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0 || fstat(root, &st) < 0) give_up(E_SYSTEM, errno, "scan");
  // Written back, a page is protected again: the next store to it changes the file's times.
  for (size_t i = 0; must_sync && i < mount_count; i++) {
    int fd = mounts[i].walked ? openat(root, mounts[i].path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd >= 0 && syncfs(fd) < 0) give_up(E_SYSTEM, errno, "scan");
    close_fd(&fd);
  }
  if (must_sync && syncfs(root) < 0) give_up(E_SYSTEM, errno, "scan");
  emit_number(now_us() * 1000, 8);
  emit_number(since, 8);
  emit_number(must_sync, 1);
  emit_entry(root, ".", &st, false);
  walk(root, 0, false);
  emit_number('z', 1);
  emit_number(entries, 8);
  finish(emitted());
}
