// node scripts/record.mjs: records docs/rehydration.cast (asciicast v2) and docs/rehydration.svg, its last
// screen, from a real run: one session moved from this machine to Modal, to Cloudflare and back, the two
// emulated. Needs Linux and root, a built tree and `script` (bsdutils).
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './setup.mjs';

const { Terminal } = createRequire(import.meta.url)('@xterm/headless');
const [cols, rows] = [92, 30];

/** What is typed, and why it is worth seeing. */
const scenes = [
  `vmux run --name trek --provider ns --no-bundle -- 'head -c 20M /dev/urandom > data; sha256sum data'`,
  'vmux move @last --to modal',
  `vmux exec @last -- 'sha256sum data'`,
  'vmux move @last --to cloudflare',
  `vmux exec @last -- 'sha256sum data'`,
  'vmux move @last --to ns',
  `vmux exec @last -- 'sha256sum data'`,
  `vmux history @last | grep -E 'SandboxStarted|Moved' | cut -c1-90`,
  'vmux logs @last | sort | uniq -c',
];

const data = mkdtempSync(join(tmpdir(), 'vmux-record-'));
const env = {
  ...process.env,
  VMUX_NO_SETUP: '1',
  VMUX_DATA_DIR: data,
  VMUX_PORT: '0',
  TERM: 'xterm-256color',
  PATH: `${root}:${process.env.PATH}`,
};

const quietly = (...args) =>
  new Promise((done, failed) => {
    const child = spawn(join(root, 'vmux'), args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
    child.on('exit', (code) =>
      code === 0 ? done() : failed(new Error(`vmux ${args[0]}: ${code}`)),
    );
  });

/** Types each line and runs it on a terminal; what appears, with the seconds since the beginning. */
async function record() {
  const seen = [];
  const started = performance.now();
  const show = (text) => seen.push([(performance.now() - started) / 1000, text]);
  for (const line of scenes) {
    show('\x1b[1;32m$\x1b[0m ');
    for (const letter of line) {
      show(letter);
      await new Promise((next) => setTimeout(next, 8));
    }
    show('\r\n');
    const shell = spawn(
      'script',
      ['-qfec', `stty cols ${cols} rows ${rows}; ${line}`, '/dev/null'],
      {
        env,
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    shell.stdout.on('data', (bytes) => show(bytes.toString('utf8')));
    const code = await new Promise((ended) => shell.on('exit', ended));
    if (code !== 0) throw new Error(`${line}: exit ${code}`);
  }
  return seen;
}

async function lastScreen(seen) {
  const terminal = new Terminal({ cols, rows: 60, allowProposedApi: true });
  for (const [, text] of seen) await new Promise((done) => terminal.write(text, done));
  const lines = [];
  for (let at = 0; at < terminal.buffer.active.length; at++) {
    const line = terminal.buffer.active.getLine(at);
    if (!line) continue;
    const cells = Array.from({ length: cols }, (_, x) => line.getCell(x));
    lines.push(cells.map((cell) => ({ text: cell?.getChars() || ' ', green: cell?.isBold() })));
  }
  while (lines.at(-1)?.every(({ text }) => text === ' ')) lines.pop();
  return lines;
}

const escaped = (text) =>
  text.replace(/[&<>]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[sign]);

function svgOf(lines) {
  const [width, height] = [cols * 7.8 + 32, lines.length * 18 + 32];
  const rowsOf = lines.map((cells, at) => {
    const text = cells
      .map((cell) => cell.text)
      .join('')
      .trimEnd();
    const prompt = cells[0]?.green ? '#3fb950' : '#c9d1d9';
    const weight = cells[0]?.green ? ' font-weight="600"' : '';
    return `<text x="16" y="${at * 18 + 30}" fill="${prompt}"${weight} xml:space="preserve">${escaped(text)}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">`,
    '<title>One session on three providers, as its terminal showed it</title>',
    `<rect width="100%" height="100%" rx="8" fill="#0d1117"/>`,
    ...rowsOf,
    '</svg>\n',
  ].join('\n');
}

await quietly('up', '--with', 'modal-local', '--with', 'cloudflare-local');
try {
  const seen = await record();
  const head = { version: 2, width: cols, height: rows, env: { TERM: 'xterm-256color' } };
  const cast = [head, ...seen.map(([at, text]) => [Number(at.toFixed(3)), 'o', text])];
  const lines = cast.map((line) => JSON.stringify(line)).join('\n');
  writeFileSync(join(root, 'docs/rehydration.cast'), `${lines}\n`);
  writeFileSync(join(root, 'docs/rehydration.svg'), svgOf(await lastScreen(seen)));
} finally {
  await quietly('stop', '@last').catch(() => undefined);
  await quietly('down');
  rmSync(data, { recursive: true, force: true });
}
