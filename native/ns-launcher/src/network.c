#include "common.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Where no sandbox may go: this host, its networks, other sandboxes, metadata services. These routes stand in the
   sandbox's own network, which nothing inside may change; the runner's firewall says the same once more. */
static const struct {
  const char *network;
  int bits;
} forbidden[] = {{"0.0.0.0", 8},       {"10.0.0.0", 8},     {"100.64.0.0", 10}, {"169.254.0.0", 16}, {"172.16.0.0", 12},
                 {"192.0.0.0", 24},    {"192.168.0.0", 16}, {"198.18.0.0", 15}, {"224.0.0.0", 4},    {"240.0.0.0", 4}};

struct message {
  struct nlmsghdr header;
  char body[1024];
};

static void begin(struct message *message, int type, int flags, const void *head, size_t size) {
  memset(message, 0, sizeof *message);
  message->header.nlmsg_len = (uint32_t)NLMSG_LENGTH(size);
  message->header.nlmsg_type = (uint16_t)type;
  message->header.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
  memcpy(NLMSG_DATA(&message->header), head, size);
}

static struct rtattr *add(struct message *message, int type, const void *data, size_t size) {
  struct rtattr *attribute = (struct rtattr *)(void *)((char *)message + NLMSG_ALIGN(message->header.nlmsg_len));
  if ((char *)attribute + RTA_SPACE(size) > (char *)message + sizeof *message) die(EXIT_FAILED, "a network request is too long");
  attribute->rta_type = (uint16_t)type;
  attribute->rta_len = (uint16_t)RTA_LENGTH(size);
  if (size) memcpy(RTA_DATA(attribute), data, size);
  message->header.nlmsg_len = (uint32_t)(NLMSG_ALIGN(message->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len));
  return attribute;
}

static void close_nest(struct message *message, struct rtattr *nest) {
  nest->rta_len = (uint16_t)((char *)message + message->header.nlmsg_len - (char *)nest);
}

static void request(struct message *message, const char *what, int fine) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) fail("cannot speak to the network");
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    char rest[1024];
  } answer;
  if (send(fd, message, message->header.nlmsg_len, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < (ssize_t)sizeof(struct nlmsghdr))
    fail("cannot %s", what);
  close(fd);
  if (answer.header.nlmsg_type != NLMSG_ERROR) die(EXIT_FAILED, "cannot %s: an unexpected answer", what);
  if (answer.error.error && answer.error.error != -fine) {
    errno = -answer.error.error;
    /* A name or address in use is another runner's: not a fault of this machine. */
    if (errno == EEXIST) die(EXIT_FAILED, "cannot %s: it exists already", what);
    fail("cannot %s", what);
  }
}

static void add_address(int index, uint32_t address, int bits) {
  struct ifaddrmsg head = {.ifa_family = AF_INET, .ifa_prefixlen = (uint8_t)bits, .ifa_index = (uint32_t)index};
  struct message message;
  uint32_t raw = htonl(address);
  begin(&message, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
  add(&message, IFA_LOCAL, &raw, sizeof raw);
  add(&message, IFA_ADDRESS, &raw, sizeof raw);
  request(&message, "set an address", 0);
}

static void add_route(int type, uint32_t network, int bits, uint32_t gateway, int index) {
  struct rtmsg head = {.rtm_family = AF_INET,
                       .rtm_dst_len = (uint8_t)bits,
                       .rtm_table = RT_TABLE_MAIN,
                       .rtm_protocol = RTPROT_STATIC,
                       .rtm_scope = RT_SCOPE_UNIVERSE,
                       .rtm_type = (uint8_t)type};
  /* The gateway is next door whatever the routes say: it passes packets on and is itself out of reach. */
  if (gateway) head.rtm_flags = RTNH_F_ONLINK;
  struct message message;
  uint32_t raw = htonl(network), via = htonl(gateway);
  begin(&message, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
  if (bits) add(&message, RTA_DST, &raw, sizeof raw);
  if (gateway) add(&message, RTA_GATEWAY, &via, sizeof via);
  if (index) add(&message, RTA_OIF, &index, sizeof index);
  request(&message, "set a route", 0);
}

static void bring_up(const char *name) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq ifreq = {.ifr_flags = IFF_UP | IFF_RUNNING};
  snprintf(ifreq.ifr_name, sizeof ifreq.ifr_name, "%s", name);
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifreq) < 0) fail("cannot bring up %s", name);
  close(fd);
}

static void no_ipv6(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
  /* Without the file there is no IPv6 at all. */
  if (write_path(path, "1") < 0 && errno != ENOENT) fail("cannot switch IPv6 off on %s", name);
}

static int index_of(const char *name) {
  int index = (int)if_nametoindex(name);
  if (!index) fail("the interface %s", name);
  return index;
}

/* On the host: a pair of interfaces, one of them in the sandbox. Both go when the sandbox does. */
void network_attach(const struct spec *spec, pid_t pid) {
  struct ifinfomsg head = {.ifi_family = AF_UNSPEC};
  struct message message;
  begin(&message, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
  add(&message, IFLA_IFNAME, spec->interface, strlen(spec->interface) + 1);
  struct rtattr *info = add(&message, IFLA_LINKINFO, NULL, 0);
  add(&message, IFLA_INFO_KIND, "veth", 4);
  struct rtattr *data = add(&message, IFLA_INFO_DATA, NULL, 0);
  struct rtattr *peer = add(&message, VETH_INFO_PEER, &head, sizeof head);
  add(&message, IFLA_IFNAME, "eth0", 5);
  add(&message, IFLA_NET_NS_PID, &pid, sizeof pid);
  close_nest(&message, peer);
  close_nest(&message, data);
  close_nest(&message, info);
  request(&message, "create the network interface", 0);
  no_ipv6(spec->interface);
  add_address(index_of(spec->interface), (uint32_t)spec->address - 1, 31);
  bring_up(spec->interface);
}

/* At once, where the kernel would take its time after the last process is gone. */
void network_detach(const char *name) {
  int index = (int)if_nametoindex(name);
  if (!index) return;
  struct ifinfomsg head = {.ifi_family = AF_UNSPEC, .ifi_index = index};
  struct message message;
  begin(&message, RTM_DELLINK, 0, &head, sizeof head);
  request(&message, "remove the network interface", ENODEV);
}

static bool is_among(const struct host *hosts, int count, const char *address) {
  for (int i = 0; i < count; i++)
    if (!strcmp(hosts[i].address, address)) return true;
  return false;
}

/* What is not public is out of reach, but for the hosts that are let through, by way of the gateway. */
void network_forbid(const struct spec *spec, uint32_t gateway, int index) {
  for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
    add_route(RTN_PROHIBIT, ntohl(inet_addr(forbidden[i].network)), forbidden[i].bits, 0, 0);
  add_route(RTN_PROHIBIT, gateway, 32, 0, 0);
  for (int i = 0; i < spec->block_count; i++) {
    const char *address = spec->blocks[i].address;
    uint32_t number = ntohl(inet_addr(address));
    bool let = is_among(spec->hosts, spec->host_count, address) || is_among(spec->blocks, i, address);
    if (!let && number >> 24 != 127 && number != gateway) add_route(RTN_PROHIBIT, number, 32, 0, 0);
  }
  for (int i = 0; i < spec->host_count; i++) {
    const char *address = spec->hosts[i].address;
    uint32_t number = ntohl(inet_addr(address));
    if (is_among(spec->hosts, i, address) || number == gateway) continue;
    add_route(RTN_UNICAST, number, 32, gateway, index);
  }
}

void network_refuse(const char *address) { add_route(RTN_PROHIBIT, ntohl(inet_addr(address)), 32, 0, 0); }

/* In the sandbox. */
void network_configure(const struct spec *spec) {
  bring_up("lo");
  if (!spec->interface) return;
  int index = index_of("eth0");
  no_ipv6("eth0");
  add_address(index, (uint32_t)spec->address, 31);
  bring_up("eth0");
  network_forbid(spec, (uint32_t)spec->address - 1, index);
  add_route(RTN_UNICAST, 0, 0, (uint32_t)spec->address - 1, index);
}
