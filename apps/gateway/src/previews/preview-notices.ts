import type { SessionView } from '../application/session-view';
import type { PreviewName } from './preview-names';
import type { Notice } from './preview-pages';

const SOON = { retryAfterSeconds: 1 };

export const NOTICES = {
  api_key: {
    status: 400,
    title: 'No API key here',
    text: 'API keys are not accepted on previews, and this one was not passed on. Use a token of this port.',
  },
  malformed: { status: 400, title: 'Bad request', text: 'This request can be read in two ways.' },
  port: {
    status: 400,
    title: 'No preview of this port',
    text: 'Ports from 1 to 65535 can be looked at, except those that the provider keeps for itself.',
  },
  protocol: { status: 400, title: 'Bad request', text: 'Only WebSocket upgrades are passed on.' },
  token: {
    status: 401,
    title: 'Private, or not there',
    text: 'This preview needs a token, or there is no such session. Open it with: vmux open <session> <port>',
  },
  origin: {
    status: 403,
    title: 'Not from another site',
    text: 'Another site made this request with your cookie. It was not passed on.',
  },
  tooOften: {
    status: 429,
    title: 'Too many requests',
    text: 'You were turned away too often. Try again shortly, with a link that opens this preview.',
  },
  nothing: { status: 404, title: 'Nothing here', text: 'This path is not the app’s.' },
  ended: {
    status: 410,
    title: 'The session has ended',
    text: 'It has no sandbox any more. Its logs are still there: vmux logs <session>',
  },
  badAnswer: {
    status: 502,
    title: 'The app’s answer cannot be used',
    text: 'It closed the connection before it had answered.',
  },
  broken: {
    status: 502,
    title: 'The connection broke',
    text: 'The connection to the sandbox broke before the app had answered.',
  },
  internal: { status: 500, title: 'Something went wrong here', text: 'Try again.' },
  unreachable: {
    ...{ status: 503, title: 'Not reachable now', ...SOON },
    text: 'The sandbox cannot be reached at the moment. Try again shortly.',
  },
  resting: { status: 503, title: 'The session does not run', text: '', ...SOON },
  tooMany: {
    ...{ status: 503, title: 'Too many connections', ...SOON },
    text: 'Too many connections to this session are open. Close some, or try again shortly.',
  },
  noAnswer: { status: 504, title: 'No answer', text: '' },
} as const satisfies Record<string, Notice>;

/** Nothing listens yet, or the session is not there yet. */
export function waiting(view: SessionView | null, { port }: PreviewName, wakes: boolean): Notice {
  const isRunning = view === null || view.status === 'running';
  if (!isRunning && !wakes)
    return { ...NOTICES.resting, text: `The session is ${view.status}. Its owner can wake it.` };
  const text = isRunning
    ? `Nothing listens on port ${port} yet. This page becomes the app once something does.`
    : `The session is ${view.status} and on its way. This page becomes the app once it is there.`;
  return { status: 503, title: `Waiting for port ${port}`, text, waits: true, ...SOON };
}
