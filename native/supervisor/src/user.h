// Becoming a user of the sandbox, by its own /etc/passwd and /etc/group.
#pragma once

#include "base.h"

enum { MAX_GROUPS = 64 };

struct identity {
  uid_t uid;
  gid_t gid;
  gid_t groups[MAX_GROUPS];
  size_t group_count;
};

// "" is the caller's own; `name`, `uid`, each with an optional `:group` or `:gid`. Zero or an errno.
int identity_find(const char *user, struct identity *);
// Gives up CAP_SYS_PTRACE for good, then becomes that user. Zero or an errno.
int identity_become(const char *user, const struct identity *);
