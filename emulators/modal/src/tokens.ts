import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** JSON web tokens as the SDK reads them: it looks at `exp` and nothing else. */
export class Tokens {
  private readonly key = randomBytes(32);

  issue(subject: string, seconds: number): string {
    const expires = Math.floor(Date.now() / 1000) + seconds;
    const head = encode({ alg: 'HS256', typ: 'JWT' });
    const body = encode({ sub: subject, exp: expires });
    return `${head}.${body}.${this.sign(`${head}.${body}`)}`;
  }

  /** Whom it was issued to; nothing when it is forged or has expired. */
  subjectOf(token: string): string | undefined {
    const [head = '', body = '', signature = ''] = token.split('.');
    const expected = Buffer.from(this.sign(`${head}.${body}`));
    const given = Buffer.from(signature);
    if (expected.length !== given.length || !timingSafeEqual(expected, given)) return undefined;
    const { sub, exp } = JSON.parse(Buffer.from(body, 'base64url').toString('utf8'));
    return exp * 1000 > Date.now() ? sub : undefined;
  }

  /** Until it expires. */
  leftMs(token: string): number {
    const { exp } = JSON.parse(
      Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'),
    );
    return Math.max(0, exp * 1000 - Date.now());
  }

  private sign(text: string): string {
    return createHmac('sha256', this.key).update(text).digest('base64url');
  }
}

const encode = (value: object): string =>
  Buffer.from(JSON.stringify(value), 'utf8').toString('base64url');
