import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeUnless, projectRoot, releaseAll, until } from '@vmux/testing';
import { type ClientSession, EmbeddedStack } from '../support/embedded-stack';

const CLI = join(projectRoot(), 'dist/apps/cli/src/main.js');
const isRoot = process.getuid?.() === 0;
const PATIENCE = { timeoutMs: 90_000, everyMs: 50 };
const DIGEST =
  'cd /workspace && find . -printf "%p %m %s %l\\n" | sort && find . -type f | sort | xargs sha256sum';

describeUnless(isRoot, 'namespace sandboxes need root on Linux')(
  'Cloudflare without a Worker',
  () => {
    it('is listed as unavailable with what to set, and affects nothing else', async () => {
      const stack = await EmbeddedStack.start(null, { VMUX_WITH: 'cloudflare' });
      try {
        const { json } = await until(async () => {
          const reply = await stack.api.get('/v1/runners');
          return reply.json.runners.length === 2 && reply;
        }, PATIENCE);
        const listed = json.runners.flatMap(({ providers }: { providers: object[] }) => providers);
        expect(listed).toContainEqual(
          expect.objectContaining({
            provider: 'cloudflare',
            available: false,
            reason: expect.stringContaining('set CLOUDFLARE_WORKER_URL'),
          }),
        );
        const refused = await stack.api.post('/v1/sessions', { name: 'x', provider: 'cloudflare' });
        expect([refused.status, refused.json.code]).toEqual([503, 'no_placement']);
        const local = await stack.create({ provider: 'ns' });
        expect(await local.run('echo fine')).toBe('fine\n');
      } finally {
        await stack.stop();
        await releaseAll();
      }
    }, 180_000);
  },
);

describeUnless(isRoot, 'namespace sandboxes need root on Linux')(
  'a session on Cloudflare, emulated',
  () => {
    let stack: EmbeddedStack;
    beforeAll(async () => {
      stack = await EmbeddedStack.start(null, { VMUX_WITH: 'cloudflare-local' });
    }, 120_000);
    afterAll(async () => {
      await stack?.stop();
      await releaseAll();
    }, 120_000);

    const containers = () => readdirSync(join(stack.dataDir, 'cloudflare/ns/s'));
    const onCloudflare = () =>
      stack.create({
        provider: 'cloudflare',
        resources: { cpus: 1, memoryMiB: 256, diskMiB: 512 },
      });
    /** Does to the session's container what happens to one at Cloudflare. */
    const control = async (verb: string, session: ClientSession, number?: number) => {
      const file = join(stack.dataDir, 'cloudflare/control.json');
      const { url, token }: { url: string; token: string } = JSON.parse(readFileSync(file, 'utf8'));
      const started = (await session.events()).filter(({ type }) => type === 'SandboxStarted');
      const { epoch, instance } = started.at(-1)?.data ?? {};
      const path = [verb, session.id, epoch, instance, number ?? ''].join('/');
      const answer = await fetch(`${url}/control/${path}`, {
        headers: { 'x-vmux-stand-in': token },
      });
      expect([answer.status, await answer.text()]).toEqual([200, expect.anything()]);
    };

    it('runs commands, keeps their output and leaves no container behind', async () => {
      const session = await onCloudflare();
      expect(await session.run('echo hello; id -u')).toBe('hello\n0\n');
      expect(containers()).toHaveLength(1);
      const { cost } = await session.info();
      expect(cost).toMatchObject({ estimated: true, byProvider: [{ provider: 'cloudflare' }] });
      expect(cost.leastUsd).toBeGreaterThan(0);
      await session.stop();
      expect(containers()).toHaveLength(0);
      const [exec] = (await session.events()).filter(({ type }) => type === 'ExecIssued');
      expect(await session.output(String(exec?.data.execId))).toBe('hello\n0\n');
    }, 120_000);

    it('is refused at once when it asks for more than Cloudflare has', async () => {
      const resources = { cpus: 8, memoryMiB: 256, diskMiB: 512 };
      const asked = { name: 'large', provider: 'cloudflare', resources };
      const { status, json } = await stack.api.post('/v1/sessions', asked);
      expect([status, json.code]).toEqual([422, 'not_supported']);
      expect(json.message).toContain('at most 4 vCPU');
    });

    it('loses no byte of its output while its connections and its object are lost again and again', async () => {
      const session = await onCloudflare();
      const script =
        'for i in $(seq 50); do head -c 1048576 /dev/urandom; sleep 0.1; done | tee /tmp/blob';
      const exec = await session.start(script);
      let cuts = 0;
      for (; (await session.exec(exec)).endedAt === null; cuts++) {
        await control(cuts % 5 === 4 ? 'evict-object' : 'cut', session);
        await sleep(1_000);
      }
      expect(cuts).toBeGreaterThan(4);
      const { exit } = await session.ended(exec);
      expect(exit).toEqual({ kind: 'exited', code: 0 });
      const { bytes } = await stack.api.raw(`${session.path}/logs?exec=${exec}&stream=stdout`);
      expect(bytes.length).toBe(50 * 1_048_576);
      const inside = await session.run('sha256sum < /tmp/blob');
      expect(inside.slice(0, 64)).toBe(createHash('sha256').update(bytes).digest('hex'));
      await session.stop();
    }, 240_000);

    it('is lost when its container is replaced by an empty one, and goes on from its checkpoint', async () => {
      const session = await onCloudflare();
      await session.run('mkdir -p a && head -c 100000 /dev/urandom > a/blob && ln -s a/blob link');
      const before = await session.run(DIGEST);
      await session.checkpoint();
      const running = await session.start('echo up; exec sleep 1000');
      await until(async () => (await session.output(running)) === 'up\n', PATIENCE);
      await control('replace', session);
      await until(async () => (await session.types()).includes('SandboxLost'), PATIENCE);
      const { exit } = await session.ended(running);
      expect(exit).toMatchObject({ kind: 'unknown' });
      expect(await session.output(running)).toBe('up\n');
      await session.ask('rehydrate', {});
      await session.becomes('running');
      expect(await session.run(DIGEST)).toBe(before);
      const epochs = (await session.events())
        .filter(({ type }) => type === 'SandboxStarted')
        .map(({ data }) => data.epoch);
      expect(epochs).toHaveLength(2);
      await session.stop();
    }, 180_000);

    it('is saved and released before its container is killed, and wakes in another one', async () => {
      const session = await onCloudflare();
      await session.run('echo precious > file');
      await control('evict', session, 40_000);
      await until(async () => (await session.types()).includes('SandboxReleased'), PATIENCE);
      expect(await session.types()).toEqual(
        expect.arrayContaining(['LifetimeKnown', 'CheckpointTaken', 'SandboxReleased']),
      );
      expect(await session.run('cat file')).toBe('precious\n');
      await session.stop();
    }, 180_000);

    it('keeps its files and its log on the way from this machine to Cloudflare and back', async () => {
      const session = await stack.create({ provider: 'ns' });
      await session.run('mkdir -p d/e && head -c 300000 /dev/urandom > d/e/f && chmod 700 d');
      const told = await session.start('echo told on the way');
      await session.ended(told);
      const before = await session.run(DIGEST);
      for (const provider of ['cloudflare', 'ns']) {
        await session.ask('move', { provider });
        await until(async () => {
          const { operation, provider: now, status } = await session.info();
          return operation === null && status === 'running' && now === provider;
        }, PATIENCE);
        expect(await session.run(DIGEST)).toBe(before);
        expect(await session.output(told)).toBe('told on the way\n');
      }
      expect((await session.types()).filter((type) => type === 'Moved')).toHaveLength(2);
      await session.stop();
    }, 240_000);

    it('is labelled as emulated wherever it shows', async () => {
      const session = await onCloudflare();
      expect(await session.info()).toMatchObject({ provider: 'cloudflare', emulated: true });
      const cli = (command: string) =>
        execFileSync(process.execPath, [CLI, command], {
          env: { ...process.env, ...stack.env },
          encoding: 'utf8',
        });
      expect(cli('ps')).toMatch(new RegExp(`${session.id}.*cloudflare \\(emulated\\)`));
      expect(cli('status')).toContain('cloudflare (emulated): available');
      await session.stop();
      const { json } = await stack.api.get('/v1/runners');
      const listed = json.runners.flatMap(({ providers }: { providers: object[] }) => providers);
      expect(listed).toContainEqual(
        expect.objectContaining({ provider: 'cloudflare', available: true, emulated: true }),
      );
      expect(listed).toContainEqual(expect.objectContaining({ provider: 'ns', emulated: false }));
    }, 120_000);
  },
);
