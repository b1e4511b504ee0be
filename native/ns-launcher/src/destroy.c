#include "common.h"

#include <poll.h>
#include <signal.h>
#include <sys/file.h>

/* Ends the sandbox's first process, and with it every process of its pid namespace, if it is still the one recorded. */
static void end_process(int dir, const struct spec *spec) {
  char text[160], boot[64] = "", recorded_boot[64] = "";
  int pid = 0;
  long start = 0;
  if (read_at(dir, "pid", text, sizeof text) <= 0 || sscanf(text, "%d %ld %63s", &pid, &start, recorded_boot) != 3) return;
  if (read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) fail("cannot read the boot id");
  boot[strcspn(boot, "\n")] = 0;
  if (strcmp(boot, recorded_boot) || pid <= 1) return;
  int pidfd = sys_pidfd_open(pid);
  if (pidfd < 0) {
    if (errno == ESRCH) return;
    fail("cannot open process %d", pid);
  }
  /* Compared after the descriptor is held: the number cannot pass to another process any more. */
  if (start_time_of(pid) != start) {
    close(pidfd);
    return;
  }
  if (sys_pidfd_send_signal(pidfd, SIGKILL) < 0 && errno != ESRCH) fail("cannot end process %d", pid);
  cgroup_kill(spec);
  struct pollfd wait = {.fd = pidfd, .events = POLLIN};
  if (poll(&wait, 1, 20000) != 1) die(EXIT_FAILED, "process %d does not end", pid);
  close(pidfd);
}

int command_destroy(struct spec *spec) {
  char *copy = strdup(spec->dir);
  char *slash = copy ? strrchr(copy, '/') : NULL;
  if (!slash || slash == copy || !slash[1]) die(EXIT_USAGE, "--dir must be an absolute path");
  *slash = 0;
  int parent = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) fail("cannot open %s", copy);
  int dir = openat(parent, slash + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir >= 0) {
    if (flock(dir, LOCK_EX) < 0) fail("cannot lock %s", spec->dir);
    end_process(dir, spec);
  } else if (errno != ENOENT) {
    fail("cannot open %s", spec->dir);
  }
  if (spec->interface) network_detach(spec->interface);
  if (cgroup_remove(spec) < 0) die(EXIT_FAILED, "a cgroup of %s is still in use", spec->name);
  if (dir < 0) return 0;
  /* Signals reach the sandbox from where its maker stands, and its files belong to the ids within. */
  rootless_enter(spec);
  image_wait_released(dir);
  if (remove_tree_at(parent, slash + 1) < 0) fail("cannot remove %s", spec->dir);
  return 0;
}
