import { chmodSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { releaseAll, temporaryDirectory } from '@vmux/testing';
import { KeyDestroyed, KeyDirectory, SealBroken } from '../src';

afterAll(releaseAll);

const session = 'geospot-rl-9e55';
const other = 'geospot-rl-0a0b';
const env = { TOKEN: 'a secret ünd more', EMPTY: '' };

const open = async () => {
  const root = join(temporaryDirectory('keys'), 'keys');
  return { root, keys: await KeyDirectory.at(root) };
};

describe('a directory of keys', () => {
  it('opens what it sealed, also from another process that shares the directory', async () => {
    const { root, keys } = await open();
    const sealed = await keys.seal(session, env);
    expect(sealed.names).toEqual(['EMPTY', 'TOKEN']);
    expect(JSON.stringify(sealed)).not.toContain('secret');
    expect(await (await KeyDirectory.at(root)).unseal(session, sealed)).toEqual(env);
  });

  it('seals the same values differently each time', async () => {
    const { keys } = await open();
    const [first, second] = [await keys.seal(session, env), await keys.seal(session, env)];
    expect(first.sealed).not.toBe(second.sealed);
    expect(first.keyId).toBe(second.keyId);
  });

  it('keeps keys where only their owner reads them', async () => {
    const { root, keys } = await open();
    await keys.keyOf(session);
    expect(statSync(root).mode & 0o777).toBe(0o700);
    expect(statSync(join(root, session)).mode & 0o777).toBe(0o600);
    expect(readdirSync(root)).toEqual([session]);
  });

  it('takes other people’s rights away from the directory', async () => {
    const { root } = await open();
    chmodSync(root, 0o755);
    await KeyDirectory.at(root);
    expect(statSync(root).mode & 0o777).toBe(0o700);
  });

  it('makes one key however many ask for it at once', async () => {
    const { root, keys } = await open();
    const second = await KeyDirectory.at(root);
    const asked = Array.from({ length: 20 }, (_, index) =>
      (index % 2 ? keys : second).keyOf(session),
    );
    expect(new Set(await Promise.all(asked)).size).toBe(1);
    expect(readdirSync(root)).toEqual([session]);
  });

  it('opens nothing once the key is destroyed, not even with a new key of the same session', async () => {
    const { root, keys } = await open();
    const sealed = await keys.seal(session, env);
    await keys.destroy(session);
    await keys.destroy(session);
    expect(readdirSync(root)).toEqual([]);
    await expect(keys.unseal(session, sealed)).rejects.toBeInstanceOf(KeyDestroyed);
    await keys.keyOf(session);
    await expect(keys.unseal(session, sealed)).rejects.toBeInstanceOf(SealBroken);
  });

  it('destroys a key for good, though whoever began with it was killed in the middle', async () => {
    const { root, keys } = await open();
    await keys.keyOf(session);
    renameSync(join(root, session), join(root, `.doomed-${session}`));
    await (await KeyDirectory.at(root)).destroy(session);
    expect(readdirSync(root)).toEqual([]);
  });

  it('opens nothing that was sealed for another session, renamed or changed', async () => {
    const { root, keys } = await open();
    const sealed = await keys.seal(session, env);
    writeFileSync(join(root, other), readFileSync(join(root, session)), { mode: 0o600 });
    const bytes = Buffer.from(sealed.sealed, 'base64');
    bytes.writeUInt8(bytes.readUInt8(14) ^ 1, 14);
    const broken = [
      () => keys.unseal(other, sealed),
      () => keys.unseal(session, { ...sealed, names: ['EMPTY', 'OTHER'] }),
      () => keys.unseal(session, { ...sealed, sealed: bytes.toString('base64') }),
      () => keys.unseal(session, { ...sealed, sealed: 'AAAA' }),
    ];
    for (const attempt of broken) await expect(attempt()).rejects.toBeInstanceOf(SealBroken);
  });

  it('tells requests apart by a digest that only the key’s holder can compute', async () => {
    const { keys } = await open();
    const body = Buffer.from('{"env":{"TOKEN":"a"}}');
    const digest = await keys.digest(session, body);
    expect(digest).toMatch(/^[0-9a-f]{64}$/);
    expect(await keys.digest(session, body)).toBe(digest);
    expect(await keys.digest(session, Buffer.from('{}'))).not.toBe(digest);
    expect(await keys.digest(other, body)).not.toBe(digest);
  });

  it('takes no name that is not a session’s', async () => {
    const { keys } = await open();
    await expect(keys.keyOf('../outside-0000')).rejects.toThrow('session id');
  });
});
