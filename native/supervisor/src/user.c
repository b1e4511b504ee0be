#include "user.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Lines of a file the sandbox may have written: bounded, anything odd is skipped.
struct lines {
  int fd;
  char buffer[8192];
  size_t start, end;
  bool skipping;
};

static char *next_line(struct lines *l) {
  for (;;) {
    char *newline = memchr(l->buffer + l->start, '\n', l->end - l->start);
    if (newline) {
      char *line = l->buffer + l->start;
      *newline = 0;
      l->start = (size_t)(newline - l->buffer) + 1;
      if (l->skipping) l->skipping = false;
      else return line;
      continue;
    }
    if (l->start == 0 && l->end == sizeof l->buffer - 1) {
      l->skipping = true;
      l->end = 0;
    }
    memmove(l->buffer, l->buffer + l->start, l->end - l->start);
    l->end -= l->start;
    l->start = 0;
    ssize_t n = read(l->fd, l->buffer + l->end, sizeof l->buffer - 1 - l->end);
    if (n <= 0) return NULL;
    l->end += (size_t)n;
  }
}

// Splits at colons; returns how many fields there are.
static int fields(char *line, char *out[], int max) {
  int n = 0;
  while (n < max) {
    out[n++] = line;
    line = strchr(line, ':');
    if (!line) break;
    *line++ = 0;
  }
  return n;
}

static bool number(const char *s, uint32_t *out) {
  if (*s < '0' || *s > '9') return false;
  char *end;
  unsigned long v = strtoul(s, &end, 10);
  if (*end || v >= 0xffffffff) return false;
  *out = (uint32_t)v;
  return true;
}

static bool lines_open(struct lines *l, const char *path) {
  memset(l, 0, sizeof *l);
  l->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  return l->fd >= 0;
}

static bool find_passwd(const char *name, bool by_uid, uint32_t uid, struct identity *who, char *found, size_t size) {
  struct lines l;
  bool hit = false;
  if (!lines_open(&l, "/etc/passwd")) return false;
  for (char *line; !hit && (line = next_line(&l));) {
    char *f[7];
    uint32_t u, g;
    if (fields(line, f, 7) < 4 || !number(f[2], &u) || !number(f[3], &g)) continue;
    if (by_uid ? u != uid : strcmp(f[0], name) != 0) continue;
    who->uid = u;
    who->gid = g;
    snprintf(found, size, "%s", f[0]);
    hit = true;
  }
  close(l.fd);
  return hit;
}

static bool find_group(const char *name, gid_t *gid) {
  struct lines l;
  bool hit = false;
  if (!lines_open(&l, "/etc/group")) return false;
  for (char *line; !hit && (line = next_line(&l));) {
    char *f[4];
    uint32_t g;
    if (fields(line, f, 4) < 3 || strcmp(f[0], name) != 0 || !number(f[2], &g)) continue;
    *gid = g;
    hit = true;
  }
  close(l.fd);
  return hit;
}

static void find_memberships(const char *name, struct identity *who) {
  struct lines l;
  if (!lines_open(&l, "/etc/group")) return;
  for (char *line; who->group_count < MAX_GROUPS && (line = next_line(&l));) {
    char *f[4];
    uint32_t g;
    if (fields(line, f, 4) < 4 || !number(f[2], &g) || g == who->gid) continue;
    for (char *save, *member = strtok_r(f[3], ",", &save); member; member = strtok_r(NULL, ",", &save))
      if (strcmp(member, name) == 0) {
        who->groups[who->group_count++] = g;
        break;
      }
  }
  close(l.fd);
}

int identity_find(const char *user, struct identity *who) {
  memset(who, 0, sizeof *who);
  who->uid = getuid();
  who->gid = getgid();
  if (!*user) return 0;
  char name[128], entry[128] = "";
  snprintf(name, sizeof name, "%s", user);
  char *group = strchr(name, ':');
  if (group) *group++ = 0;
  uint32_t uid = 0;
  bool numeric = number(name, &uid);
  if (!find_passwd(name, numeric, uid, who, entry, sizeof entry)) {
    if (!numeric) return ENOENT;
    who->uid = who->gid = uid;
  }
  if (group && !number(group, &who->gid) && !find_group(group, &who->gid)) return ENOENT;
  who->groups[who->group_count++] = who->gid;
  if (*entry) find_memberships(entry, who);
  return 0;
}

static void drop_ptrace(void) {
  // Fails where there is no privilege to drop: then there is none to misuse either.
  prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE, 0, 0, 0);
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct caps[2];
  if (syscall(SYS_capget, &header, caps) < 0) return;
  uint32_t keep = ~(1u << CAP_SYS_PTRACE);
  caps[0].effective &= keep;
  caps[0].permitted &= keep;
  caps[0].inheritable &= keep;
  syscall(SYS_capset, &header, caps);
}

int identity_become(const char *user, const struct identity *who) {
  drop_ptrace();
  if (!*user) return 0;
  bool same = who->uid == getuid() && who->uid == geteuid() && who->gid == getgid();
  if (setgroups(who->group_count, who->groups) < 0 && !(same && errno == EPERM)) return errno;
  if (setresgid(who->gid, who->gid, who->gid) < 0) return errno;
  if (setresuid(who->uid, who->uid, who->uid) < 0) return errno;
  return 0;
}
