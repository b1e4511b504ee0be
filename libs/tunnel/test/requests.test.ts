import { parseRequest, TunnelRefused } from '../src/index';

const sandbox = { sessionId: 'stack-9e55', epoch: 1, instance: 'abc' };
const read = { op: 'read', sandbox, path: '/a', user: null, offset: 0, length: null };
const stdin = { op: 'stdin', sandbox, execId: 'e0123456789ab', writer: 1, offset: 0, eof: false };

describe('a request', () => {
  it('is taken as it is, without the fields that nobody knows', () => {
    expect(parseRequest({ ...read, more: 1 })).toEqual(read);
    expect(parseRequest(stdin)).toEqual(stdin);
  });

  it.each<[string, unknown]>([
    ['is nothing', null],
    ['is a list', []],
    ['names no operation', { sandbox }],
    ['names an operation of every object', { ...read, op: 'constructor' }],
    ['names no sandbox', { ...read, sandbox: undefined }],
    ['names a session that is none', { ...read, sandbox: { ...sandbox, sessionId: '../x' } }],
    ['names an epoch that is no number', { ...read, sandbox: { ...sandbox, epoch: '1' } }],
    ['names a relative path', { ...read, path: 'a' }],
    ['has NUL in its path', { ...read, path: '/a\0b' }],
    ['has too long a path', { ...read, path: `/${'a'.repeat(4095)}` }],
    ['names a user that is none', { ...read, user: 'root\n' }],
    ['starts before the beginning', { ...read, offset: -1 }],
    ['writes as nobody', { ...stdin, writer: 0 }],
    ['writes to an exec that is none', { ...stdin, execId: '../e' }],
    ['dials no port', { op: 'dial', sandbox, port: 0 }],
    ['dials an address', { op: 'dial', sandbox, port: '127.0.0.1:80' }],
    ['asks for an endless terminal', { ...stdin, op: 'resize', cols: 70_000, rows: 1 }],
  ])('is refused when it %s', (_how, request) => {
    expect(() => parseRequest(request)).toThrow(TunnelRefused);
  });
});
