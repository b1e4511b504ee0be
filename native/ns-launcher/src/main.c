/* vmux-ns: creates and destroys one sandbox out of Linux namespaces.
     vmux-ns create  --dir=D --name=N --tree=/=LOWER[:LOWER…] …   prints "<pid> <start time>"
     vmux-ns destroy --dir=D --name=N
     vmux-ns salvage --dir=D --name=N --supervisor=S …            serves a dead one's spool at D/left
     vmux-ns mask    --dir=DIR --out=DIR                          prints how many files it hides
     vmux-ns removed --dir=D --since-ns=T --out=FILE              lists what a sandbox removed of its base
     vmux-ns own|drop --dir=DIR                                   gives a tree to sandboxes made without root, and back
   Who is not root says by --lent-uid and --lent-gid which ids were lent to it. */
#include "common.h"

#include <arpa/inet.h>
#include <signal.h>

static long number(const char *text, const char *name, long least, long most) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || !*text || *end || value < least || value > most)
    die(EXIT_USAGE, "--%s takes a whole number from %ld to %ld", name, least, most);
  return value;
}

/* Splits "target=a:b" into the target and its parts. */
static int split(char *text, const char *option, const char **target, char **parts, int most) {
  char *equals = strchr(text, '=');
  if (text[0] != '/' || !equals) die(EXIT_USAGE, "--%s takes /TARGET=PART[:PART…]", option);
  *equals = 0;
  *target = text;
  int count = 0;
  for (char *part = strtok(equals + 1, ":"); part; part = strtok(NULL, ":")) {
    if (count == most) die(EXIT_USAGE, "--%s=%s has too many parts", option, text);
    parts[count++] = part;
  }
  if (!count) die(EXIT_USAGE, "--%s=%s has no parts", option, text);
  return count;
}

static const char *value_of(char *argument, const char *name) {
  size_t length = strlen(name);
  return !strncmp(argument, "--", 2) && !strncmp(argument + 2, name, length) && argument[2 + length] == '='
             ? argument + 3 + length
             : NULL;
}

static bool plain_name(const char *text) {
  return text && *text && strlen(text) <= 63 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

static bool host_name(const char *text) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
  return *text && strlen(text) <= 253 && strspn(text, allowed) == strlen(text);
}

static void parse(int argc, char **argv, struct spec *spec) {
  const struct {
    const char *name;
    const char **into;
  } texts[] = {{"dir", &spec->dir},
               {"name", &spec->name},
               {"hostname", &spec->hostname},
               {"supervisor", &spec->supervisor},
               {"epoch", &spec->epoch},
               {"instance", &spec->instance},
               {"since-ns", &spec->since_ns},
               {"out", &spec->out},
               {"disk-template", &spec->disk_template},
               {"spool-template", &spec->spool_template},
               {"cgroup-parent", &spec->cgroup_parent},
               {"cgroup-root", &spec->cgroup_root},
               {"resolver", &spec->resolver},
               {"interface", &spec->interface}};
  const struct {
    const char *name;
    long *into;
    long least, most;
  } numbers[] = {{"uid-base", &spec->uid_base, 65536, 4294901760},
                 {"memory-mib", &spec->memory_mib, 16, 1 << 24},
                 {"cpu-millis", &spec->cpu_millis, 10, 1 << 20},
                 {"pids", &spec->pids, 4, 1 << 22},
                 {"lent-uid", &spec->lent_uid, 1, 4294967295 - LENT},
                 {"lent-gid", &spec->lent_gid, 1, 4294967295 - LENT},
                 {"address", &spec->address, 1, 4294967295}};
  for (int i = 2; i < argc; i++) {
    bool known = false;
    const char *value;
    for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
      if ((value = value_of(argv[i], texts[j].name))) *texts[j].into = value, known = true;
    for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
      if ((value = value_of(argv[i], numbers[j].name)))
        *numbers[j].into = number(value, numbers[j].name, numbers[j].least, numbers[j].most), known = true;
    if ((value = value_of(argv[i], "tree"))) {
      if (spec->tree_count == MAX_TREES) die(EXIT_USAGE, "too many trees");
      struct tree *tree = &spec->trees[spec->tree_count++];
      tree->lower_count = split((char *)value, "tree", &tree->target, tree->lowers, MAX_LAYERS);
      known = true;
    }
    if ((value = value_of(argv[i], "only"))) {
      if (spec->only_count == MAX_TREES) die(EXIT_USAGE, "too many --only");
      struct only *only = &spec->onlys[spec->only_count++];
      only->name_count = split((char *)value, "only", &only->directory, only->names, MAX_HIDE);
      known = true;
    }
    if ((value = value_of(argv[i], "host"))) {
      if (spec->host_count == MAX_HOSTS) die(EXIT_USAGE, "too many --host");
      char *equals = strchr(value, '=');
      struct in_addr address;
      if (equals) *equals = 0;
      if (!equals || inet_pton(AF_INET, value, &address) != 1 || !host_name(equals + 1))
        die(EXIT_USAGE, "--host takes ADDRESS=NAME");
      spec->hosts[spec->host_count++] = (struct host){value, equals + 1};
      known = true;
    }
    if ((value = value_of(argv[i], "block"))) {
      struct in_addr address;
      if (spec->block_count == MAX_HOSTS || inet_pton(AF_INET, value, &address) != 1) die(EXIT_USAGE, "--block takes an address");
      spec->blocks[spec->block_count++] = (struct host){value, ""};
      known = true;
    }
    if (!known) die(EXIT_USAGE, "unknown option %s", argv[i]);
  }
}

int main(int argc, char **argv) {
  static struct spec spec = {.cgroup_parent = "vmux", .resolver = ""};
  const char *command = argc > 1 ? argv[1] : "";
  /* Whatever the caller left open stays out of the sandbox. */
  syscall(436 /* close_range */, 3U, ~0U, 0);
  /* The runner may die meanwhile: what was begun is finished or undone all the same. */
  signal(SIGPIPE, SIG_IGN);
  if (!strcmp(command, "addresses")) return command_addresses();
  if (!strcmp(command, "clone")) return command_clone(argc, argv);
  if (!strcmp(command, "guard")) {
    parse(argc, argv, &spec);
    return command_guard(&spec);
  }
  static const struct {
    const char *name;
    int (*run)(struct spec *);
    bool of_sandbox;
  } commands[] = {{"create", command_create, true},   {"destroy", command_destroy, true}, {"salvage", command_salvage, true},
                  {"mask", command_mask, false},      {"removed", command_removed, false}, {"own", command_own, false},
                  {"drop", command_drop, false}};
  size_t index = 0;
  while (index < sizeof commands / sizeof *commands && strcmp(command, commands[index].name)) index++;
  if (index == sizeof commands / sizeof *commands)
    die(EXIT_USAGE, "usage: vmux-ns create|destroy|salvage|mask|removed|own|drop …");
  parse(argc, argv, &spec);
  spec.rootless = geteuid() != 0;
  spec.ids = LENT;
  if (!spec.dir || spec.dir[0] != '/') die(EXIT_USAGE, "--dir must be an absolute path");
  if (!commands[index].of_sandbox) return commands[index].run(&spec);
  if (!plain_name(spec.name) || !plain_name(spec.cgroup_parent))
    die(EXIT_USAGE, "--name and --cgroup-parent take lower-case letters, digits and hyphens");
  if (spec.cgroup_root && (!spec.rootless || spec.cgroup_root[0] != '/' || strlen(spec.cgroup_root) > 200))
    die(EXIT_USAGE, "--cgroup-root takes the path of a group, from who is not root");
  if (spec.interface && (!plain_name(spec.interface) || strlen(spec.interface) > 15))
    die(EXIT_USAGE, "--interface takes a short name");
  if (spec.rootless && spec.interface) die(EXIT_REFUSED, "only root makes network interfaces");
  if (!strcmp(command, "destroy")) return command_destroy(&spec);
  if (!spec.supervisor || !spec.epoch || !spec.instance) die(EXIT_USAGE, "--supervisor, --epoch and --instance are required");
  if (!strcmp(command, "salvage")) return command_salvage(&spec);
  if (!plain_name(spec.hostname)) die(EXIT_USAGE, "--hostname takes lower-case letters, digits and hyphens");
  if (!spec.memory_mib || !spec.cpu_millis || !spec.pids) die(EXIT_USAGE, "--memory-mib, --cpu-millis and --pids are required");
  if (!spec.rootless && (!spec.uid_base || !spec.disk_template || !spec.spool_template))
    die(EXIT_USAGE, "--uid-base, --disk-template and --spool-template are required");
  if (spec.interface && spec.address % 2 == 0) die(EXIT_USAGE, "--address takes an odd number");
  if (!spec.tree_count || strcmp(spec.trees[0].target, "/")) die(EXIT_USAGE, "the first --tree is the root");
  return command_create(&spec);
}
