import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { Registry } from 'prom-client';
import type { Readiness } from '../application/readiness';

/** `/health`, `/ready` and `/metrics`, on loopback only. */
export class HealthServer {
  private readonly server: Server;

  constructor(
    private readonly readiness: Readiness,
    private readonly registry: Registry,
  ) {
    this.server = createServer((request, response) => {
      this.answer(request.url ?? '/').then(
        ({ status, type, body }) => {
          response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' });
          response.end(body);
        },
        () => response.writeHead(500).end(),
      );
    });
    this.server.requestTimeout = 5_000;
    this.server.maxConnections = 64;
  }

  async listen(port: number): Promise<number> {
    this.server.listen(port, '127.0.0.1');
    await once(this.server, 'listening');
    const address = this.server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  async close(): Promise<void> {
    if (!this.server.listening) return;
    this.server.close();
    this.server.closeAllConnections();
    await once(this.server, 'close');
  }

  private async answer(url: string) {
    const json = (status: number, body: object) => ({
      status,
      type: 'application/json',
      body: JSON.stringify(body),
    });
    if (url === '/health') return json(200, { live: true });
    if (url === '/ready') {
      const { ready, reasons } = this.readiness;
      return json(ready ? 200 : 503, { ready, reasons });
    }
    if (url === '/metrics')
      return {
        status: 200,
        type: this.registry.contentType,
        body: await this.registry.metrics(),
      };
    return json(404, { message: 'there are /health, /ready and /metrics' });
  }
}
