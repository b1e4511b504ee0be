#include "common.h"

#include <linux/mount.h>

/* Both layouts: v1 with a hierarchy per controller, v2 with one, and the hybrid of both. */
enum { CONTROLLERS = 5 };
static const char *const controllers[CONTROLLERS] = {"memory", "cpu", "pids", "cpuacct", "freezer"};

struct layout {
  char v1[CONTROLLERS][256]; /* the hierarchy's mount point; empty when the controller is not on v1 */
  char v2[256];
};

static bool lists(const char *options, const char *word) {
  size_t length = strlen(word);
  for (const char *at = options; at && *at;) {
    const char *end = strchr(at, ',');
    size_t size = end ? (size_t)(end - at) : strcspn(at, "\n");
    if (size == length && !strncmp(at, word, length)) return true;
    at = end ? end + 1 : NULL;
  }
  return false;
}

/* Who is not root has what was delegated to it, or nothing. */
static void layout_read(struct layout *layout, const struct spec *spec) {
  memset(layout, 0, sizeof *layout);
  if (spec->rootless) {
    if (spec->cgroup_root) snprintf(layout->v2, sizeof layout->v2, "%s", spec->cgroup_root);
    return;
  }
  FILE *file = fopen("/proc/self/mountinfo", "re");
  if (!file) fail("cannot read the mount table");
  char line[4096];
  while (fgets(line, sizeof line, file)) {
    char point[256], type[64], options[1024];
    char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %*s %255s", point) != 1) continue;
    if (sscanf(rest, " - %63s %*s %1023s", type, options) != 2) continue;
    if (!strcmp(type, "cgroup2") && !layout->v2[0]) strcpy(layout->v2, point);
    if (strcmp(type, "cgroup")) continue;
    for (int i = 0; i < CONTROLLERS; i++)
      if (!layout->v1[i][0] && lists(options, controllers[i])) strcpy(layout->v1[i], point);
  }
  fclose(file);
}

/* Calls visit once per hierarchy in which a sandbox has a directory. */
static void each_hierarchy(const struct layout *layout, void (*visit)(const char *, void *), void *context) {
  if (layout->v2[0]) visit(layout->v2, context);
  for (int i = 0; i < CONTROLLERS; i++) {
    bool seen = !layout->v1[i][0];
    for (int j = 0; j < i; j++) seen = seen || !strcmp(layout->v1[i], layout->v1[j]);
    if (!seen) visit(layout->v1[i], context);
  }
}

static void make(const char *mount, void *context) {
  const struct spec *spec = context;
  char *parent = format_text("%s/%s", mount, spec->cgroup_parent);
  char *own = format_text("%s/%s", parent, spec->name);
  /* Another sandbox's end may take the empty parent away between the two calls. */
  for (int attempt = 0;; attempt++) {
    if (mkdir(parent, 0755) < 0 && errno != EEXIST) fail("cannot create the cgroup %s", parent);
    if (mkdir(own, 0755) == 0) break;
    if (errno == EEXIST) die(EXIT_FAILED, "the cgroup %s exists already", own);
    if (errno != ENOENT || attempt == 100) fail("cannot create the cgroup %s", own);
  }
  /* The caller's umask does not count: the sandbox sees this directory and is another user. */
  if (chmod(own, 0755) < 0) fail("cannot open the cgroup %s to its sandbox", own);
  free(parent);
  free(own);
}

static void limit(const char *directory, const char *file, const char *value, bool required) {
  char *path = format_text("%s/%s", directory, file);
  if (write_path(path, value) < 0 && required) fail("cannot set %s to %s", path, value);
  free(path);
}

static bool v2_offers(const struct layout *layout, const char *directory, const char *controller) {
  char text[512];
  char *path = format_text("%s%s/cgroup.controllers", layout->v2, directory);
  bool offers = read_at(AT_FDCWD, path, text, sizeof text) > 0;
  free(path);
  if (!offers) return false;
  for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
    if (!strcmp(word, controller)) return true;
  return false;
}

/* Whether the controller's files are those of v2; enabled on the way down when they are. */
static bool v2_enable(const struct layout *layout, const struct spec *spec, const char *controller) {
  char *below = format_text("/%s", spec->cgroup_parent);
  /* In a delegated group the runner has enabled what it may. */
  bool offered = layout->v2[0] && v2_offers(layout, spec->rootless ? below : "", controller);
  free(below);
  if (!offered) return false;
  char enable[32];
  snprintf(enable, sizeof enable, "+%s", controller);
  char *parent = format_text("%s/%s", layout->v2, spec->cgroup_parent);
  if (!spec->rootless) limit(layout->v2, "cgroup.subtree_control", enable, true);
  limit(parent, "cgroup.subtree_control", enable, true);
  free(parent);
  return true;
}

void cgroup_create(const struct spec *spec) {
  struct layout layout;
  layout_read(&layout, spec);
  each_hierarchy(&layout, make, (void *)spec);
  char *v2 = format_text("%s/%s/%s", layout.v2, spec->cgroup_parent, spec->name);
  char *v1[3];
  for (int i = 0; i < 3; i++) v1[i] = format_text("%s/%s/%s", layout.v1[i], spec->cgroup_parent, spec->name);
  char value[64];

  snprintf(value, sizeof value, "%lld", (long long)spec->memory_mib << 20);
  if (layout.v1[0][0]) {
    limit(v1[0], "memory.limit_in_bytes", value, true);
    limit(v1[0], "memory.memsw.limit_in_bytes", value, false); /* absent without swap accounting */
  } else if (v2_enable(&layout, spec, "memory")) {
    limit(v2, "memory.max", value, true);
    limit(v2, "memory.swap.max", "0", false);
  } else if (!spec->rootless) {
    die(EXIT_REFUSED, "no memory controller: neither cgroup v1 nor v2 offers it");
  }
  if (layout.v1[1][0]) {
    snprintf(value, sizeof value, "%ld", spec->cpu_millis * 100);
    limit(v1[1], "cpu.cfs_period_us", "100000", true);
    limit(v1[1], "cpu.cfs_quota_us", value, true);
  } else if (v2_enable(&layout, spec, "cpu")) {
    snprintf(value, sizeof value, "%ld 100000", spec->cpu_millis * 100);
    limit(v2, "cpu.max", value, true);
  } else if (!spec->rootless) {
    die(EXIT_REFUSED, "no cpu controller: neither cgroup v1 nor v2 offers it");
  }
  snprintf(value, sizeof value, "%ld", spec->pids);
  if (layout.v1[2][0]) {
    limit(v1[2], "pids.max", value, true);
  } else if (v2_enable(&layout, spec, "pids")) {
    limit(v2, "pids.max", value, true);
  } else if (!spec->rootless) {
    die(EXIT_REFUSED, "no pids controller: neither cgroup v1 nor v2 offers it");
  }
  free(v2);
  for (int i = 0; i < 3; i++) free(v1[i]);
}

static int open_own(const struct spec *spec, const char *mount, const char *file, int flags) {
  char *path = format_text("%s/%s/%s/%s", mount, spec->cgroup_parent, spec->name, file);
  int fd = open(path, flags | O_CLOEXEC);
  if (fd < 0) fail("cannot open %s", path);
  free(path);
  return fd;
}

static void open_entry(const char *mount, void *context) {
  struct spec *spec = context;
  spec->entry_fds[spec->entry_count++] = open_own(spec, mount, "tasks", O_WRONLY);
}

/* Opened by the launcher, used by the first process, which may do so for itself alone. */
void cgroup_open_entries(struct spec *spec) {
  struct layout layout;
  layout_read(&layout, spec);
  spec->unified_fd = layout.v2[0] ? open_own(spec, layout.v2, "", O_RDONLY | O_DIRECTORY) : -1;
  layout.v2[0] = 0;
  each_hierarchy(&layout, open_entry, spec);
}

/*
 * A thread that moves itself waits for nobody; a process moved by another waits until all of the machine's forks have
 * been seen to. Into the hierarchy of v2, which knows no such way, it is born.
 */
void cgroup_enter(const struct spec *spec) {
  for (int i = 0; i < spec->entry_count; i++) {
    if (write(spec->entry_fds[i], "0", 1) != 1) fail("cannot enter a cgroup of %s", spec->name);
    close(spec->entry_fds[i]);
  }
}

static void open_view(const char *mount, void *context) {
  struct spec *spec = context;
  if (spec->view_count == MAX_VIEWS) return;
  struct view *view = &spec->views[spec->view_count];
  const char *base = spec->rootless ? NULL : strrchr(mount, '/');
  snprintf(view->target, sizeof view->target, "sys/fs/cgroup%s", !base || !strcmp(base, "/cgroup") ? "" : base);
  char *own = format_text("%s/%s/%s", mount, spec->cgroup_parent, spec->name);
  view->fd = sys_open_tree(AT_FDCWD, own, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  if (view->fd < 0) fail("cannot open %s", own);
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
  if (sys_mount_setattr(view->fd, "", AT_EMPTY_PATH, &attributes, sizeof attributes) < 0) fail("cannot protect %s", own);
  free(own);
  spec->view_count++;
}

/* So that programs which size themselves by their cgroup, and the supervisor's figures, see their limits. */
void cgroup_open_views(struct spec *spec) {
  struct layout layout;
  layout_read(&layout, spec);
  each_hierarchy(&layout, open_view, spec);
}

void cgroup_kill(const struct spec *spec) {
  const char *parent = spec->cgroup_parent, *name = spec->name;
  struct layout layout;
  layout_read(&layout, spec);
  char *v2 = format_text("%s/%s/%s", layout.v2, parent, name);
  char *freezer = format_text("%s/%s/%s", layout.v1[4], parent, name);
  limit(v2, "cgroup.kill", "1", false);
  /* A process frozen by v1 dies only when thawed. */
  limit(freezer, "freezer.state", "THAWED", false);
  limit(v2, "cgroup.freeze", "0", false);
  free(v2);
  free(freezer);
}

struct removal {
  const struct spec *spec;
  int failures;
};

static void unmake(const char *mount, void *context) {
  struct removal *removal = context;
  char *parent = format_text("%s/%s", mount, removal->spec->cgroup_parent);
  char *own = format_text("%s/%s", parent, removal->spec->name);
  /* EBUSY while the kernel still settles the dead processes' charges. */
  int attempt = 0;
  while (rmdir(own) < 0 && errno == EBUSY && attempt++ < 2000) sleep_ms(attempt < 20 ? 1 : 5);
  if (access(own, F_OK) == 0) removal->failures++;
  rmdir(parent);
  free(parent);
  free(own);
}

int cgroup_remove(const struct spec *spec) {
  struct layout layout;
  layout_read(&layout, spec);
  struct removal removal = {spec, 0};
  each_hierarchy(&layout, unmake, &removal);
  return removal.failures ? -1 : 0;
}
