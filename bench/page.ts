import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '@vmux/testing';
import { figure } from './report';

/** A figure that stands at the head of a page, and what is asked of it. */
export interface Aim {
  readonly key: string;
  readonly text: string;
  /** Null where nothing is: it is there to be read beside the others. */
  readonly wanted: {
    readonly text: string;
    readonly isMetBy: (value: number) => boolean;
  } | null;
}

export const aim = (
  key: string,
  text: string,
  wanted: string,
  isMetBy: (value: number) => boolean,
): Aim => ({ key, text, wanted: { text: wanted, isMetBy } });

export const atMost = (key: string, text: string, most: number): Aim =>
  aim(key, text, `≤ ${most}`, (value) => value <= most);

export const beside = (key: string, text: string): Aim => ({ key, text, wanted: null });

export interface Measured {
  readonly facts: readonly string[];
  readonly figures: Readonly<Record<string, number>>;
  /** Title, p50, p99, ratio. */
  readonly rows: readonly (readonly string[])[];
  readonly notes: readonly string[];
}

export interface Page extends Measured {
  /** Below `bench/`. */
  readonly file: string;
  readonly title: string;
  /** What wrote it. */
  readonly command: string;
  readonly aims: readonly Aim[];
  /** What the first column of the aims holds. */
  readonly head: string;
  /** A file beside it, and what it shows. */
  readonly picture?: { readonly file: string; readonly text: string };
}

/** What a run has found, for the repository: the aims first, then everything, then what it was found on. */
export function writePage(page: Page): void {
  const { title, command, aims, head, picture, figures, rows, notes, facts } = page;
  const table = (header: readonly string[], lines: readonly (readonly string[])[]) =>
    [header, header.map((_, at) => (at === 0 ? '---' : '---:')), ...lines]
      .map((line) => `| ${line.join(' | ')} |`)
      .join('\n');
  const date = new Date().toISOString().slice(0, 10);
  const parts = [
    `# ${title}`,
    `Written by \`${command}\` on ${date}. Everything was measured in one run, the rivals in
turn, so that whatever the machine did meanwhile befell all of them: read the ratios.`,
    table(
      [head, 'here', 'aim', ''],
      aims.map((each) => lineOf(each, figures[each.key])),
    ),
    ...(picture ? [`![${picture.text}](${picture.file})`] : []),
    table(['milliseconds', 'p50', 'p99', 'vmux ÷ this, p50'], rows),
    notes.map((note) => `- ${note}`).join('\n'),
    '## Machine',
    facts.map((each) => `- ${each}`).join('\n'),
  ];
  writeFileSync(join(projectRoot(), 'bench', page.file), `${parts.join('\n\n')}\n`);
}

function lineOf({ text, wanted }: Aim, value: number | undefined): readonly string[] {
  const aimed = wanted?.text ?? '–';
  if (value === undefined || Number.isNaN(value)) return [text, 'not measured', aimed, ''];
  const verdict = wanted && (wanted.isMetBy(value) ? 'met' : 'missed');
  return [text, figure(value), aimed, verdict ?? ''];
}
