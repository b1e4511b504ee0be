import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { SupervisorClient } from '../supervisor-client';
import { type Bench, finish, run, shell, until } from './bench';

/** A program whose whole output is known beforehand: 2000 numbered lines, some milliseconds apart. */
const COUNTING =
  'i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.02; done; exit 42';
const COUNTED = Array.from({ length: 2000 }, (_, n) => `line ${n}\n`).join('');

const NUMBERS = Array.from({ length: 200_000 }, (_, n) => `${n + 1}\n`).join('');

export function lifetimeContract(bench: Bench): void {
  describe('lifetime', () => {
    it('keeps a sandbox and all its output when its runner is killed, for a new runner to adopt', async () => {
      const id = bench.newId();
      const exec = shell(COUNTING);
      const argument = JSON.stringify({ spec: bench.specOf(id), exec });
      const { command, args } = bench.target.runner;
      const child = spawn(command, [...args, argument], { stdio: ['ignore', 'pipe', 'pipe'] });
      let said = '';
      child.stderr.on('data', (data) => {
        said += data;
      });
      const exited = once(child, 'exit');
      let offset = 0;
      for await (const line of createInterface({ input: child.stdout })) {
        offset = Number(/^read (\d+)$/.exec(line)?.[1] ?? 0);
        if (offset > 1000) break;
      }
      child.kill('SIGKILL');
      expect([await exited, said]).toEqual([[null, 'SIGKILL'], '']);

      const driver = bench.target.openDriver();
      const record = (await driver.list()).find((found) => found.id.instance === id.instance);
      expect(record).toMatchObject({ id, probe: { state: 'running' } });
      expect(await driver.adopt(id)).toMatchObject({ id });
      const client = await bench.connect(id, driver);
      let rest = '';
      for await (const item of client.read(exec.execId, { offset })) {
        if ('data' in item) rest += item.data;
        if (item.kind === 'end') expect(item.exec.outcome).toEqual({ kind: 'exited', code: 42 });
      }
      expect(rest).toBe(COUNTED.slice(offset));
      const whole = await finish(client, exec.execId);
      expect(sha256(whole.stdout)).toBe(sha256(Buffer.from(COUNTED)));
      await driver.destroy(id);
      await driver.close();
    }, 60_000);

    it('says that a sandbox killed from outside is gone, and never how its commands ended', async () => {
      const { id, client } = await bench.sandbox();
      const exec = shell('echo up; exec sleep 1000');
      await client.start(exec);
      const output = client.read(exec.execId);
      expect((await output.next()).value).toMatchObject({ kind: 'stdout' });
      const next = output.next();
      next.catch(() => undefined);
      await bench.target.killFromOutside(id);
      await expect(next).rejects.toMatchObject({ code: 'pipe_broken', next: 'retry' });
      await until(async () => (await bench.driver.probe(id)).state === 'gone');
      await expect(bench.driver.openPipe(id)).rejects.toMatchObject({ next: 'lost' });
      await expect(bench.driver.adopt(id)).rejects.toMatchObject({ next: 'lost' });
      const listed = (await bench.driver.list()).find((found) => found.id.instance === id.instance);
      expect(listed?.probe.state).toBe('gone');
      await bench.driver.destroy(id);
      const left = (await bench.driver.list()).map((found) => found.id.instance);
      expect(left).not.toContain(id.instance);
    });

    it('still has what a killed sandbox wrote and nobody read, where its record outlives it', async () => {
      const { id, client } = await bench.sandbox();
      const before = await run(client, shell('seq 1 1000; exit 7'));
      const exec = shell('seq 1 200000; echo end >&2; exec sleep 1000');
      await client.start(exec);
      for await (const item of client.read(exec.execId)) if (item.kind === 'stderr') break;
      await bench.target.killFromOutside(id);
      await until(async () => (await bench.driver.probe(id)).state === 'gone');
      if (!bench.driver.openRemains) return;
      const remains = await SupervisorClient.connect(await bench.driver.openRemains(id), id);
      expect(remains.hello.readOnly).toBe(true);
      const ended = await finish(remains, before.exec.execId);
      expect(ended.exec.outcome).toEqual({ kind: 'exited', code: 7 });
      const cut = await finish(remains, exec.execId);
      expect(cut.exec.outcome.kind).toBe('lost');
      expect(sha256(cut.stdout)).toBe(sha256(Buffer.from(NUMBERS)));
      await remains.quit();
      await bench.driver.destroy(id);
    }, 60_000);

    it('destroys a sandbox once, and again, and one that never was', async () => {
      const { id, client } = await bench.sandbox();
      await client.start(shell('exec sleep 1000'));
      await Promise.all([bench.driver.destroy(id), bench.driver.destroy(id)]);
      await bench.driver.destroy(id);
      await expect(client.ended).resolves.toMatchObject({ code: 'pipe_broken' });
      expect(await bench.driver.probe(id)).toMatchObject({ state: 'gone' });
      await bench.driver.destroy(bench.newId());
    });

    it('refuses to create the same sandbox twice and leaves the first alone', async () => {
      const { id, client } = await bench.sandbox();
      await expect(bench.driver.create(bench.specOf(id))).rejects.toMatchObject({
        next: 'refuse',
        reason: 'exists',
      });
      expect((await run(client, shell('echo still here'))).stdout.toString()).toBe('still here\n');
    });

    it('leaves nothing of a create that was given up', async () => {
      const id = bench.newId();
      const abort = new AbortController();
      const created = bench.driver.create(bench.specOf(id), { signal: abort.signal });
      setTimeout(() => abort.abort(new Error('given up')), 5);
      const outcome = await created.then(
        () => 'created',
        (fault: Error) => fault.message,
      );
      if (outcome === 'created') await bench.driver.destroy(id);
      else expect(outcome).toBe('given up');
      const left = (await bench.driver.list()).map((found) => found.id.instance);
      expect(left).not.toContain(id.instance);
    });

    it('answers nobody who asks for another epoch or instance', async () => {
      const { id } = await bench.sandbox();
      const newer = { ...id, epoch: id.epoch + 1 };
      await expect(bench.driver.openPipe(newer)).rejects.toMatchObject({ next: 'lost' });
      const pipe = await bench.driver.openPipe(id);
      await expect(SupervisorClient.connect(pipe, newer)).rejects.toMatchObject({
        code: 'wrong_supervisor',
      });
    });

    it('stops time in a suspended sandbox and lets it go on', async () => {
      const { offered, missing } = await bench.driver.capabilities();
      const { id, client } = await bench.sandbox();
      if (!offered.includes('suspend')) {
        expect(missing.suspend).toBeTruthy();
        await expect(bench.driver.suspend(id)).rejects.toMatchObject({ reason: 'unsupported' });
        return;
      }
      const exec = shell('while :; do echo tick; sleep 0.01; done');
      await client.start(exec);
      const output = client.read(exec.execId);
      const tickAtUs = async () => {
        const { value } = await output.next();
        if (!value || !('data' in value)) throw new Error('the ticking ended');
        return value.atUs;
      };
      let lastUs = await tickAtUs();
      await bench.driver.suspend(id);
      await bench.driver.suspend(id);
      expect(await bench.driver.probe(id)).toEqual({ state: 'suspended' });
      const pausedMs = 400;
      await new Promise((resolve) => setTimeout(resolve, pausedMs));
      await bench.driver.resume(id);
      expect(await bench.driver.probe(id)).toEqual({ state: 'running' });
      // Without the pause no two ticks would be that far apart, and this would never end.
      for (let pauseUs = 0; pauseUs < (pausedMs - 50) * 1000; ) {
        const atUs = await tickAtUs();
        pauseUs = atUs - lastUs;
        lastUs = atUs;
      }
      await output.return(undefined);
      await client.cancel(exec.execId, 0);
    });

    it('destroys a suspended sandbox', async () => {
      const { offered } = await bench.driver.capabilities();
      const { id } = await bench.sandbox();
      if (offered.includes('suspend')) await bench.driver.suspend(id);
      await bench.driver.destroy(id);
      expect((await bench.driver.probe(id)).state).toBe('gone');
    });

    it('refuses clearly what it does not offer', async () => {
      const { available, reason, offered, missing } = await bench.driver.capabilities();
      expect([available, reason]).toEqual([true, null]);
      const { id } = await bench.sandbox();
      const spec = { ...bench.specOf(bench.newId()) };
      const refusal = { next: 'refuse', reason: 'unsupported' };
      if (!offered.includes('egress'))
        await expect(bench.driver.create({ ...spec, egress: true })).rejects.toMatchObject(refusal);
      if (!offered.includes('gpu'))
        await expect(bench.driver.create({ ...spec, gpu: 'any' })).rejects.toMatchObject(refusal);
      if (!offered.includes('checkpoint'))
        await expect(bench.driver.checkpoint(id)).rejects.toMatchObject(refusal);
      for (const capability of ['gpu', 'checkpoint', 'memorySnapshot', 'fork', 'egress'] as const)
        if (!offered.includes(capability)) expect(missing[capability]).toBeTruthy();
      const invalid = bench.driver.create({ ...spec, id: { ...spec.id, instance: '../x' } });
      await expect(invalid).rejects.toMatchObject({ next: 'refuse', reason: 'invalid' });
    });
  });
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
