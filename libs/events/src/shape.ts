/**
 * Shapes check what comes from outside and give it a type. A shape returns the value it knows, without
 * the fields it does not know, or throws `Malformed`.
 */
export type Shape<T> = (value: unknown, path: string) => T;
export type Shaped<S> = S extends Shape<infer T> ? T : never;

export class Malformed extends Error {
  readonly code = 'malformed';
  constructor(
    readonly path: string,
    readonly expected: string,
  ) {
    super(`${path} must be ${expected}`);
    this.name = 'Malformed';
  }
}

const fail = (path: string, expected: string): never => {
  throw new Malformed(path, expected);
};

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const text =
  (max: number, min = 0): Shape<string> =>
  (value, path) =>
    typeof value === 'string' && value.length >= min && value.length <= max
      ? value
      : fail(path, `a string of ${min} to ${max} characters`);

export const matching =
  (pattern: RegExp, name: string): Shape<string> =>
  (value, path) =>
    typeof value === 'string' && pattern.test(value) ? value : fail(path, name);

export const integer =
  (min: number, max: number = Number.MAX_SAFE_INTEGER): Shape<number> =>
  (value, path) =>
    typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max
      ? value
      : fail(path, `an integer from ${min} to ${max}`);

export const decimal =
  (min: number, max: number): Shape<number> =>
  (value, path) =>
    typeof value === 'number' && value >= min && value <= max
      ? value
      : fail(path, `a number from ${min} to ${max}`);

export const flag: Shape<boolean> = (value, path) =>
  typeof value === 'boolean' ? value : fail(path, 'true or false');

export const oneOf =
  <const T extends string>(...choices: readonly T[]): Shape<T> =>
  (value, path) =>
    choices.find((choice) => choice === value) ?? fail(path, `one of ${choices.join(', ')}`);

export const nullable =
  <T>(shape: Shape<T>): Shape<T | null> =>
  (value, path) =>
    value === null || value === undefined ? null : shape(value, path);

export const list =
  <T>(shape: Shape<T>, max: number): Shape<readonly T[]> =>
  (value, path) =>
    Array.isArray(value) && value.length <= max
      ? value.map((item, index) => shape(item, `${path}[${index}]`))
      : fail(path, `a list of at most ${max}`);

export const dictionary =
  <T>(key: Shape<string>, shape: Shape<T>, max: number): Shape<Readonly<Record<string, T>>> =>
  (value, path) => {
    if (!isRecord(value)) return fail(path, 'an object');
    const entries = Object.entries(value);
    if (entries.length > max) return fail(path, `an object of at most ${max} fields`);
    return Object.fromEntries(
      entries.map(([name, item]) => [key(name, `${path} key`), shape(item, `${path}.${name}`)]),
    );
  };

type Fields = Readonly<Record<string, Shape<unknown>>>;
export type Struct<F extends Fields> = { readonly [K in keyof F]: Shaped<F[K]> };

export const struct =
  <F extends Fields>(fields: F): Shape<Struct<F>> =>
  (value, path) => {
    if (!isRecord(value)) return fail(path, 'an object');
    const known = Object.entries(fields).map(([name, shape]) => [
      name,
      shape(Object.hasOwn(value, name) ? value[name] : undefined, `${path}.${name}`),
    ]);
    return Object.fromEntries(known) as Struct<F>;
  };

/** Fields that may be left out, as writers do that do not know them yet. */
export const withOptional =
  <T extends object, F extends Fields>(
    required: Shape<T>,
    optional: F,
  ): Shape<T & Partial<Struct<F>>> =>
  (value, path) => {
    const known = required(value, path);
    if (!isRecord(value)) return fail(path, 'an object');
    const given = Object.entries(optional).filter(([name]) => value[name] !== undefined);
    const more = given.map(([name, shape]) => [name, shape(value[name], `${path}.${name}`)]);
    return { ...known, ...(Object.fromEntries(more) as Partial<Struct<F>>) };
  };

type Variants<K extends string, M extends Readonly<Record<string, Shape<object>>>> = {
  [T in keyof M & string]: { readonly [P in K]: T } & Shaped<M[T]>;
}[keyof M & string];

/** A union told apart by one field: `tagged('kind', { exited: struct({…}), … })`. */
export const tagged =
  <const K extends string, M extends Readonly<Record<string, Shape<object>>>>(
    tag: K,
    variants: M,
  ): Shape<Variants<K, M>> =>
  (value, path) => {
    if (!isRecord(value)) return fail(path, 'an object');
    const name = Object.hasOwn(value, tag) ? value[tag] : undefined;
    const shape =
      typeof name === 'string' && Object.hasOwn(variants, name) ? variants[name] : undefined;
    if (!shape) return fail(`${path}.${tag}`, `one of ${Object.keys(variants).join(', ')}`);
    return { [tag]: name, ...shape(value, path) } as Variants<K, M>;
  };
