// Looking over the processes of the sandbox through /proc.
#pragma once

#include "base.h"

struct proc {
  pid_t pid, parent;
  uint64_t cpu_ticks, rss_pages, started;
  uint32_t threads;
  char state;
  bool zombie, workload;
};

// Fills `into`; false when there is no /proc. More than `max` processes: the first ones.
bool procs_read(struct proc *into, size_t max, size_t *count);
// Those that are the workload's: as PID 1 everyone but us, our helpers and our clients; elsewhere our
// descendants.
size_t procs_of_workload(struct proc *list, size_t count);
