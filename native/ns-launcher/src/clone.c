#include "common.h"

#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

/* Clones a sandbox's disk while everything in it stands still. It is one program from the first sync to the thaw: a runner
   that did each step itself would leave the sandbox frozen for as long as a busy machine lets it wait between two of them. */

static const char *freezer; /* the sandbox's cgroup; NULL when it stands still already */
static bool unified;

static bool is_frozen(void) {
  char text[256];
  char *path = format_text("%s/%s", freezer, unified ? "cgroup.events" : "freezer.state");
  if (read_at(AT_FDCWD, path, text, sizeof text) <= 0) fail("cannot read %s", path);
  free(path);
  return unified ? strstr(text, "frozen 1") != NULL : !strncmp(text, "FROZEN", 6);
}

static int ask(bool frozen) {
  char *path = format_text("%s/%s", freezer, unified ? "cgroup.freeze" : "freezer.state");
  int written = write_path(path, unified ? (frozen ? "1" : "0") : (frozen ? "FROZEN" : "THAWED"));
  free(path);
  return written;
}

static void thaw(void) { (void)!ask(false); }

static void freeze(void) {
  char *path = format_text("%s/cgroup.freeze", freezer);
  unified = access(path, F_OK) == 0;
  free(path);
  on_death = thaw;
  if (ask(true) < 0) fail("cannot freeze %s", freezer);
  for (int attempt = 0; !is_frozen(); attempt++) {
    if (attempt == 4000) die(EXIT_FAILED, "the sandbox does not freeze");
    usleep(attempt < 50 ? 100 : 2500);
  }
}

/* As far as the image's pages in the host's memory, which is what is cloned. */
static void write_back(int root) {
  if (syncfs(root) < 0) fail("cannot sync the sandbox's disk");
}

static long positive(const char *text) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end || value <= 0) die(EXIT_USAGE, "%s is no process", text);
  return value;
}

/* vmux-ns clone PID RUNNER DISK OUT [CGROUP], where PID is in the sandbox: prints how many bytes the clone takes. */
int command_clone(int argc, char **argv) {
  if (argc != 6 && argc != 7) die(EXIT_USAGE, "usage: vmux-ns clone PID RUNNER DISK OUT [CGROUP]");
  const long pid = positive(argv[2]), runner = positive(argv[3]);
  const char *from = argv[4], *to = argv[5];
  freezer = argv[6];
  /* The runner lets the sandbox go on if this program cannot: the two end together. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) fail("cannot be bound to the runner");
  if (getppid() != runner) die(EXIT_FAILED, "the runner is gone");

  char *path = format_text("/proc/%ld/root", pid);
  int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) fail("cannot open the sandbox's root");
  free(path);
  int disk = open(from, O_RDONLY | O_CLOEXEC);
  if (disk < 0 && errno == ENOENT) die(EXIT_REFUSED, "its disk was made where files cannot be cloned");
  if (disk < 0) fail("cannot open %s", from);
  if (unlink(to) < 0 && errno != ENOENT) fail("cannot replace %s", to);
  int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (out < 0) fail("cannot create %s", to);

  if (freezer) {
    /* Most of what is to be written is written while it goes on: it stands still for the rest alone. */
    write_back(root);
    sync_file_range(disk, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    freeze();
  }
  write_back(root);
  if (ioctl(out, FICLONE, disk) < 0) fail("cannot clone %s", from);
  if (freezer && ask(false) < 0) fail("cannot thaw %s", freezer);
  on_death = NULL;

  struct stat status;
  if (fstat(out, &status) < 0) fail("cannot look at %s", to);
  printf("%lld\n", (long long)status.st_blocks * 512);
  return 0;
}
