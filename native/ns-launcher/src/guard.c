#include "common.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

/* The default route's gateway, as the kernel writes it: in network order. */
static uint32_t gateway_of(char *device, size_t size) {
  char line[512], name[64];
  unsigned long destination, gateway;
  FILE *file = fopen("/proc/net/route", "re");
  if (!file) fail("cannot read the routes");
  uint32_t found = 0;
  while (!found && fgets(line, sizeof line, file))
    if (sscanf(line, "%63s %lx %lx", name, &destination, &gateway) == 3 && destination == 0 && gateway != 0) {
      found = (uint32_t)gateway;
      snprintf(device, size, "%s", name);
    }
  fclose(file);
  if (!found) die(EXIT_FAILED, "there is no way out to guard");
  return ntohl(found);
}

/* The last of the refusals, of an address that nobody has: where it stands, all of them do. */
static const char last[] = "192.0.2.255";

static bool is_guarded(void) {
  char line[512];
  unsigned long destination;
  bool found = false;
  FILE *file = fopen("/proc/net/route", "re");
  if (!file) fail("cannot read the routes");
  while (!found && fgets(line, sizeof line, file))
    found = sscanf(line, "%*s %lx", &destination) == 1 && destination == inet_addr(last);
  fclose(file);
  return found;
}

/* In a network that somebody else made, before anything runs in it: the same refusals as in one of ours. */
int command_guard(const struct spec *spec) {
  char device[64];
  if (is_guarded()) return 0;
  uint32_t gateway = gateway_of(device, sizeof device);
  network_forbid(spec, gateway, (int)if_nametoindex(device));
  network_refuse(last);
  return 0;
}

/* Every IPv4 address of this machine, as the network that it is run in sees it. */
int command_addresses(void) {
  struct ifaddrs *all;
  if (getifaddrs(&all) < 0) fail("cannot list the addresses");
  for (struct ifaddrs *each = all; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN];
    struct in_addr address = ((struct sockaddr_in *)(void *)each->ifa_addr)->sin_addr;
    if (inet_ntop(AF_INET, &address, text, sizeof text)) printf("%s\n", text);
  }
  freeifaddrs(all);
  return 0;
}
