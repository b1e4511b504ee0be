import { applyDecorators } from '@nestjs/common';
import { ApiPropertyOptional } from '@nestjs/swagger';
import { Transform } from 'class-transformer';
import {
  IsInt,
  IsOptional,
  Matches,
  Max,
  Min,
  registerDecorator,
  type ValidationOptions,
} from 'class-validator';

/** Pieces that several DTOs are made of. */

const DURATION = /^(\d{1,12})(ms|s|m|h)?$/;
const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3600_000 } as const;

/** `30s`, `500ms`, `5m`, `1h`, or milliseconds. */
export function millisecondsOf(text: string): number {
  const [, amount, unit] = DURATION.exec(text) ?? [];
  return Number(amount) * UNIT_MS[(unit ?? 'ms') as keyof typeof UNIT_MS];
}

export const OptionalDuration = (description: string): PropertyDecorator =>
  applyDecorators(
    ApiPropertyOptional({ type: String, pattern: DURATION.source, example: '30s', description }),
    IsOptional(),
    Matches(DURATION, { message: '$property must be a duration such as 30s, 500ms, 5m or 1h' }),
  );

/** A whole number in a query, which is text until here. */
export const OptionalNumber = (description: string, min: number, max: number): PropertyDecorator =>
  applyDecorators(
    ApiPropertyOptional({ type: 'integer', minimum: min, maximum: max, description }),
    IsOptional(),
    Transform(({ value }) => (/^\d{1,16}$/.test(String(value)) ? Number(value) : value)),
    IsInt(),
    Min(min),
    Max(max),
  );

/** In a query: `true`, `1` or nothing at all for yes. */
export const OptionalFlag = (description: string): PropertyDecorator =>
  applyDecorators(
    ApiPropertyOptional({ type: Boolean, description }),
    IsOptional(),
    Transform(({ value }) => {
      if (value === 'true' || value === '1' || value === '') return true;
      return value === 'false' || value === '0' ? false : value;
    }),
    IsTrueOrFalse(),
  );

const IsTrueOrFalse = () =>
  check('isTrueOrFalse', '$property must be true or false', (v) => typeof v === 'boolean');

const POSITION = /^\d{1,20}$/;
export const OptionalPosition = (description: string): PropertyDecorator =>
  applyDecorators(
    ApiPropertyOptional({ type: String, pattern: POSITION.source, description }),
    IsOptional(),
    Matches(POSITION, { message: '$property must be a position, as an answer gave it' }),
  );

interface DictionaryOptions {
  readonly key: RegExp;
  readonly maxEntries: number;
  readonly maxValueChars: number;
}

/** An object whose values are all text. */
export const IsDictionary = ({ key, maxEntries, maxValueChars }: DictionaryOptions) =>
  check(
    'isDictionary',
    `$property must be an object of at most ${maxEntries} texts of at most ${maxValueChars} characters, with names like ${key.source}`,
    (value) => {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
      const entries = Object.entries(value);
      return (
        entries.length <= maxEntries &&
        entries.every(
          ([name, text]) =>
            key.test(name) &&
            typeof text === 'string' &&
            text.length <= maxValueChars &&
            !text.includes('\0'),
        )
      );
    },
  );

export const NoNul = (options?: ValidationOptions) =>
  check('noNul', '$property must not contain NUL', withoutNul, options);

const withoutNul = (value: unknown): boolean =>
  Array.isArray(value)
    ? value.every(withoutNul)
    : typeof value === 'string' && !value.includes('\0');

function check(
  name: string,
  message: string,
  validate: (value: unknown) => boolean,
  options: ValidationOptions = {},
): PropertyDecorator {
  return (target, propertyName) =>
    registerDecorator({
      name,
      target: target.constructor,
      propertyName: String(propertyName),
      options: { message, ...options },
      validator: { validate },
    });
}
