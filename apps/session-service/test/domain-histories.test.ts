import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeForDeciding, decodeLogEvent, type StoredEvent } from '@vmux/events';
import { fold } from '../src/domain/evolve';
import { foldLog, type RecordedLogEvent } from '../src/domain/log-state';
import { digestOf, summaryOf } from './domain-summary';

/** Histories that earlier versions stored, with what they made of them. */
const directory = join(__dirname, '../../../libs/events/test/fixtures');
const read = (name: string) => JSON.parse(readFileSync(join(directory, name), 'utf8'));

describe('A history that was stored once', () => {
  const files = readdirSync(directory).filter((name) => name !== 'log.json');

  it.each(files)('as %s is still understood as it was', (name) => {
    const { stored, summary, digest } = read(name);
    const state = fold((stored as StoredEvent[]).map(decodeForDeciding));
    expect(summaryOf(state)).toEqual(summary);
    expect(digestOf(summaryOf(state))).toBe(digest);
  });

  it('of output leads to the same log', () => {
    const { stored, state } = read('log.json');
    const events = stored.map(
      ({
        base64,
        data,
        ...rest
      }: {
        base64?: string;
        data: unknown;
        revision: number;
        type: string;
      }) => ({
        revision: rest.revision,
        event: decodeLogEvent({
          metadata: {},
          ...rest,
          data: base64 === undefined ? data : Buffer.from(base64, 'base64'),
        }),
      }),
    ) as RecordedLogEvent[];
    expect(foldLog(events)).toEqual(state);
  });
});
