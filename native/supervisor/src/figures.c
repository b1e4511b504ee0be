// Resource figures: the sandbox's cgroup where its files are visible, else sums over its processes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "conn.h"
#include "procs.h"

enum figure {
  F_CPU_US = 1, F_MEMORY, F_MEMORY_LIMIT, F_MEMORY_PEAK, F_OOM_KILLS, F_PIDS, F_PIDS_LIMIT, F_DISK_USED,
  F_DISK_TOTAL, F_SPOOL_FREE, F_UPTIME_US, F_RUNNING, F_OWN_RSS,
  F_MEMORY_CACHE = 16, /* 14 and 15 are an exec's: USAGE */ F_COUNT,
};

struct figures {
  uint64_t value[F_COUNT];
  bool known[F_COUNT];
};

static void set(struct figures *f, enum figure key, uint64_t value) {
  f->value[key] = value;
  f->known[key] = true;
}

// The path of our cgroup for a controller ("" is the unified tree), as /proc/self/cgroup tells.
static bool cgroup_path(const char *controller, char *into, size_t size) {
  char text[4096];
  if (read_small_file("/proc/self/cgroup", text, sizeof text) <= 0) return false;
  for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path) continue;
    *path++ = 0;
    names++;
    bool hit = *controller ? false : !*names;
    for (char *inner, *n = strtok_r(names, ",", &inner); n && !hit; n = strtok_r(NULL, ",", &inner))
      hit = *controller && strcmp(n, controller) == 0;
    if (!hit) continue;
    snprintf(into, size, "%s", strcmp(path, "/") == 0 ? "" : path);
    return true;
  }
  return false;
}

static bool cgroup_text(const char *controller, const char *file, char *text, size_t size) {
  char own[1024], path[2048];
  // At the root and no container: those are the machine's figures, not the sandbox's.
  if (!cgroup_path(controller, own, sizeof own) || (!*own && !settings.pid1)) return false;
  snprintf(path, sizeof path, "/sys/fs/cgroup%s%s%s/%s", *controller ? "/" : "", controller, own, file);
  if (read_small_file(path, text, size) > 0) return true;
  // Inside a container the tree is often mounted at the sandbox's own group.
  snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/%s", *controller ? "/" : "", controller, file);
  return settings.pid1 && read_small_file(path, text, size) > 0;
}

static bool cgroup_number(struct figures *f, enum figure key, const char *controller, const char *file, uint64_t divide) {
  char text[64];
  if (!cgroup_text(controller, file, text, sizeof text) || text[0] < '0' || text[0] > '9') return false;
  uint64_t v = strtoull(text, NULL, 10);
  // Without a limit version 1 shows the largest number of pages.
  if ((key == F_MEMORY_LIMIT || key == F_PIDS_LIMIT) && v >= (uint64_t)1 << 62) return false;
  set(f, key, v / divide);
  return true;
}

static bool cgroup_field(struct figures *f, enum figure key, const char *controller, const char *file, const char *field) {
  char text[4096];
  if (!cgroup_text(controller, file, text, sizeof text)) return false;
  size_t len = strlen(field);
  for (char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (strncmp(line, field, len) == 0 && line[len] == ' ') {
      set(f, key, strtoull(line + len, NULL, 10));
      return true;
    }
  return false;
}

static void from_cgroup(struct figures *f) {
  if (!cgroup_field(f, F_MEMORY_CACHE, "", "memory.stat", "inactive_file")) cgroup_field(f, F_MEMORY_CACHE, "memory", "memory.stat", "total_inactive_file");
  if (!cgroup_field(f, F_CPU_US, "", "cpu.stat", "usage_usec")) cgroup_number(f, F_CPU_US, "cpuacct", "cpuacct.usage", 1000);
  if (!cgroup_number(f, F_MEMORY, "", "memory.current", 1)) cgroup_number(f, F_MEMORY, "memory", "memory.usage_in_bytes", 1);
  if (!cgroup_number(f, F_MEMORY_LIMIT, "", "memory.max", 1)) cgroup_number(f, F_MEMORY_LIMIT, "memory", "memory.limit_in_bytes", 1);
  if (!cgroup_number(f, F_MEMORY_PEAK, "", "memory.peak", 1)) cgroup_number(f, F_MEMORY_PEAK, "memory", "memory.max_usage_in_bytes", 1);
  if (!cgroup_field(f, F_OOM_KILLS, "", "memory.events", "oom_kill")) cgroup_field(f, F_OOM_KILLS, "memory", "memory.oom_control", "oom_kill");
  if (!cgroup_number(f, F_PIDS, "", "pids.current", 1)) cgroup_number(f, F_PIDS, "pids", "pids.current", 1);
  if (!cgroup_number(f, F_PIDS_LIMIT, "", "pids.max", 1)) cgroup_number(f, F_PIDS_LIMIT, "pids", "pids.max", 1);
}

static void from_processes(struct figures *f) {
  static struct proc list[4096];
  size_t count;
  struct rusage past;
  if (!procs_read(list, 4096, &count) || getrusage(RUSAGE_CHILDREN, &past) < 0) return;
  count = procs_of_workload(list, count);
  uint64_t ticks = 0, pages = 0;
  for (size_t i = 0; i < count; i++) {
    ticks += list[i].cpu_ticks;
    pages += list[i].rss_pages;
  }
  uint64_t past_us = (uint64_t)(past.ru_utime.tv_sec + past.ru_stime.tv_sec) * 1000000 +
                     (uint64_t)(past.ru_utime.tv_usec + past.ru_stime.tv_usec);
  if (!f->known[F_CPU_US]) set(f, F_CPU_US, past_us + ticks * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
  if (!f->known[F_MEMORY]) set(f, F_MEMORY, pages * (uint64_t)sysconf(_SC_PAGESIZE));
  if (!f->known[F_PIDS]) set(f, F_PIDS, count);
}

bool request_figures(struct conn *c, uint32_t id, struct reader *r) {
  if (!reader_done(r)) return false;
  struct figures f = {0};
  struct statvfs disk;
  char statm[128];
  from_cgroup(&f);
  if (!f.known[F_CPU_US] || !f.known[F_MEMORY] || !f.known[F_PIDS]) from_processes(&f);
  if (statvfs("/", &disk) == 0) {
    set(&f, F_DISK_TOTAL, (uint64_t)disk.f_blocks * disk.f_frsize);
    set(&f, F_DISK_USED, (uint64_t)(disk.f_blocks - disk.f_bfree) * disk.f_frsize);
  }
  set(&f, F_SPOOL_FREE, spool_free_bytes());
  set(&f, F_UPTIME_US, now_us() - settings.started_us);
  set(&f, F_RUNNING, exec_running_count);
  unsigned long long total, resident;
  if (read_small_file("/proc/self/statm", statm, sizeof statm) > 0 && sscanf(statm, "%llu %llu", &total, &resident) == 2)
    set(&f, F_OWN_RSS, resident * (uint64_t)sysconf(_SC_PAGESIZE));
  uint16_t n = 0;
  for (int key = 1; key < F_COUNT; key++) n += f.known[key];
  frame_begin(&c->out, FIGURES_ARE, id);
  put_u16(&c->out, n);
  for (uint16_t key = 1; key < F_COUNT; key++) {
    if (!f.known[key]) continue;
    put_u16(&c->out, key);
    put_u64(&c->out, f.value[key]);
  }
  frame_end(&c->out);
  return true;
}
