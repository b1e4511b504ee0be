#pragma once

int pipe_main(const char *socket_path);
// A connection to the supervisor that listens there, or is about to; ends the process without one.
int supervisor_connect(const char *socket_path);
