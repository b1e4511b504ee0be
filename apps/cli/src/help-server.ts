import type { CommandHelp } from './help-entry';

/** Commands about the server, keys and this machine. */
export const serverHelp: Readonly<Record<string, CommandHelp>> = {
  up: {
    usage: 'vmux up [--with NAME] [--json]',
    summary: 'start the stack in the background, unless it runs',
    details: `
  The event store, NATS, the session service, the gateway and the local runner, on loopback. Data lies in
  VMUX_DATA_DIR, else ~/.local/share/vmux. VMUX_PORT sets the port, 7878 without it.

      --with NAME         add a provider: cloudflare-local or modal-local, emulated on this machine, or
                          cloudflare, with CLOUDFLARE_WORKER_URL and CLOUDFLARE_WORKER_KEY_FILE`,
  },
  down: {
    usage: 'vmux down',
    summary: 'stop the stack; sandboxes go on',
    details: '',
  },
  status: {
    usage: 'vmux status [--json]',
    summary: 'whether a server runs, where, and what it offers',
    details: '',
  },
  doctor: {
    usage: 'vmux doctor [--json]',
    summary: 'check this machine, and say how to mend what is missing',
    details: '',
  },
  login: {
    usage: 'vmux login [URL]',
    summary: 'use the server at URL from now on; the key is asked for, or read from stdin',
    details: `
  Without URL it says where you are logged in. VMUX_URL and VMUX_API_KEY go before it.

  vmux login https://vmux.example.org < key-file`,
  },
  logout: { usage: 'vmux logout', summary: 'use the stack on this machine again', details: '' },
  keys: {
    usage: 'vmux keys [create NAME | revoke KEY] [options]',
    summary: 'list, make and revoke API keys',
    details: `
      --scope SCOPE       sessions:read, sessions:write, admin; repeatable, the first two without it
      --owner OWNER       whose sessions; yours without it
      --sessions N        how many live sessions at most
      --json              JSON`,
  },
  completion: {
    usage: 'vmux completion bash|zsh|fish',
    summary: 'a script for your shell that completes commands, options and sessions',
    details: `
  bash: source <(vmux completion bash)
  zsh:  source <(vmux completion zsh)
  fish: vmux completion fish | source`,
  },
};
