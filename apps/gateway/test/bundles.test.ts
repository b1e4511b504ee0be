import { createHash } from 'node:crypto';
import { existsSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
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
    // The connection on which too much came is not used again: nobody would answer on it.
    expect((await gateway.api.raw('/v1/runners')).status).toBe(200);
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

describe('a bundle in parts', () => {
  const bytes = Buffer.from('the bytes of a bundle that is sent in parts');
  const digest = sha256(bytes);
  const total = bytes.length;
  const send = (body: Buffer, range: string, api = gateway.api, name = digest) =>
    api.call('PUT', `/v1/bundles/${name}`, { body, headers: { 'content-range': range } });
  const other = async () => {
    const made = await gateway.api.post('/v1/api-keys', {
      ...{ name: 'else', owner: 'else', scopes: ['sessions:read', 'sessions:write'] },
    });
    return gateway.api.withKey(made.json.key);
  };
  const uploads = () => {
    const top = join(stack.dir, 'artifacts', 'uploads');
    return readdirSync(top).flatMap((owner) => readdirSync(join(top, owner)));
  };

  it('goes on where it was, for its owner alone', async () => {
    const first = await send(bytes.subarray(0, 10), `bytes 0-9/${total}`);
    expect([first.status, first.json]).toEqual([202, { digest, offset: 10 }]);
    const asked = await gateway.api.get(`/v1/bundles/${digest}/upload`);
    expect(asked.json).toEqual({ digest, stored: false, offset: 10 });
    const stranger = await other();
    expect((await stranger.get(`/v1/bundles/${digest}/upload`)).json).toMatchObject({ offset: 0 });
    const rest = `bytes 10-${total - 1}/${total}`;
    const foreign = await send(bytes.subarray(10), rest, stranger);
    expect([foreign.status, foreign.json.code, foreign.json.details]).toEqual([
      409,
      'upload_gap',
      { offset: 0 },
    ]);
    const last = await send(bytes.subarray(10), rest);
    expect([last.status, last.json]).toEqual([200, { digest, bytes: total, deduplicated: false }]);
    expect(uploads()).toEqual([]);
  });

  it.each<[string, string, number, string]>([
    ['of another form', 'bytes 0-', 400, 'invalid_request'],
    ['of bytes that there cannot be', `bytes 5-4/${total}`, 400, 'invalid_request'],
    ['beyond its own end', `bytes 0-${total}/${total}`, 400, 'invalid_request'],
    ['of fewer bytes than come', `bytes 0-3/${total}`, 400, 'invalid_request'],
    ['of more than a bundle has', `bytes 0-9/${101 * 2 ** 20}`, 413, 'body_too_large'],
  ])('with a range %s is refused and leaves nothing', async (_what, range, status, code) => {
    const name = sha256(Buffer.from(range));
    const refused = await send(bytes, range, gateway.api, name);
    expect([refused.status, refused.json.code]).toEqual([status, code]);
    expect(uploads()).toEqual([]);
  });

  it('that is something else in the end is refused and leaves nothing', async () => {
    const refused = await send(bytes, `bytes 0-${total - 1}/${total}`, gateway.api, '0'.repeat(64));
    expect([refused.status, refused.json.code]).toEqual([422, 'digest_mismatch']);
    expect(uploads()).toEqual([]);
    expect(incoming()).toEqual([]);
  });

  it('comes back in parts as well, for whoever has it', async () => {
    await gateway.api.call('PUT', `/v1/bundles/${digest}`, { body: bytes });
    const path = `/v1/bundles/${digest}`;
    const all = await gateway.api.raw(path);
    expect([all.status, all.headers['content-length'], all.headers.etag]).toEqual([
      200,
      String(total),
      `"${digest}"`,
    ]);
    expect(all.bytes.equals(bytes)).toBe(true);
    const part = await gateway.api.raw(path, { range: 'bytes=5-9', 'if-range': `"${digest}"` });
    expect([part.status, part.headers['content-range'], part.bytes.toString()]).toEqual([
      206,
      `bytes 5-9/${total}`,
      bytes.toString('latin1', 5, 10),
    ]);
    const rest = await gateway.api.raw(path, { range: `bytes=${total - 3}-` });
    expect([rest.status, rest.bytes.toString()]).toEqual([
      206,
      bytes.toString('latin1', total - 3),
    ]);
    const changed = await gateway.api.raw(path, { range: 'bytes=5-9', 'if-range': '"another"' });
    expect([changed.status, changed.bytes.length]).toEqual([200, total]);
    const beyond = await gateway.api.get(path, { range: `bytes=${total}-` });
    expect([beyond.status, beyond.json.code, beyond.json.details]).toEqual([
      416,
      'range_past_end',
      { size: total },
    ]);
    const foreign = await (await other()).get(path);
    expect([foreign.status, foreign.json.code]).toEqual([404, 'bundle_not_found']);
  });

  it('that was damaged in the store is cut rather than handed out as whole', async () => {
    const content = Buffer.alloc(300_000, 'sound');
    const name = sha256(content);
    await gateway.api.call('PUT', `/v1/bundles/${name}`, { body: content });
    const file = join(stack.dir, 'artifacts', 'content', name.slice(0, 2), name.slice(2));
    writeFileSync(file, Buffer.alloc(300_000, 'spoilt'));
    await expect(gateway.api.raw(`/v1/bundles/${name}`)).rejects.toThrow();
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
