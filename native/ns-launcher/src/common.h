#ifndef VMUX_NS_COMMON_H
#define VMUX_NS_COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* What the caller does next is told by the exit status: 2 fix the call, 3 this machine cannot do it, 4 try again. */
enum { EXIT_USAGE = 2, EXIT_REFUSED = 3, EXIT_FAILED = 4 };

/* How many ids a sandbox has where there are enough. */
enum { LENT = 65536 };
#define LENT_TEXT "65536"

enum { MAX_TREES = 16, MAX_LAYERS = 8, MAX_HIDE = 64, MAX_VIEWS = 8, MAX_HOSTS = 256 };

struct tree {
  const char *target; /* absolute path in the sandbox; the first tree is "/" */
  char *lowers[MAX_LAYERS];
  int lower_fds[MAX_LAYERS];
  int lower_count;
};

/* A host directory of which only the named entries are shown. */
struct only {
  const char *directory; /* below a tree's target, for instance /usr/local */
  char *names[MAX_HIDE];
  int name_count;
};

/* A cgroup directory of the sandbox, shown to it for reading. */
struct view {
  char target[64]; /* relative to the sandbox's root */
  int fd;
};

/* Reached although it is not public, and known by name inside. */
struct host {
  const char *address;
  const char *name;
};

struct spec {
  const char *dir;
  const char *name;
  const char *hostname;
  const char *supervisor;
  const char *epoch;
  const char *instance;
  const char *since_ns; /* of a disk that another sandbox wrote on; NULL for a fresh one */
  const char *out;       /* of mask and removed */
  const char *disk_template;
  const char *spool_template;
  const char *cgroup_parent;
  const char *cgroup_root; /* a group of v2 that was delegated to who is not root; NULL without one */
  const char *resolver;
  const char *interface; /* the host's end of the sandbox's network; NULL for loopback alone */
  long address;          /* the sandbox's end, an odd IPv4 address; the host's end is the one before it */
  struct host hosts[MAX_HOSTS];
  int host_count;
  struct host blocks[MAX_HOSTS]; /* addresses without names */
  int block_count;
  bool rootless;
  long lent_uid, lent_gid; /* where the ids begin that were lent to who is not root; 0 without any */
  long uid_base;           /* the sandbox's root, as the launcher sees it */
  long ids;
  long memory_mib;
  long cpu_millis;
  long pids;
  struct tree trees[MAX_TREES];
  int tree_count;
  struct only onlys[MAX_TREES];
  int only_count;
  struct view views[MAX_VIEWS];
  int view_count;
  int entry_fds[MAX_VIEWS]; /* the cgroups of v1 */
  int entry_count;
  int unified_fd; /* that of v2; -1 without one */
};

/* The error channel: in the launcher it is stderr, in the sandbox's first process a pipe to the launcher. */
extern int error_fd;
__attribute__((format(printf, 2, 3), noreturn)) void die(int status, const char *format, ...);
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...); /* with strerror(errno) */
/* Runs before an exit by die() or fail(). */
extern void (*on_death)(void);

int write_at(int dirfd, const char *path, const char *text);
int write_path(const char *path, const char *text);
ssize_t read_at(int dirfd, const char *path, char *buffer, size_t size);
char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
long start_time_of(pid_t pid); /* in clock ticks since boot; -1 when there is no such live process */
int remove_tree_at(int dirfd, const char *name);
void sleep_ms(long ms);

/* cgroup.c */
void cgroup_create(const struct spec *spec);
void cgroup_open_entries(struct spec *spec);
void cgroup_enter(const struct spec *spec);
void cgroup_open_views(struct spec *spec);
void cgroup_kill(const struct spec *spec);
int cgroup_remove(const struct spec *spec);

/* image.c */
int image_mount(const struct spec *spec, int dirfd, const char *image, const char *template_path);
void image_wait_released(int dirfd);

/* root.c */
void layers_open(struct spec *spec, int userns);
enum { DEVICES = 6, SHOWN = 4 };

/* Mounts of the sandbox's own that are made out of the host's view and attached once its root is there. */
struct stage {
  int proc;
  int devices[DEVICES];
  int shown[SHOWN];
};

void root_prepare(struct stage *stage);
void root_enter(const struct spec *spec, const struct stage *stage, int disk_mount);

/* network.c */
void network_attach(const struct spec *spec, pid_t pid);
void network_detach(const char *name);
void network_configure(const struct spec *spec);
void network_forbid(const struct spec *spec, uint32_t gateway, int index);
void network_refuse(const char *address);

/* rootless.c */
void rootless_enter(struct spec *spec);
void rootless_limit_processes(const struct spec *spec);
int rootless_directory(const struct spec *spec, int dir, const char *name);
void own_below(int fd, const struct spec *spec);
int command_own(struct spec *spec);
int command_drop(struct spec *spec);

/* confine.c */
void confine(void);

/* commands */
int command_create(struct spec *spec);
int command_destroy(struct spec *spec);
int command_salvage(struct spec *spec);
int command_guard(const struct spec *spec);
int command_addresses(void);
int command_clone(int argc, char **argv);
int command_mask(struct spec *spec);
int command_removed(struct spec *spec);

static inline int sys_open_tree(int fd, const char *path, unsigned flags) {
  return (int)syscall(428, fd, path, flags);
}
static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags) {
  return (int)syscall(429, from, from_path, to, to_path, flags);
}
static inline int sys_fsopen(const char *type, unsigned flags) {
  return (int)syscall(430, type, flags);
}
static inline int sys_fsconfig(int fd, unsigned command, const char *key, const void *value, int aux) {
  return (int)syscall(431, fd, command, key, value, aux);
}
static inline int sys_fsmount(int fd, unsigned flags, unsigned attributes) {
  return (int)syscall(432, fd, flags, attributes);
}
static inline int sys_mount_setattr(int fd, const char *path, unsigned flags, void *attributes, size_t size) {
  return (int)syscall(442, fd, path, flags, attributes, size);
}
static inline int sys_pidfd_open(pid_t pid) {
  return (int)syscall(434, pid, 0);
}
static inline int sys_pidfd_send_signal(int pidfd, int signal) {
  return (int)syscall(424, pidfd, signal, NULL, 0);
}
static inline int sys_openat2(int fd, const char *path, void *how, size_t size) {
  return (int)syscall(437, fd, path, how, size);
}

#endif
