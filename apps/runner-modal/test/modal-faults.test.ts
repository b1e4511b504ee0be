import { SandboxGone } from '@vmux/runner-kit';
import {
  AlreadyExistsError,
  ConflictError,
  InvalidError,
  NotFoundError,
  ResourceExhaustedError,
} from 'modal';
import { ClientError, Status } from 'nice-grpc';
import { translated } from '../src/drivers/modal-faults';

describe('What Modal’s faults mean', () => {
  const raw = (code: Status) => new ClientError('/modal', code, 'said so');

  it.each<[string, unknown, object]>([
    ['a name that is taken', new AlreadyExistsError('x'), { reason: 'exists' }],
    ['a sandbox that is not there', new NotFoundError('x'), { next: 'lost' }],
    ['one that is not there, raw', raw(Status.NOT_FOUND), { next: 'lost' }],
    ['a sandbox that has finished', new ConflictError('x'), { next: 'lost' }],
    ['a wrong request', new InvalidError('x'), { next: 'refuse', reason: 'invalid' }],
    ['a wrong request, raw', raw(Status.INVALID_ARGUMENT), { next: 'refuse' }],
    ['no capacity', new ResourceExhaustedError('x'), { next: 'retry' }],
    ['no capacity, raw', raw(Status.RESOURCE_EXHAUSTED), { next: 'retry' }],
    ['a deadline', raw(Status.DEADLINE_EXCEEDED), { next: 'retry' }],
    ['a service that is away', raw(Status.UNAVAILABLE), { next: 'retry' }],
    ['a fault of its own', raw(Status.INTERNAL), { next: 'retry' }],
    ['anything else', 'a word', { next: 'retry' }],
  ])('%s', (_, fault, meaning) => {
    expect(translated(fault)).toMatchObject(meaning);
  });

  it.each([Status.UNAUTHENTICATED, Status.PERMISSION_DENIED])(
    'a token that is refused says what to set (%s)',
    (code) => {
      expect(translated(raw(code)).message).toContain('set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET');
    },
  );

  it('no token at all says what to set, in the words of the SDK', () => {
    const fault = new Error('Profile is missing credentials. Please set them in .modal.toml');
    expect(translated(fault).message).toContain('set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET');
  });

  it('what is one of ours already passes as it is', () => {
    const gone = new SandboxGone('lost');
    expect(translated(gone)).toBe(gone);
  });
});
