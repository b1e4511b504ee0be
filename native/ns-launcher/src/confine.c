#include "common.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the system call filter knows x86-64 and arm64"
#endif

/* What package managers and servers need; nothing that reaches the kernel's settings, devices or other processes' memory. */
static const int kept[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FSETID,           CAP_FOWNER,     CAP_SETGID,  CAP_SETUID,
                           CAP_SETFCAP, CAP_SETPCAP,     CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_KILL};

static void drop_capabilities(void) {
  uint64_t keep = 0;
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) keep |= 1ULL << kept[i];
  for (int capability = 0; capability < 64; capability++) {
    if (keep >> capability & 1) continue;
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 && errno != EINVAL) fail("cannot drop capability %d", capability);
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) fail("cannot clear the ambient capabilities");
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {{(uint32_t)keep, (uint32_t)keep, 0},
                                           {(uint32_t)(keep >> 32), (uint32_t)(keep >> 32), 0}};
  if (syscall(SYS_capset, &header, data) < 0) fail("cannot set the capabilities");
}

/* Refused whatever the arguments. Numbers from 424 up are the same on every architecture. */
static const int denied[] = {
    /* mounts and roots */
    SYS_mount, SYS_umount2, SYS_pivot_root, 428 /* open_tree */, 429 /* move_mount */, 430 /* fsopen */, 431 /* fsconfig */,
    432 /* fsmount */, 433 /* fspick */, 442 /* mount_setattr */, 467 /* open_tree_attr */, SYS_open_by_handle_at,
    SYS_swapon, SYS_swapoff, SYS_quotactl, 443 /* quotactl_fd */, SYS_fanotify_init,
    /* namespaces */
    SYS_unshare, SYS_setns,
    /* other processes */
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, 438 /* pidfd_getfd */, 440 /* process_madvise */,
    /* the kernel itself */
    SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_bpf,
    SYS_perf_event_open, SYS_userfaultfd, SYS_reboot, SYS_acct, SYS_syslog, SYS_settimeofday, SYS_clock_settime,
    SYS_adjtimex, SYS_clock_adjtime, SYS_lookup_dcookie, SYS_nfsservctl, SYS_vhangup, SYS_sethostname, SYS_setdomainname,
    425 /* io_uring_setup */, 426 /* io_uring_enter */, 427 /* io_uring_register */, 447 /* memfd_secret */,
    /* keys are not namespaced by user alone */
    SYS_keyctl, SYS_add_key, SYS_request_key,
    /* memory policy of other processes */
    SYS_migrate_pages, SYS_move_pages,
#ifdef __x86_64__
    SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_uselib, SYS__sysctl, SYS_create_module, SYS_get_kernel_syms,
    SYS_query_module, SYS_ustat, SYS_sysfs,
#endif
};

static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
/* TIOCSTI, TIOCLINUX: typing into a terminal that one only reads. */
static const uint32_t terminal_requests[] = {0x5412, 0x541c};
/* CLONE_NEWTIME is missing: clone cannot ask for it, its bit is part of the exit signal. */
#define NEW_NAMESPACES \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static struct sock_filter program[256];
static unsigned short length;

static void emit(uint16_t code, uint8_t yes, uint8_t no, uint32_t k) {
  if (length == sizeof program / sizeof *program) die(EXIT_FAILED, "the system call filter is too long");
  program[length++] = (struct sock_filter){code, yes, no, k};
}
static void load(uint32_t offset) {
  emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
}
static void answer(uint32_t action) {
  emit(BPF_RET | BPF_K, 0, 0, action);
}
static uint32_t refuse(int error) {
  return SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA);
}
#define ARGUMENT(index) ((uint32_t)offsetof(struct seccomp_data, args[index]))

static void filter_system_calls(void) {
  load(offsetof(struct seccomp_data, arch));
  emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCHITECTURE);
  answer(refuse(ENOSYS)); /* 32-bit programs: their numbers are others */
  load(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
  emit(BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000); /* the x32 numbers */
  answer(refuse(ENOSYS));
#endif
  for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)denied[i]);
    answer(refuse(EPERM));
  }
  /* clone3 hides its flags behind a pointer: without it the C library uses clone. */
  emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 435);
  answer(refuse(ENOSYS));

  emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_clone);
  load(ARGUMENT(0));
  emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, NEW_NAMESPACES);
  answer(refuse(EPERM));
  answer(SECCOMP_RET_ALLOW);

  enum { FAMILIES = sizeof families / sizeof *families, REQUESTS = sizeof terminal_requests / sizeof *terminal_requests };
  emit(BPF_JMP | BPF_JEQ | BPF_K, 0, FAMILIES + 3, SYS_socket);
  load(ARGUMENT(0));
  for (int i = 0; i < FAMILIES; i++) emit(BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(FAMILIES - i), 0, (uint32_t)families[i]);
  answer(refuse(EAFNOSUPPORT));
  answer(SECCOMP_RET_ALLOW);

  emit(BPF_JMP | BPF_JEQ | BPF_K, 0, REQUESTS + 3, SYS_ioctl);
  load(ARGUMENT(1));
  for (int i = 0; i < REQUESTS; i++) emit(BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(REQUESTS - i), 0, terminal_requests[i]);
  answer(SECCOMP_RET_ALLOW);
  answer(refuse(EPERM));

  answer(SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {length, program};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0) fail("cannot install the system call filter");
}

void confine(void) {
  struct rlimit none = {0, 0}, files = {1024, 65536};
  if (setrlimit(RLIMIT_CORE, &none) < 0) fail("cannot forbid core files");
  if (setrlimit(RLIMIT_NOFILE, &files) < 0) {
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 1024 ? files.rlim_max : 1024;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) fail("cannot limit the open files");
  }
  drop_capabilities();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail("cannot forbid new privileges");
  filter_system_calls();
}
