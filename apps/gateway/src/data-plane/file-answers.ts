import { basename } from 'node:path/posix';
import type { TunnelFile } from '@vmux/tunnel';

export function fileJson(value: unknown) {
  const { mode, modifiedAtMs, ...file } = value as TunnelFile;
  return {
    ...file,
    mode: (mode & 0o7777).toString(8).padStart(4, '0'),
    modifiedAt: isoOf(modifiedAtMs),
  };
}

/** A sandbox may claim any time; a date has an end. */
const isoOf = (ms: number): string => new Date(Math.min(ms, 8.64e15)).toISOString();

/** A browser saves it and never runs it. */
export const savedAs = (path: string): Record<string, string> => {
  const name = basename(path) || 'root';
  const plain = name.replace(/[^A-Za-z0-9._-]/g, '_').slice(0, 100);
  const exact = encodeURIComponent(Buffer.from(name).toString('utf8')).replace(/['()*]/g, percent);
  return {
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename="${plain}"; filename*=UTF-8''${exact}`,
    'content-security-policy': "sandbox; default-src 'none'",
  };
};

const percent = (char: string): string => `%${char.charCodeAt(0).toString(16).toUpperCase()}`;

export const LISTING = { 'content-type': 'application/json; charset=utf-8' };

/** Lines as they come from the runner, one entry each, become one JSON object, however many there are. */
export function listingOf(path: string) {
  let held = '';
  let first = true;
  const decoder = new TextDecoder();
  return {
    before: `{"path":${JSON.stringify(path)},"entries":[`,
    between: (piece: Buffer): Buffer => {
      const lines = `${held}${decoder.decode(piece, { stream: true })}`.split('\n');
      held = lines.pop() ?? '';
      const entries = lines.map((line) => {
        const json = JSON.stringify(fileJson(JSON.parse(line)));
        const text = first ? json : `,${json}`;
        first = false;
        return text;
      });
      return Buffer.from(entries.join('\n'));
    },
    after: ']}',
  };
}
