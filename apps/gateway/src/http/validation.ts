import type { ValidationPipeOptions } from '@nestjs/common';
import type { ValidationError } from 'class-validator';
import { ApiError } from './api-error';

const MAX_PROBLEMS = 20;

/** What an endpoint does not know it refuses; values are never repeated in an answer. */
export const validation: ValidationPipeOptions = {
  whitelist: true,
  forbidNonWhitelisted: true,
  forbidUnknownValues: true,
  transform: true,
  stopAtFirstError: true,
  validationError: { target: false, value: false },
  exceptionFactory: (errors) => {
    const problems = errors.flatMap((error) => problemsOf(error)).slice(0, MAX_PROBLEMS);
    return new ApiError('invalid_request', problems[0] ?? 'the request is not valid', null, {
      problems,
    });
  },
};

function problemsOf({ property, constraints, children }: ValidationError, path = ''): string[] {
  const here = `${path}${property.slice(0, 100)}`;
  const own = Object.values(constraints ?? {}).map((text) => `${path}${text.slice(0, 500)}`);
  return [...own, ...(children ?? []).flatMap((child) => problemsOf(child, `${here}.`))];
}
