// The sockets that processes of the workload hold, where the network is not the sandbox's own.
#pragma once

#include "base.h"

void own_sockets_look(void);
// As of the last look. What could not be looked at is not ours.
bool own_sockets_have(uint64_t inode);
