// What every forked process of ours needs before it does its work.
#pragma once

#include <sys/resource.h>

// The limit on open files that we were started with; ours is raised, theirs is not.
extern struct rlimit spawn_files_limit;

void spawn_reset_child(void);
void spawn_close_from(int first);
