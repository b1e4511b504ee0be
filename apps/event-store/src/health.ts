import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Metrics } from './metrics';

/** Health and figures over plain HTTP. Nothing here is secret and nothing can be changed. */
export class HealthServer {
  private isReady = false;
  private readonly server: Server;

  constructor(metrics: Metrics) {
    this.server = createServer((request, response) => {
      const answer = (status: number, type: string, body: string) =>
        response.writeHead(status, { 'content-type': type }).end(body);
      if (request.method !== 'GET') answer(405, 'text/plain', 'only GET\n');
      else if (request.url === '/health/live') answer(200, 'application/json', '{"live":true}\n');
      else if (request.url === '/health/ready') {
        answer(this.isReady ? 200 : 503, 'application/json', `{"ready":${this.isReady}}\n`);
      } else if (request.url === '/metrics') {
        metrics.text().then(
          (text) => answer(200, metrics.contentType, text),
          (error) => answer(500, 'text/plain', `${error}\n`),
        );
      } else answer(404, 'text/plain', '/health/live, /health/ready and /metrics are here\n');
    });
  }

  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(port, host, () => resolve((this.server.address() as AddressInfo).port));
    });
  }

  ready(isReady: boolean): void {
    this.isReady = isReady;
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}
