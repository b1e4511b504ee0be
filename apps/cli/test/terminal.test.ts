import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { projectRoot, releaseAll, temporaryDirectory } from '@vmux/testing';
import { nearest } from '../src/suggest';
import { DetachKeys } from '../src/terminal/detach-keys';
import { jsonText, visible } from '../src/terminal/escape';
import { table } from '../src/terminal/output';
import { TextFilter } from '../src/terminal/text-filter';

afterAll(releaseAll);

const shown = (pieces: readonly (string | Uint8Array)[]): string => {
  const filter = new TextFilter();
  return Buffer.concat(pieces.map((piece) => filter.pass(Buffer.from(piece)))).toString();
};

describe('what a terminal is shown', () => {
  it('keeps text, colours and line ends', () => {
    const text = 'a\tb\r\n\u001b[1;31mred\u001b[0m äöü 日本 😀';
    expect(shown([text])).toBe(text);
  });

  it('leaves out what moves the cursor, sets titles, asks or rings', () => {
    expect(
      shown(['a\u001b[2Jb\u001b]0;title\u0007c\u001bPq\u001b\\d\u0007\u001b[6ne\u009bf']),
    ).toBe('abcdef');
  });

  it('does so however the bytes are divided', () => {
    const bytes = Buffer.from('a\u001b[31mb\u001b]52;c;x\u001b\\c\u0085d é');
    const whole = shown([bytes]);
    expect(whole).toBe('a\u001b[31mbcd é');
    for (let at = 1; at < bytes.length; at += 1)
      expect(shown([bytes.subarray(0, at), bytes.subarray(at)])).toBe(whole);
  });

  it.each([
    ['a mark of Arabic', '\u061c', '\\u061c'],
    ['an override', '\u202e', '\\u202e'],
    ['an isolate', '\u2066', '\\u2066'],
    ['a deprecated format character', '\u206a', '\\u206a'],
    ['a tag', '\u{e0041}', '\\udb40\\udc41'],
    ['a supplementary variation selector', '\u{e0100}', '\\udb40\\udd00'],
  ])('escapes %s, which reorders or hides text', (_what, character, written) => {
    expect(visible(`a${character}b`)).toBe(`a${written}b`);
    expect(JSON.parse(jsonText({ name: character }))).toEqual({ name: character });
    expect(jsonText({ name: character })).not.toContain(character);
  });

  it('escapes foreign text in tables and JSON', () => {
    expect(visible('a\u001b[2J\u202eb\n')).toBe('a\\u001b[2J\\u202eb\\u000a');
    expect(
      table([
        ['A', 'B'],
        ['x\u0007', 'y'],
      ]),
    ).toBe('A        B\nx\\u0007  y');
    const value = { text: 'a\u009b\u2028\u001b\n' };
    expect(jsonText(value)).not.toMatch(/[\u009b\u2028]/);
    expect(JSON.parse(jsonText(value, 2))).toEqual(value);
  });
});

describe('the keys that leave a terminal', () => {
  const typed = (...pieces: string[]) => {
    const keys = new DetachKeys();
    const passed = pieces.map((piece) => keys.pass(Buffer.from(piece)));
    const text = Buffer.concat([...passed.map(({ bytes }) => bytes), keys.release()]).toString();
    return { text, left: passed.some(({ detach }) => detach) };
  };

  it('are Ctrl-P Ctrl-Q, in one piece or two, and are not typed', () => {
    expect(typed('ab\u0010\u0011')).toEqual({ text: 'ab', left: true });
    expect(typed('ab\u0010', '\u0011cd')).toEqual({ text: 'ab', left: true });
    expect(typed('\u0010\u0010', '\u0011')).toEqual({ text: '\u0010', left: true });
  });

  it('are typed when they are not those', () => {
    for (const text of ['\u0010x', '\u0011', '\u0011\u0010', 'a\u0010b\u0011', '\u0010\u0010'])
      expect(typed(...text)).toEqual({ text, left: false });
  });
});

describe('a word that is not known', () => {
  it('is near to the one that was probably meant', () => {
    const known = ['run', 'exec', 'logs', 'history', 'status'];
    expect(nearest('lgos', known)).toBe('logs');
    expect(nearest('histroy', known)).toBe('history');
    expect(nearest('rum', known)).toBe('run');
    expect(nearest('banana', known)).toBeNull();
  });
});

describe('vmux --version', () => {
  it('loads nothing that it does not need, so that it starts as fast as Node itself', () => {
    const program = join(projectRoot(), 'dist/apps/cli/src/main.js');
    const tell = join(temporaryDirectory('preload'), 'tell.cjs');
    const line = "process.on('exit', () => console.log(Object.keys(require.cache).join('\\n')))";
    writeFileSync(tell, line);
    const said = execFileSync(process.execPath, ['--require', tell, program, '--version']);
    const loaded = said
      .toString()
      .split('\n')
      .filter((line) => line.endsWith('.js'));
    expect(loaded.map((file) => basename(file)).sort()).toEqual(['failure.js', 'main.js']);
    expect(said.toString()).toMatch(/^vmux \d/);
  });
});
