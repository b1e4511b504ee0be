import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  CURRENT_VERSIONS,
  decodeForDeciding,
  decodeLogEvent,
  encode,
  encodeLogEvent,
  type SessionEventType,
  type StoredEvent,
} from '../src';

/**
 * Histories as they were once stored. They are never edited: whatever was appended has to be readable for
 * ever. A new type or version of an event comes with a new file.
 */
const directory = join(__dirname, 'fixtures');
const files = readdirSync(directory).filter((name) => name !== 'log.json');
const storedIn = (name: string): readonly StoredEvent[] =>
  JSON.parse(readFileSync(join(directory, name), 'utf8')).stored;

describe('Stored histories', () => {
  it.each(files)('of %s are read as they were written', (name) => {
    for (const stored of storedIn(name)) {
      const { event, revision, metadata } = decodeForDeciding(stored);
      const { version: _, ...cause } = metadata;
      expect({ revision, ...encode(event, cause) }).toEqual(stored);
    }
  });

  it('have every event that there is', () => {
    const seen = new Set(files.flatMap((name) => storedIn(name).map(({ type }) => type)));
    const missing = (Object.keys(CURRENT_VERSIONS) as SessionEventType[]).filter(
      (type) => !seen.has(type),
    );
    expect(missing).toEqual([]);
  });

  it('of output are read as they were written', () => {
    const { stored } = JSON.parse(readFileSync(join(directory, 'log.json'), 'utf8'));
    const types = new Set<string>();
    for (const { revision: _, base64, ...event } of stored) {
      const given =
        base64 === undefined ? event : { ...event, data: Buffer.from(base64, 'base64') };
      const decoded = decodeLogEvent(given);
      types.add(event.type);
      expect(decoded && encodeLogEvent(decoded)).toEqual(given);
    }
    expect([...types].sort()).toEqual([
      'LogChunk',
      'LogGap',
      'LogMark',
      'LogTruncated',
      'TerminalResized',
    ]);
  });
});
