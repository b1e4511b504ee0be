#pragma once

int pipe_main(const char *socket_path);
