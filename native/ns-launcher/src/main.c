/* vmux-ns: creates and destroys one sandbox out of Linux namespaces.
     vmux-ns create  --dir=D --name=N --tree=/=LOWER[:LOWER…] …   prints "<pid> <start time>"
     vmux-ns destroy --dir=D --name=N
     vmux-ns salvage --dir=D --name=N --supervisor=S …            serves a dead one's spool at D/left
     vmux-ns mask    --tree=DIR --out=DIR                         prints how many files it hides */
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
               {"disk-template", &spec->disk_template},
               {"spool-template", &spec->spool_template},
               {"cgroup-parent", &spec->cgroup_parent},
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
  if (!strcmp(command, "mask")) {
    const char *tree = argc == 4 ? value_of(argv[2], "tree") : NULL, *out = argc == 4 ? value_of(argv[3], "out") : NULL;
    if (!tree || !out) die(EXIT_USAGE, "usage: vmux-ns mask --tree=DIR --out=DIR");
    return command_mask(tree, out);
  }
  if (!strcmp(command, "removed")) {
    const char *dir = argc == 5 ? value_of(argv[2], "dir") : NULL, *since = argc == 5 ? value_of(argv[3], "since-ns") : NULL;
    const char *out = argc == 5 ? value_of(argv[4], "out") : NULL;
    if (!dir || !since || !out) die(EXIT_USAGE, "usage: vmux-ns removed --dir=DIR --since-ns=T --out=FILE");
    return command_removed(dir, since, out);
  }
  if (!strcmp(command, "addresses")) return command_addresses();
  if (!strcmp(command, "clone")) return command_clone(argc, argv);
  if (!strcmp(command, "guard")) {
    parse(argc, argv, &spec);
    return command_guard(&spec);
  }
  if (strcmp(command, "create") && strcmp(command, "destroy") && strcmp(command, "salvage"))
    die(EXIT_USAGE, "usage: vmux-ns create|destroy|salvage|mask|removed …");
  parse(argc, argv, &spec);
  if (!spec.dir || spec.dir[0] != '/') die(EXIT_USAGE, "--dir must be an absolute path");
  if (!plain_name(spec.name) || !plain_name(spec.cgroup_parent))
    die(EXIT_USAGE, "--name and --cgroup-parent take lower-case letters, digits and hyphens");
  if (spec.interface && (!plain_name(spec.interface) || strlen(spec.interface) > 15))
    die(EXIT_USAGE, "--interface takes a short name");
  if (geteuid() != 0) die(EXIT_REFUSED, "namespaces with mapped ids need root");
  if (!strcmp(command, "destroy")) return command_destroy(&spec);
  if (!strcmp(command, "salvage")) {
    if (!spec.supervisor || !spec.epoch || !spec.instance) die(EXIT_USAGE, "--supervisor, --epoch and --instance are required");
    return command_salvage(&spec);
  }
  if (!plain_name(spec.hostname)) die(EXIT_USAGE, "--hostname takes lower-case letters, digits and hyphens");
  if (!spec.supervisor || !spec.epoch || !spec.instance || !spec.disk_template || !spec.spool_template)
    die(EXIT_USAGE, "--supervisor, --epoch, --instance, --disk-template and --spool-template are required");
  if (!spec.uid_base || !spec.memory_mib || !spec.cpu_millis || !spec.pids)
    die(EXIT_USAGE, "--uid-base, --memory-mib, --cpu-millis and --pids are required");
  if (spec.interface && spec.address % 2 == 0) die(EXIT_USAGE, "--address takes an odd number");
  if (!spec.tree_count || strcmp(spec.trees[0].target, "/")) die(EXIT_USAGE, "the first --tree is the root");
  return command_create(&spec);
}
