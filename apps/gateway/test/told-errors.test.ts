import { Refusal } from '@vmux/events';
import { ERRORS } from '../src/http/api-error';
import { apiErrorOf } from '../src/http/translate';

describe('a refusal, as a client is told', () => {
  it('says when to come back if it is a matter of time', () => {
    const refusal = new Refusal('too_many_keys', 'too much', { max: 5, retryAfterMs: 90_500 });
    const told = apiErrorOf(refusal);
    expect(told).toMatchObject({ code: 'too_many_keys', retryAfterSeconds: 91 });
    expect(ERRORS[told.code][0]).toBe(429);
    expect(apiErrorOf(new Refusal('no_placement', 'none')).retryAfterSeconds).toBe(1);
    expect(apiErrorOf(new Refusal('exec_ended', 'over')).retryAfterSeconds).toBeNull();
  });
});
