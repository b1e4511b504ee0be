import { isSessionId } from '@vmux/events';

export interface PreviewName {
  /** May be none that exists. */
  readonly port: number;
  readonly sessionId: string;
  /** As the client called it, with the port of the gateway. */
  readonly host: string;
  readonly origin: string;
}

const LABEL = /^(\d{1,6})-([a-z0-9-]{1,57})$/;

/** `<port>-<session>.<domain>`: the names that previews go by. */
export class PreviewNames {
  private readonly base: URL | null;

  constructor(previewUrl: string | null) {
    this.base = previewUrl === null ? null : new URL(previewUrl);
  }

  get scheme(): 'http' | 'https' {
    return this.base?.protocol === 'https:' ? 'https' : 'http';
  }

  /** Null for a name that is no preview's. */
  parse(host: string | undefined): PreviewName | null {
    if (!this.base || host === undefined || host.length > 300) return null;
    const called = host.toLowerCase();
    const hostname = called.replace(/:\d{1,5}$/, '');
    const domain = `.${this.base.hostname}`;
    if (!hostname.endsWith(domain)) return null;
    const [, port, sessionId] = LABEL.exec(hostname.slice(0, -domain.length)) ?? [];
    if (!port || !sessionId || !isSessionId(sessionId)) return null;
    return {
      ...{ port: Number(port), sessionId, host: called },
      origin: `${this.scheme}://${called}`,
    };
  }

  /** Null where there are no previews. A base without a port is reached at the gateway's own. */
  urlOf(sessionId: string, port: number, gatewayPort: number): string | null {
    if (!this.base) return null;
    const isDefault = this.base.port === '' && this.base.hostname !== 'localhost';
    const at = isDefault ? '' : `:${this.base.port || gatewayPort}`;
    return `${this.base.protocol}//${port}-${sessionId}.${this.base.hostname}${at}/`;
  }
}
