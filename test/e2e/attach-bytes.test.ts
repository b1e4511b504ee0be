import { createHash } from 'node:crypto';
import { seededRandom, until } from '@vmux/testing';
import { describeOnStack } from '../support/describe-on-stack';
import { Terminals } from '../support/terminals';

describeOnStack()('what goes through a terminal', (stack) => {
  let terminals: Terminals;
  beforeAll(async () => {
    terminals = await Terminals.of(stack);
  }, 90_000);
  afterEach(() => terminals.closeAll());

  describe('output', () => {
    it('is whole after any number of dropped connections, with characters cut anywhere', async () => {
      const line = '漢字カナ🎉é-'.repeat(8);
      const exec = await terminals.start(
        // With pauses, so that however fast it is read, it is read in more than a few pieces.
        `stty -opost; for i in $(seq 1 6000); do printf '%s %s\\n' $i '${line}'; [ $((i % 500)) = 0 ] && sleep 0.05; done`,
      );
      const random = seededRandom(6);
      const pieces: Buffer[] = [];
      let offset = 0;
      let drops = 0;
      for (;;) {
        const client = await terminals.attached(exec, { query: { offset } });
        const enough = 1 + random.integer(150_000);
        await until(() => client.closed !== null || client.output.length >= enough, {
          timeoutMs: 60_000,
          everyMs: 5,
        });
        client.close();
        const { output } = client;
        pieces.push(output);
        offset += output.length;
        expect(client.next ?? offset).toBe(offset);
        if (client.exit) break;
        drops += 1;
      }
      expect(drops).toBeGreaterThan(3);
      const whole = Buffer.concat(pieces);
      const path = `/v1/sessions/${terminals.session}/logs?exec=${exec}&stream=pty`;
      const { bytes } = await stack.api.raw(path);
      expect(sha256(whole)).toBe(sha256(bytes));
      expect(whole.toString().split('\n').slice(0, -1)).toEqual(
        Array.from({ length: 6000 }, (_, n) => `${n + 1} ${line}`),
      );
    }, 180_000);

    it('waits for a client that does not read, and holds up nobody else', async () => {
      const exec = await terminals.start(
        'head -c 30000000 /dev/zero | tr "\\0" x; echo; echo finished',
      );
      const slow = await terminals.attached(exec, { query: { offset: 0 } });
      slow.socket.pause();
      const quick = await terminals.attached(exec, { query: { offset: 0 } });
      await quick.ended();
      expect(quick.output.length).toBeGreaterThan(30_000_000);
      expect(slow.exit).toBeNull();
      slow.socket.resume();
      await slow.ended();
      expect(sha256(slow.output)).toBe(sha256(quick.output));
      const late = await terminals.attached(exec);
      await late.ended();
      expect(await late.text()).toMatch(/finished/);
    }, 180_000);
  });

  describe('input', () => {
    it('is taken once, in order, across a gateway and a runner that are killed and connections that drop', async () => {
      const input = seededRandom(7).bytes(200_000).toString('base64');
      const exec = await terminals.start(
        `stty raw -echo; echo ready; head -c ${input.length} | sha256sum; exec sleep 1000`,
      );
      const writer = Date.now() * 1000;
      let sent = 0;
      let taken = 0;
      let runnerKilled = false;
      for (let round = 0; taken < input.length; round += 1) {
        const client = await terminals.again(exec, { query: { offset: 0, writer } });
        if (round === 0) await client.prints('ready');
        // What was not acknowledged is sent again, from there.
        for (sent = taken; sent < input.length && client.closed === null; ) {
          const piece = input.slice(sent, sent + 5000);
          client.sendInput(sent, Buffer.from(piece));
          sent += piece.length;
          await pause(20);
          if (round === 0 && sent > 50_000) await stack.gatewayReplaced();
          if (round === 1 && sent > 120_000) break;
          if (round === 2 && !runnerKilled) {
            runnerKilled = true;
            process.kill(stack.pidOf('runner-local'), 'SIGKILL');
          }
        }
        if (round > 1) await until(() => client.taken === input.length, { timeoutMs: 60_000 });
        expect(client.errors).toEqual([]);
        taken = Math.max(taken, client.taken);
        client.close();
      }
      const client = await terminals.attached(exec, { query: { offset: 0 } });
      await client.prints(createHash('sha256').update(input).digest('hex'));
      await terminals.cancel(exec);
    }, 180_000);

    it('that does not go on where the last ended is refused, and the connection stays', async () => {
      const exec = await terminals.start();
      const client = await terminals.attached(exec);
      client.type('echo one\n');
      client.sendInput(500, Buffer.from('x'));
      await until(() => client.errors.length > 0, { timeoutMs: 20_000 });
      expect(client.errors[0]).toMatchObject({
        code: 'input_gap',
        details: { expected: 9 },
        fatal: false,
      });
      client.sendInput(5, Buffer.from('one\necho two\n'));
      // Behind a prompt where both lines were typed before the first was read.
      await client.shows(/^(\$ )?two$/m);
      expect((await client.text()).match(/^one$/gm)).toHaveLength(1);
      client.socket.send('text');
      await client.ended();
      expect(client.closed?.code).toBe(1008);
      await terminals.cancel(exec);
    }, 60_000);
  });
});

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
