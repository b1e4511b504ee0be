import { createHash } from 'node:crypto';
import { existsSync, readdirSync, utimesSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { releaseAll } from '@vmux/testing';
import {
  type Gateway,
  type Stack,
  startGateway,
  startRunner,
  startService,
  startStack,
} from '../../../test/support/stack';

let stack: Stack;
let gateway: Gateway;

beforeAll(async () => {
  stack = await startStack();
  startRunner(stack);
  await startService(stack);
  gateway = await startGateway(stack);
}, 60_000);
afterAll(releaseAll);

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const incoming = () => readdirSync(join(stack.dir, 'artifacts', 'incoming'));

/** Sends so many bytes without saying how many there will be. */
function pour(path: string, mebibytes: number): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const call = request(
      `${gateway.url}${path}`,
      {
        method: 'PUT',
        headers: {
          authorization: `Bearer ${gateway.api.key}`,
          'content-type': 'application/octet-stream',
        },
      },
      (response) => {
        let text = '';
        response.on('data', (data) => {
          text += data;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    call.on('error', reject);
    const piece = Buffer.alloc(2 ** 20);
    const next = (left: number): void => {
      if (left === 0 || call.destroyed) return void call.end();
      if (call.write(piece)) setImmediate(next, left - 1);
      else call.once('drain', () => next(left - 1));
    };
    next(mebibytes);
  });
}

describe('a bundle', () => {
  it('is stored under its digest, and found to be there the second time', async () => {
    const bytes = Buffer.from('the bytes of a bundle');
    const digest = sha256(bytes);
    const put = () => gateway.api.call('PUT', `/v1/bundles/${digest}`, { body: bytes });
    expect((await put()).json).toEqual({ digest, bytes: bytes.length, deduplicated: false });
    expect((await put()).json).toEqual({ digest, bytes: bytes.length, deduplicated: true });
  });

  it('with another digest than its name’s is refused and leaves nothing', async () => {
    const path = `/v1/bundles/${'0'.repeat(64)}`;
    const { status, json } = await gateway.api.call('PUT', path, { body: Buffer.from('x') });
    expect([status, json.code]).toEqual([422, 'digest_mismatch']);
    expect(incoming()).toEqual([]);
  });

  it('of more than 100 MiB is refused, announced or not', async () => {
    const path = `/v1/bundles/${'0'.repeat(64)}`;
    const announced = await announce(path, 101 * 2 ** 20);
    expect(announced).toBe(413);
    const poured = await pour(path, 101).catch((fault: NodeJS.ErrnoException) => ({
      // The answer may come while the client still sends: then it sees its connection closed.
      status: ['EPIPE', 'ECONNRESET'].includes(fault.code ?? '') ? 413 : 0,
      text: 'body_too_large',
    }));
    expect(poured.status).toBe(413);
    expect(poured.text).toContain('body_too_large');
    expect(incoming()).toEqual([]);
    expect((await gateway.api.get('/v1/runners')).status).toBe(200);
  });

  it('is a right of whoever uploaded it, and of nobody who merely knows its digest', async () => {
    const bytes = Buffer.from('mine alone');
    const digest = sha256(bytes);
    await gateway.api.call('PUT', `/v1/bundles/${digest}`, { body: bytes });
    const made = await gateway.api.post('/v1/api-keys', {
      ...{ name: 'other', owner: 'other', scopes: ['sessions:read', 'sessions:write'] },
    });
    const other = gateway.api.withKey(made.json.key);
    const taken = await other.post('/v1/sessions', { name: 'theirs', bundle: digest });
    expect([taken.status, taken.json.code]).toEqual([404, 'bundle_not_found']);
    const mine = await gateway.api.post('/v1/sessions', { name: 'mine', bundle: digest });
    expect([mine.status, mine.json.spec.bundle, mine.json.spec.setup]).toEqual([
      201,
      digest,
      'auto',
    ]);
    await other.call('PUT', `/v1/bundles/${digest}`, { body: bytes });
    expect((await other.post('/v1/sessions', { name: 'theirs', bundle: digest })).status).toBe(201);
  });

  it('is named by a digest and sent as bytes, or not at all', async () => {
    const body = Buffer.from('x');
    for (const name of ['abc', 'F'.repeat(64), '..%2f..%2fetc'])
      expect((await gateway.api.call('PUT', `/v1/bundles/${name}`, { body })).status).toBe(400);
    const json = await gateway.api.call('PUT', `/v1/bundles/${'0'.repeat(64)}`, { body: {} });
    expect(json.status).toBe(415);
  });
});

describe('collecting artifacts', () => {
  const fileOf = (digest: string) =>
    join(stack.dir, 'artifacts', 'content', digest.slice(0, 2), digest.slice(2));
  const stored = async (text: string, isOld: boolean): Promise<string> => {
    const digest = sha256(Buffer.from(text));
    await gateway.api.call('PUT', `/v1/bundles/${digest}`, { body: Buffer.from(text) });
    const longAgo = new Date(Date.now() - 30 * 24 * 3600 * 1000);
    if (isOld) utimesSync(fileOf(digest), longAgo, longAgo);
    return digest;
  };

  it('removes what is old and no session names, and nothing else', async () => {
    const used = await stored('what a session was made of', false);
    const session = await gateway.api.post('/v1/sessions', { name: 'holds', bundle: used });
    expect(session.status).toBe(201);
    await stored('what a session was made of', true);
    const young = await stored('uploaded just now', false);
    const forgotten = await stored('of no use any more', true);
    const { status, json } = await gateway.api.post('/v1/artifacts/collect');
    expect([status, json.dropped]).toEqual([200, 1]);
    expect([used, young, forgotten].map((digest) => existsSync(fileOf(digest)))).toEqual([
      true,
      true,
      false,
    ]);
  });

  it('is for administrators', async () => {
    const made = await gateway.api.post('/v1/api-keys', {
      ...{ name: 'user', scopes: ['sessions:read', 'sessions:write'] },
    });
    const user = gateway.api.withKey(made.json.key);
    expect((await user.post('/v1/artifacts/collect')).status).toBe(403);
  });
});

/** Announces a length and sends nothing. */
function announce(path: string, bytes: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const call = request(`${gateway.url}${path}`, {
      method: 'PUT',
      headers: {
        authorization: `Bearer ${gateway.api.key}`,
        'content-type': 'application/octet-stream',
        'content-length': String(bytes),
      },
    });
    call.on('response', (response) => {
      resolve(response.statusCode ?? 0);
      call.destroy();
    });
    call.on('error', reject);
    call.flushHeaders();
  });
}
