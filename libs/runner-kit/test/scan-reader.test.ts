import { ProtocolViolation } from '../src/index';
import { ScanReader } from '../src/scan-reader';
import { entriesOf, raw } from './lying-sandbox';

const SAID = [
  { type: 'd', path: 'srv', mode: 0o755 },
  { path: 'srv/file', size: 5, modifiedAtNs: 7n, changedAtNs: 8n, attribute: 'user.a' },
  { type: 'l', path: 'srv/link', target: 'file' },
  { type: 'p', path: 'srv/pipe' },
];

const readInPieces = (bytes: Buffer, size: number) => {
  const reader = new ScanReader();
  const entries = [];
  for (let at = 0; at < bytes.length; at += size)
    entries.push(...reader.push(bytes.subarray(at, at + size)));
  return [...entries, ...reader.finish()];
};

describe('the entries of a scan', () => {
  it.each([1, 2, 3, 64, 100, 1000])('are the same in pieces of %i bytes', (size) => {
    const entries = readInPieces(entriesOf(SAID), size);
    expect(entries.map(({ type, path, target }) => [type, path, target])).toEqual([
      ['directory', 'srv', ''],
      ['file', 'srv/file', ''],
      ['link', 'srv/link', 'file'],
      ['fifo', 'srv/pipe', ''],
    ]);
    expect(entries[1]).toMatchObject({
      ...{ size: 5, mode: 0o644, links: 1, mapped: false, modifiedAtNs: 7n, changedAtNs: 8n },
      attributes: [{ name: 'user.a', value: Buffer.from('v') }],
    });
  });

  it.each<[string, Buffer]>([
    ['end in the middle', entriesOf(SAID).subarray(0, -10)],
    ['do not end', entriesOf(SAID).subarray(0, -9)],
    ['are fewer than is said', entriesOf(SAID, 5)],
    ['go on after their end', raw(entriesOf(SAID), 0)],
    ['begin like nothing that is known', Buffer.of(0x62)],
    ['have a path that is too long', entriesOf([{ path: 'a'.repeat(4097) }])],
    ['have a name that is too long', entriesOf([{ path: 'a', attribute: 'a'.repeat(256) }])],
  ])('are refused when they %s', (_what, bytes) => {
    for (const size of [1, 1000])
      expect(() => readInPieces(bytes, size)).toThrow(ProtocolViolation);
  });

  it('are refused when one has no end, before it is held', () => {
    const begun = entriesOf([{ path: 'a' }]).subarray(0, -11);
    const attribute = raw(Buffer.of(1, 0, 0, 0), 0x61, Buffer.of(0, 0, 1, 0), Buffer.alloc(65_536));
    const reader = new ScanReader();
    reader.push(raw(begun, Buffer.of(255, 255)));
    expect(() => {
      for (let count = 0; count < 64; count++) reader.push(attribute);
    }).toThrow(/without end/);
  });
});
