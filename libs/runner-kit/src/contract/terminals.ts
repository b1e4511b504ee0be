import { openInput } from '../exec-input';
import type { SupervisorClient } from '../supervisor-client';
import { type Bench, shell } from './bench';

/** Reads a terminal until it shows the text; returns all that it showed. */
async function shows(
  output: ReturnType<SupervisorClient['read']>,
  text: string,
  shown = '',
): Promise<string> {
  for (let all = shown; ; ) {
    if (all.includes(text)) return all;
    const { value, done } = await output.next();
    if (done || value.kind === 'end') throw new Error(`the terminal ended after ${all}`);
    if ('data' in value) all += value.data;
  }
}

export function terminalContract(bench: Bench): void {
  describe('terminals', () => {
    it('interrupts the foreground program by Ctrl-C', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('stty size; tty; echo ready; exec sleep 1000', {
        pty: { cols: 99, rows: 33 },
        stdin: true,
      });
      await client.start(exec);
      const output = client.read(exec.execId);
      const shown = await shows(output, 'ready');
      expect(shown).toContain('33 99\r\n');
      expect(shown).toMatch(/\/dev\/pts\/\d+/);
      await openInput(client, exec.execId).write(Buffer.of(3));
      for (let item = await output.next(); !item.done; item = await output.next())
        if (item.value.kind === 'end')
          expect(item.value.exec.outcome).toMatchObject({ kind: 'signalled', signal: 2 });
      expect((await client.state(exec.execId)).outcome.kind).toBe('signalled');
    });

    it('tells the program of a new size, and the reader when it came', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('trap "stty size" WINCH; echo ready; read -r x; read -r x; echo bye', {
        pty: { cols: 80, rows: 24 },
        stdin: true,
      });
      await client.start(exec);
      const output = client.read(exec.execId);
      await shows(output, 'ready');
      await client.resize(exec.execId, 120, 40);
      const input = openInput(client, exec.execId);
      await input.write(Buffer.from('\n\n'));
      let rest = '';
      const resizes: unknown[] = [];
      for (let item = await output.next(); !item.done; item = await output.next()) {
        if ('data' in item.value) rest += item.value.data;
        if (item.value.kind === 'resize') resizes.push([item.value.cols, item.value.rows]);
      }
      expect(rest).toContain('40 120');
      expect(rest).toContain('bye');
      expect(resizes).toContainEqual([120, 40]);
    });

    it('echoes what is typed and ends on the end-of-file character', async () => {
      const { client } = await bench.sandbox();
      const exec = shell('cat', { pty: { cols: 80, rows: 24 }, stdin: true });
      await client.start(exec);
      const output = client.read(exec.execId);
      const input = openInput(client, exec.execId);
      await input.write(Buffer.from('hello\n'));
      expect(await shows(output, 'hello\r\nhello\r\n')).toBe('hello\r\nhello\r\n');
      await input.end();
      for (let item = await output.next(); !item.done; item = await output.next())
        if (item.value.kind === 'end')
          expect(item.value.exec.outcome).toEqual({ kind: 'exited', code: 0 });
      await expect(client.resize(exec.execId, 1, 1)).rejects.toMatchObject({ reason: 'ended' });
    });
  });
}
