#pragma once

#include "base.h"

// Refuses new starts from now on. A second call may shorten the grace.
void stop_begin(uint64_t grace_ms, bool then_quit);
