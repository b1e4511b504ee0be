import {
  type Agent,
  type ClientRequest,
  type IncomingMessage,
  Agent as PlainAgent,
} from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { inspect } from 'node:util';

/** What Node calls for each request; not among its types. */
interface Adding {
  addRequest(request: ClientRequest, ...rest: unknown[]): void;
}

/**
 * Connections to an engine. The client waits for the end of an answer, which never comes of one that was cut
 * after it had begun: here that is a fault of its request, as everything else is that breaks it.
 */
export function agentFor(protocol: 'http' | 'https'): Agent {
  const settings = { keepAlive: true, timeout: 5_000 };
  const agent = protocol === 'https' ? new SecureAgent(settings) : new PlainAgent(settings);
  const adding = agent as unknown as Adding;
  const add = adding.addRequest.bind(agent);
  adding.addRequest = (request, ...rest) => {
    request.once('response', (answer: IncomingMessage) => {
      answer.once('close', () => {
        if (!answer.complete) request.emit('error', new Error('its answer was cut'));
      });
    });
    add(request, ...rest);
  };
  // The client describes its options in full with every request, sockets and all that hangs on them.
  return Object.defineProperty(agent, inspect.custom, { value: () => 'connections to an engine' });
}
