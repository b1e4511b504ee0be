/**
 * Control characters, and those that reorder or hide text: on a terminal they could change what is shown
 * of other things.
 */
const unsafe =
  /[\p{Cc}\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** As JSON writes them: those beyond U+FFFF in two halves. */
const escaped = (character: string): string =>
  character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');

/** Text that is not ours, on one line and without effect on a terminal. */
export const visible = (text: string): string => text.replace(unsafe, escaped);

/** JSON that has no effect on a terminal either; it parses to the same value. */
export const jsonText = (value: unknown, indent?: number): string =>
  // Line ends stand between values only: inside of them JSON escapes its own.
  JSON.stringify(value, null, indent).split('\n').map(visible).join('\n');
