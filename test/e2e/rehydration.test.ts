import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import type { ClientSession } from '../support/embedded-stack';

const PATIENCE = { timeoutMs: 120_000, everyMs: 50 };
/** Every entry of the workspace with its mode, owner, time, links and target, and every file's content. */
const MANIFEST = `cd /workspace && { find . -type d -printf "%p %m %U:%G %T@\\n";
  find . ! -type d -printf "%p %y %m %U:%G %s %T@ %l %n\\n"; } | sort &&
  find . -type f -print0 | sort -z | xargs -0 sha256sum`;

describeOnStack({ env: { VMUX_WITH: 'cloudflare-local,modal-local' } })(
  'one session on three providers (Cloudflare and Modal emulated)',
  (stack) => {
    const isOn = (session: ClientSession, provider: string) =>
      until(async () => {
        const { operation, provider: now, status, message } = await session.info();
        if (operation === null && status === 'running' && now === provider) return true;
        throw new Error(`${status} on ${now}, ${operation}, ${message}`);
      }, PATIENCE);

    /** Takes the session's worker away, as Modal does: what is left of it is an exit code of 0. */
    const loseWorkerOf = async ({ id }: ClientSession) => {
      const file = join(stack.dataDir, 'modal/control.json');
      const { url, token }: { url: string; token: string } = JSON.parse(readFileSync(file, 'utf8'));
      const headers = { authorization: `Bearer ${token}` };
      const sandboxes = (await (await fetch(`${url}/sandboxes`, { headers })).json()) as readonly {
        readonly sandboxId: string;
        readonly tags: readonly { readonly tagName: string; readonly tagValue: string }[];
      }[];
      const lost = sandboxes.find(({ tags }) => tags.some(({ tagValue }) => tagValue === id));
      const path = `${url}/sandboxes/${lost?.sandboxId}/lost`;
      expect((await fetch(path, { method: 'POST', headers })).status).toBe(200);
    };

    it('keeps workspace, ledger and logs on the way local → modal → cloudflare → local', async () => {
      const session = await stack.create({ provider: 'ns' });
      await session.run(
        `mkdir -p src/empty && head -c 700000 /dev/urandom > src/blob && ln src/blob src/twin &&
         ln -s ../src/blob src/link && chmod 4750 src/blob && truncate -s 5M src/sparse &&
         echo café > "src/näme with space" && echo cold > /etc/vmux-note`,
      );
      const manifest = await session.run(MANIFEST);
      const told: { readonly exec: string; readonly said: string }[] = [];
      for (const provider of ['modal', 'cloudflare', 'ns']) {
        const exec = await session.start(`echo on the way to ${provider}`);
        await session.ended(exec);
        told.push({ exec, said: `on the way to ${provider}\n` });
        const answer = await session.ask('move', { provider });
        expect([provider, answer.status]).toEqual([provider, expect.any(Number)]);
        await isOn(session, provider);
        expect(await session.run(MANIFEST)).toBe(manifest);
        expect(await session.run('cat /etc/vmux-note')).toBe('cold\n');
        for (const { exec, said } of told) {
          expect(await session.output(exec)).toBe(said);
          expect((await session.exec(exec)).exit).toEqual({ kind: 'exited', code: 0 });
        }
      }
      const events = await session.events();
      expect(events.map(({ revision }) => revision)).toEqual(events.map((_, at) => at));
      const moves = events.filter(({ type }) => type === 'Moved').map(({ data }) => data);
      expect(moves.map(({ from, to }) => [from, to])).toEqual([
        ['ns', 'modal'],
        ['modal', 'cloudflare'],
        ['cloudflare', 'ns'],
      ]);
      await session.stop();
      expect(readdirSync(join(stack.dataDir, 'modal/workers/s'))).toEqual([]);
      expect(readdirSync(join(stack.dataDir, 'cloudflare/ns/s'))).toEqual([]);
    }, 300_000);

    it('is lost on Modal with its worker, never as a success, and goes on here from its history', async () => {
      const session = await stack.create({ provider: 'modal' });
      await session.run('echo precious > file');
      const manifest = await session.run(MANIFEST);
      await session.checkpoint();
      const running = await session.start('echo up; exec sleep 1000');
      await until(async () => (await session.output(running)) === 'up\n', PATIENCE);
      await loseWorkerOf(session);
      await until(async () => (await session.types()).includes('SandboxLost'), PATIENCE);
      expect((await session.ended(running)).exit).toMatchObject({ kind: 'unknown' });
      expect(await session.output(running)).toBe('up\n');
      await session.ask('rehydrate', { provider: 'ns' });
      await isOn(session, 'ns');
      expect(await session.run(MANIFEST)).toBe(manifest);
      await session.stop();
    }, 300_000);

    it('is labelled as emulated wherever its provider is listed', async () => {
      const { json } = await stack.api.get('/v1/runners');
      const listed = json.runners.flatMap(({ providers }: { providers: object[] }) => providers);
      for (const provider of ['modal', 'cloudflare'])
        expect(listed).toContainEqual(
          expect.objectContaining({ provider, available: true, emulated: true }),
        );
    });
  },
);
