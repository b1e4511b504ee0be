// Everything but us stands still: while a checkpoint is read, and for as long as one is held.
#pragma once

#include "base.h"

bool frozen(void);
// Lets everything go on, whoever wanted it to stand still.
void freeze_end(void);
// As freeze_end, for a stop that kills at once: nothing runs another instruction.
void freeze_forget(void);
// The time after which a file's change is the workload's, in nanoseconds since 1970. What the sandbox was
// made of is older.
uint64_t record_since_ns(void);
// Before anything of the workload runs: waits until the clock that files are stamped with is past that time.
void record_begin(void);
