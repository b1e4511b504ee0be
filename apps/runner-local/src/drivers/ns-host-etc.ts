import { constants } from 'node:fs';
import {
  chmod,
  chown,
  copyFile,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { isRoot } from './ns-user';

/**
 * What of the host's /etc goes into a sandbox: what programs below /usr need to run and packages to be
 * installed. No registry settings, no host keys, no user's or service's configuration.
 */
const COPIED = [
  'adduser.conf',
  'alternatives',
  'apt/apt.conf.d',
  'apt/keyrings',
  'apt/preferences.d',
  'apt/sources.list',
  'apt/sources.list.d',
  'apt/trusted.gpg.d',
  'bash.bashrc',
  'bash_completion.d',
  'bindresvport.blacklist',
  'ca-certificates',
  'ca-certificates.conf',
  'crypto-policies',
  'debconf.conf',
  'debian_version',
  'default/useradd',
  'deluser.conf',
  'dpkg',
  'fonts',
  'gai.conf',
  'groff',
  'host.conf',
  'init.d',
  'inputrc',
  'issue',
  'java-17-openjdk',
  'java-21-openjdk',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'libaudit.conf',
  'locale.alias',
  'locale.conf',
  'locale.gen',
  'localtime',
  'login.defs',
  'lsb-release',
  'magic',
  'magic.mime',
  'manpath.config',
  'mime.types',
  'networks',
  'os-release',
  'pam.conf',
  'pam.d',
  'perl',
  'pki/tls/certs',
  'profile',
  'protocols',
  'python3',
  'python3.11',
  'python3.12',
  'python3.13',
  'rc0.d',
  'rc1.d',
  'rc2.d',
  'rc3.d',
  'rc4.d',
  'rc5.d',
  'rc6.d',
  'rcS.d',
  'redhat-release',
  'rpc',
  'security',
  'services',
  'sgml',
  'shells',
  'skel',
  'ssl/certs',
  'ssl/openssl.cnf',
  'terminfo',
  'timezone',
  'ucf.conf',
  'vim',
  'xattr.conf',
  'xml',
] as const;

/** A URL with a password in it is a secret that everyone on the host may read; it stays there. */
const CREDENTIALS = /:\/\/[^/\s@]*@/;

export async function writeEtc(into: string, from = '/etc'): Promise<void> {
  await makeDirectory(into, 0o755);
  for (const name of COPIED) {
    const parts = name.split('/').slice(0, -1);
    for (let depth = 1; depth <= parts.length; depth++)
      await makeDirectory(join(into, ...parts.slice(0, depth)), 0o755);
    await copyPublic(join(from, name), join(into, name), name.startsWith('apt/'));
  }
  await writeAccounts(into, from);
  await makeFile(
    join(into, 'nsswitch.conf'),
    'passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n',
  );
  await makeFile(join(into, 'fstab'), '');
  await symlink('/proc/self/mounts', join(into, 'mtab'));
  await makeFile(join(into, 'machine-id'), '');
}

/** Copies files that everyone may read, and links as they are; anything else is left out. */
export async function copyPublic(from: string, to: string, checkSecrets = false): Promise<void> {
  const status = await lstat(from).catch(missingIsUndefined);
  if (!status) return;
  if (status.isSymbolicLink()) {
    await symlink(await readlink(from), to);
  } else if (status.isDirectory()) {
    if ((status.mode & 0o005) !== 0o005) return;
    await makeDirectory(to, status.mode & 0o7777);
    for (const name of await readdir(from))
      await copyPublic(join(from, name), join(to, name), checkSecrets);
  } else if (status.isFile() && (status.mode & 0o004) !== 0) {
    if (checkSecrets && CREDENTIALS.test(await readText(from))) return;
    await copyFile(from, to, constants.COPYFILE_EXCL);
    await chmod(to, status.mode & 0o777);
  }
}

async function readText(path: string): Promise<string> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    return (await file.readFile()).toString('latin1');
  } finally {
    await file.close();
  }
}

/** The system's own accounts, without passwords and without people. */
async function writeAccounts(into: string, from: string): Promise<void> {
  const isSystem = (id: number) => id < 1000 || id === 65_534;
  const lines = async (name: string) =>
    (await readFile(join(from, name), 'utf8')).split('\n').map((line) => line.split(':'));
  const users = (await lines('passwd')).filter((user) => isSystem(Number(user[2] || Number.NaN)));
  const groups = (await lines('group')).filter((group) => isSystem(Number(group[2] || Number.NaN)));
  const passwd = users.map(([name, , uid, gid, , home, shell]) =>
    name === 'root'
      ? 'root:x:0:0:root:/root:/bin/bash'
      : [name, 'x', uid, gid, '', home, shell].join(':'),
  );
  const group = groups.map(([name, , gid]) => `${name}:x:${gid}:`);
  const secret = 0o640;
  await makeFile(join(into, 'passwd'), `${passwd.join('\n')}\n`);
  await makeFile(join(into, 'group'), `${group.join('\n')}\n`);
  await makeFile(
    join(into, 'shadow'),
    users.map(([name]) => `${name}:*:19000:0:99999:7:::\n`).join(''),
    secret,
  );
  await makeFile(join(into, 'gshadow'), groups.map(([name]) => `${name}:*::\n`).join(''), secret);
  if (!isRoot()) return;
  const shadowGroup = Number(groups.find(([name]) => name === 'shadow')?.[2] ?? 0);
  await chown(join(into, 'shadow'), 0, shadowGroup);
  await chown(join(into, 'gshadow'), 0, shadowGroup);
}

/** The mode is set apart from the making: the runner's own umask does not count in a sandbox. */
export async function makeDirectory(path: string, mode: number): Promise<void> {
  await mkdir(path, { recursive: true });
  await chmod(path, mode);
}

async function makeFile(path: string, text: string, mode = 0o644): Promise<void> {
  await writeFile(path, text);
  await chmod(path, mode);
}

function missingIsUndefined(fault: NodeJS.ErrnoException): undefined {
  if (fault.code === 'ENOENT') return undefined;
  throw fault;
}
