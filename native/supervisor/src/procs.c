#include "procs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conn.h"

static bool read_one(const char *pid, struct proc *p) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  if (read_small_file(path, text, sizeof text) <= 0) return false;
  // The name may hold spaces and parentheses: the fields begin behind the last one.
  char *rest = strrchr(text, ')');
  char state;
  int parent;
  unsigned threads;
  unsigned long long user, system, started, rss;
  if (!rest || sscanf(rest + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %u %*d %llu %*u %llu",
                      &state, &parent, &user, &system, &threads, &started, &rss) != 7)
    return false;
  *p = (struct proc){.pid = atoi(pid), .parent = parent, .cpu_ticks = user + system, .rss_pages = rss, .started = started,
                     .threads = threads, .state = state, .zombie = (state == 'Z' || state == 'X') && threads <= 1};
  return true;
}

bool procs_read(struct proc *into, size_t max, size_t *count) {
  DIR *d = opendir("/proc");
  *count = 0;
  if (!d) return false;
  for (struct dirent *e; *count < max && (e = readdir(d));)
    if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_one(e->d_name, &into[*count])) (*count)++;
  closedir(d);
  return *count > 0;
}

static bool descends_from_us(const struct proc *list, size_t count, const struct proc *p) {
  pid_t us = getpid(), at = p->parent;
  for (int depth = 0; depth < 64 && at > 1; depth++) {
    if (at == us) return true;
    pid_t above = 0;
    for (size_t i = 0; i < count && !above; i++)
      if (list[i].pid == at) above = list[i].parent;
    at = above;
  }
  return at == us;
}

size_t procs_of_workload(struct proc *list, size_t count) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    struct proc *p = &list[i];
    bool ours = p->pid == getpid() || conns_peer(p->pid) || p->zombie;
    // A kernel thread has no memory and parent 0 or 2; it is not seen inside a pid namespace.
    p->workload = !ours && (settings.pid1 || descends_from_us(list, count, p));
  }
  for (size_t i = 0; i < count; i++)
    if (list[i].workload) list[n++] = list[i];
  return n;
}
