// The 512-byte header that tar archives are made of.
#pragma once

#include <stdint.h>

struct tar_header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8];
  char type;
  char link[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};

_Static_assert(sizeof(struct tar_header) == 512, "a tar header is one block");
