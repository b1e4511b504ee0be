#pragma once

int bridge_main(const char *socket_path);
