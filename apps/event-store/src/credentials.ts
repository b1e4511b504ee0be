import { spawnSync } from 'node:child_process';
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

export interface Credentials {
  readonly key: Buffer;
  readonly cert: Buffer;
  readonly caFile: string;
  readonly passwordFile: string;
  accepts(authorization: string | undefined): boolean;
}

const USER = 'admin';
const DAYS = '3650';
const SUBJECT_ALTERNATIVES = 'DNS:localhost,IP:127.0.0.1,IP:::1';

/**
 * What is in the directory, or made there at the first start: a CA, a server certificate for this machine,
 * and a password. The CA's own key is thrown away: nothing else can ever be signed by it. Every file is
 * readable by its owner alone.
 */
export function loadCredentials(directory: string): Credentials {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const file = (name: string) => join(directory, name);
  if (!existsSync(file('server.crt'))) makeCertificates(directory);
  if (!existsSync(file('password'))) {
    writeDurably(file('password'), `${randomBytes(24).toString('base64url')}\n`);
  }
  const password = readFileSync(file('password'), 'utf8').trim();
  if (password === '') {
    throw new Error(
      `${file('password')} is empty: write a password into it, or delete it to get one`,
    );
  }
  const wanted = digest(`Basic ${Buffer.from(`${USER}:${password}`).toString('base64')}`);
  return {
    key: readFileSync(file('server.key')),
    cert: readFileSync(file('server.crt')),
    caFile: file('ca.crt'),
    passwordFile: file('password'),
    // Digests have one length: comparing them tells nothing about the password, not even its length.
    accepts: (authorization) => timingSafeEqual(digest(authorization ?? ''), wanted),
  };
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

function writeDurably(file: string, text: string): void {
  writeFileSync(`${file}.new`, text, { mode: 0o600, flush: true });
  renameSync(`${file}.new`, file);
}

/** In a scratch directory first: a start that is killed half-way leaves nothing to be taken for whole. */
function makeCertificates(directory: string): void {
  const scratch = mkdtempSync(join(directory, 'new-'));
  const inScratch = (name: string) => join(scratch, name);
  try {
    openssl(
      scratch,
      'req',
      '-x509',
      ...newKey('ca.key'),
      '-out',
      'ca.crt',
      '-days',
      DAYS,
      '-subj',
      '/CN=vmux event store CA',
      '-addext',
      'basicConstraints=critical,CA:TRUE',
      '-addext',
      'keyUsage=critical,keyCertSign',
    );
    openssl(
      scratch,
      'req',
      ...newKey('server.key'),
      '-out',
      'server.csr',
      '-subj',
      '/CN=localhost',
    );
    writeFileSync(
      inScratch('extensions'),
      `subjectAltName=${SUBJECT_ALTERNATIVES}\nextendedKeyUsage=serverAuth\n`,
    );
    openssl(
      scratch,
      'x509',
      '-req',
      '-in',
      'server.csr',
      '-CA',
      'ca.crt',
      '-CAkey',
      'ca.key',
      '-CAcreateserial',
      '-out',
      'server.crt',
      '-days',
      DAYS,
      '-extfile',
      'extensions',
    );
    // server.crt comes last: its presence means that the others are there.
    for (const name of ['ca.crt', 'server.key', 'server.crt']) {
      chmodSync(inScratch(name), 0o600);
      renameSync(inScratch(name), join(directory, name));
    }
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

const newKey = (file: string): string[] => [
  '-newkey',
  'ec',
  '-pkeyopt',
  'ec_paramgen_curve:prime256v1',
  '-noenc',
  '-keyout',
  file,
];

function openssl(directory: string, ...args: string[]): void {
  const done = spawnSync('openssl', args, { cwd: directory, encoding: 'utf8' });
  if (done.error) {
    throw new Error(
      `openssl is needed to make the certificate (${done.error.message}): install it, or put ca.crt, server.crt and server.key into --tls-dir`,
    );
  }
  if (done.status !== 0) throw new Error(`openssl ${args[0]} failed: ${done.stderr}`);
}
