import { spawnSync } from 'node:child_process';
import { describeUnless, releaseAll, skipUnless, until } from '@vmux/testing';
import { livesOn, Newcomer } from '../support/front-door';
import { hasTmux, Tmux } from '../support/tmux';

const isRoot = process.getuid?.() === 0;
const detached = /vmux: detached; it goes on/;
jest.setTimeout(120_000);

describeUnless(isRoot && hasTmux, 'needs tmux, and root on Linux')('a terminal', () => {
  let user: Newcomer;
  let id: string;
  const terminal = (cols = 80, rows = 24) =>
    new Tmux({ cols, rows, cwd: user.project, env: { ...user.env, PATH: process.env.PATH } });
  const prompt = () => new RegExp(`${id}:/workspace# *$`);
  /** In the session's shell, at a prompt on an empty screen. */
  const attachedTerminal = async (cols = 80, rows = 24) => {
    const own = terminal(cols, rows);
    own.line(`${user.vmuxFile} attach ${id}`);
    await own.until(`${id}:`);
    return own;
  };
  let marks = 0;
  /** A mark that was not there before: what is typed next meets a shell that waits for it. */
  const cleared = async (own: Tmux) => {
    marks += 1;
    own.line(`clear; echo "mark" ${marks}`);
    await own.until(new RegExp(`^mark ${marks}\\n.*# *$`));
  };

  beforeAll(async () => {
    user = new Newcomer();
    const { stdout } = await user.vmux('run', '-d', '--name', 'term', '--', 'true');
    id = stdout.trim();
  }, 120_000);
  afterAll(releaseAll, 90_000);

  it('shows characters of any width, however their bytes come', async () => {
    const own = await attachedTerminal();
    await cleared(own);
    own.line(
      String.raw`printf '\346'; sleep .3; printf '\227\245|\360\237'; sleep .3; printf '\230\200|é\n'`,
    );
    await own.until('日|😀|é');
    own.keys('C-p', 'C-q');
    await own.until(detached);
  });

  it('is left and found again, the same in a second terminal', async () => {
    const first = await attachedTerminal();
    await cleared(first);
    first.line(
      String.raw`printf '\033[1;31mred\033[0m and \033[7minverse\033[0m\n'; cd /tmp; FOUND=again`,
    );
    await first.until('red and inverse');
    await first.until(/:\/tmp# *$/);
    first.keys('C-p', 'C-q');
    const left = await first.until(detached);
    expect(left).toContain(`vmux attach ${id}`);

    const second = await attachedTerminal();
    await second.until('red and inverse');
    expect(second.painted().replaceAll('\u001b', 'ESC')).toMatch(/ESC\[1m?.*31m.*red/);
    second.line('echo "$FOUND in $PWD"; cd /workspace');
    await second.until('again in /tmp');
    const third = await attachedTerminal();
    await third.until('again in /tmp');
    expect({ text: third.screen(), at: third.cursor() }).toEqual({
      ...{ text: second.screen(), at: second.cursor() },
    });
    third.line('echo typed by the third');
    await second.until('\ntyped by the third');
    for (const each of [second, third]) each.keys('C-p', 'C-q');
  });

  it('takes the size of the terminal that it is in', async () => {
    const own = await attachedTerminal(90, 20);
    own.line('clear; stty size');
    await own.until('20 90');
    own.resize(70, 30);
    await until(() => {
      own.line('clear; stty size');
      return /^30 70$/m.test(own.screen());
    });
    own.keys('C-p', 'C-q');
    await own.until(detached);
  });

  it('hands Ctrl-C to the program that runs in it', async () => {
    const own = await attachedTerminal();
    await cleared(own);
    own.line('sleep 1000');
    await own.until('sleep 1000');
    own.keys('C-c');
    await own.until(/\^C\n.*# *$/);
    own.line('echo "code $?"');
    await own.until('code 130');
    own.keys('C-p', 'C-q');
    await own.until(detached);
  });

  skipUnless(spawnSync('less', ['--version']).status === 0, 'no less')(
    'shows a full-screen program again as it was, also after the gateway was killed',
    async () => {
      const first = await attachedTerminal();
      await cleared(first);
      first.line('seq -f "row %g" 1000 | less');
      await first.until(/row 1\n[\s\S]*row 23\n:$/);
      first.keys('Space');
      await first.until(/^row 24\n[\s\S]*row 46\n:$/);
      const before = first.screen();
      first.keys('C-p', 'C-q');
      await first.until(detached);
      expect(first.screen()).not.toContain('row 24');

      const [gateway] = user.record().parts.filter(({ name }) => name === 'gateway');
      process.kill(gateway?.pid ?? 0, 'SIGKILL');
      await until(() => !livesOn(gateway?.pid ?? 0));
      const second = terminal();
      second.line(`${user.vmuxFile} attach ${id}`);
      await second.until('row 46');
      expect(second.screen()).toBe(before);
      second.keys('q');
      await second.until(prompt());
      expect(second.screen()).not.toContain('row 46');
      second.keys('C-p', 'C-q');
      await second.until(detached);
    },
  );

  it('does not notice that the gateway is killed while somebody types', async () => {
    const own = await attachedTerminal();
    await cleared(own);
    own.line(
      'for i in $(seq 1 40); do echo "tick $i"; sleep 0.1; done; read -r word; echo "<$word>"',
    );
    await own.until('tick 3');
    const [gateway] = user.record().parts.filter(({ name }) => name === 'gateway');
    process.kill(gateway?.pid ?? 0, 'SIGKILL');
    own.line('typed meanwhile');
    await own.until('<typed meanwhile>', 60_000);
    const ticks = own.screen().match(/tick \d+/g) ?? [];
    const last = ticks.map((tick) => Number(tick.slice(5)));
    expect(last).toEqual(Array.from(last, (_, at) => (last[0] ?? 0) + at));
    expect(last.at(-1)).toBe(40);
    own.keys('C-p', 'C-q');
    await own.until(detached);
  });

  it('is given to a command by exec -t and run -t, which end as it does', async () => {
    const own = terminal();
    own.line(`${user.vmuxFile} exec -t ${id} -- 'test -t 0 && tty && exit 7'; echo "ended $?"`);
    expect(await own.until('ended 7')).toContain('/dev/pts/');
    own.line(
      `${user.vmuxFile} run -t --rm -- sh -c 'stty size; read a; echo "got $a"'; echo "ended $?"`,
    );
    await own.until('24 80');
    own.line('this');
    expect(await own.until('ended 0')).toContain('got this');
  });

  it('is left by Ctrl-C at vmux run, and the command goes on', async () => {
    const own = terminal();
    own.line(`${user.vmuxFile} run --name patient -- 'echo begun; sleep 4; echo over'`);
    await own.until(/^begun$/m);
    own.keys('C-c');
    const screen = await own.until(detached);
    const [, session = ''] = /vmux logs -f (\S+);/.exec(screen) ?? [];
    expect(await user.vmux('wait', session)).toMatchObject({ code: 0 });
    expect((await user.vmux('logs', session)).stdout).toBe('begun\nover\n');
  });
});
