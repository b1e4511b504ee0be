#include "own-sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "procs.h"

enum { MAX_OWN = 16384 };

static uint64_t own[MAX_OWN];
static size_t own_count;

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void add_sockets_of(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *d = opendir(path);
  if (!d) return;
  for (struct dirent *e; own_count < MAX_OWN && (e = readdir(d));) {
    char target[64];
    ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
    if (n <= 0) continue;
    target[n] = 0;
    unsigned long long inode;
    if (sscanf(target, "socket:[%llu]", &inode) == 1) own[own_count++] = inode;
  }
  closedir(d);
}

void own_sockets_look(void) {
  static struct proc list[4096];
  size_t count;
  own_count = 0;
  if (!procs_read(list, 4096, &count)) return;
  count = procs_of_workload(list, count);
  for (size_t i = 0; i < count; i++) add_sockets_of(list[i].pid);
  qsort(own, own_count, sizeof *own, compare);
}

bool own_sockets_have(uint64_t inode) {
  return inode != 0 && bsearch(&inode, own, own_count, sizeof *own, compare) != NULL;
}
