#include "common.h"

#include <dirent.h>
#include <sys/sysmacros.h>

/* An id-mapped mount gives the sandbox's root the rights of the host's root on what it shows. This writes an overlay
   layer that hides everything below a tree which not everyone on the host may read. Without root nothing is mapped, and a
   file of the host's belongs to nobody inside: there the layer also has every directory, so that a sandbox may add,
   remove and replace files wherever it likes, though it may not write into those of the host. */
static long hidden;
static bool with_directories;

static void make_parents(const char *tree, const char *out, const char *below) {
  char *source = format_text("%s", tree), *target = format_text("%s", out);
  char *copy = strdup(below);
  for (char *word = strtok(copy, "/"), *next; word; word = next) {
    next = strtok(NULL, "/");
    char *deeper_source = format_text("%s/%s", source, word), *deeper_target = format_text("%s/%s", target, word);
    struct stat status;
    if (stat(deeper_source, &status) < 0) fail("cannot look at %s", deeper_source);
    if (mkdir(deeper_target, 0700) == 0) {
      if (chmod(deeper_target, status.st_mode & 07777) < 0) fail("cannot set the mode of %s", deeper_target);
    } else if (errno != EEXIST) {
      fail("cannot create %s", deeper_target);
    }
    free(source);
    free(target);
    source = deeper_source;
    target = deeper_target;
  }
  free(copy);
  free(source);
  free(target);
}

static bool public(const struct stat *status) {
  if (S_ISLNK(status->st_mode)) return true;
  if (S_ISDIR(status->st_mode)) return (status->st_mode & 05) == 05;
  return S_ISREG(status->st_mode) && (status->st_mode & 04);
}

static void walk(const char *tree, const char *out, const char *below, int fd, dev_t device) {
  DIR *directory = fdopendir(fd);
  if (!directory) fail("cannot list %s%s", tree, below);
  for (struct dirent *entry; (entry = readdir(directory));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (entry->d_type == DT_LNK) continue;
    struct stat status;
    if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
      if (errno == ENOENT) continue;
      fail("cannot look at %s%s/%s", tree, below, entry->d_name);
    }
    if (status.st_dev != device) continue; /* a mount point: the sandbox sees the directory below it */
    char *path = format_text("%s/%s", below, entry->d_name);
    if (!public(&status)) {
      make_parents(tree, out, below);
      char *target = format_text("%s%s", out, path);
      if (mknod(target, S_IFCHR, makedev(0, 0)) < 0) fail("cannot hide %s", target);
      free(target);
      hidden++;
    } else if (S_ISDIR(status.st_mode)) {
      if (with_directories) {
        char *target = format_text("%s%s", out, path);
        if ((mkdir(target, 0700) < 0 && errno != EEXIST) || chmod(target, status.st_mode & 07777) < 0) fail("cannot create %s", target);
        free(target);
      }
      int deeper = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (deeper >= 0) walk(tree, out, path, deeper, device);
      else if (errno != ENOENT) fail("cannot open %s%s", tree, path);
    }
    free(path);
  }
  closedir(directory);
}

int command_mask(struct spec *spec) {
  const char *tree = spec->dir, *out = spec->out;
  struct stat status;
  if (!out) die(EXIT_USAGE, "--out is required");
  with_directories = spec->rootless;
  int fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &status) < 0) fail("cannot open %s", tree);
  if (mkdir(out, 0700) < 0 || chmod(out, status.st_mode & 07777) < 0) fail("cannot create %s", out);
  walk(tree, out, "", fd, status.st_dev);
  printf("%ld\n", hidden);
  return 0;
}
