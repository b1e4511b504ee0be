import type { Sandbox } from '@vmux/sdk';
import { forwardInBackground } from '../background-forwards';
import { type Forwarding, forwarding } from '../forwarding';
import { say } from '../terminal/output';

export interface Preview {
  readonly port: number;
  /** With a token while it is private; null where there are no previews. */
  readonly url: string | null;
}

export interface Access {
  /** Everyone who has the URL may look. */
  readonly isPublic: boolean;
  /** A visit wakes the session. */
  readonly wakes: boolean;
}

export const previewsOf = (
  sandbox: Sandbox,
  ports: readonly number[],
  { isPublic, wakes }: Access,
): Promise<readonly Preview[]> =>
  Promise.all(
    ports.map(async (port) => {
      if (isPublic) await sandbox.ports.publish(port, { wake: wakes });
      const { url, tokenUrl } = await sandbox.ports.token(port);
      return { port, url: isPublic ? url : tokenUrl };
    }),
  );

export async function sayPreviews(id: string, previews: readonly Preview[]): Promise<void> {
  for (const { port, url } of previews)
    await say(`port ${port}: ${url ?? `no previews here; use: vmux forward ${id} ${port}`}`);
}

/** How to reach each port, here and by its name; the first one's by themselves too: most serve one. */
export async function reachable(
  previews: readonly Preview[],
  localUrl: (port: number) => Promise<string>,
) {
  const ports = await Promise.all(
    previews.map(async ({ port, url }) => ({ port, url, localUrl: await localUrl(port) })),
  );
  const [first] = ports;
  return first ? { url: first.url, localUrl: first.localUrl, ports } : {};
}

/** Forwarded by a process of its own, which outlives this one. */
export const inBackground = (sandbox: Sandbox) => (port: number) =>
  forwardInBackground(sandbox.id, port);

/** Forwarded as long as this process lives. */
export function inForeground(sandbox: Sandbox): {
  localUrl(port: number): Promise<string>;
  close(): void;
} {
  const open: Forwarding[] = [];
  return {
    localUrl: async (port) => {
      const made = await forwarding(sandbox, port, 0, () => undefined);
      open.push(made);
      return made.url;
    },
    close: () => {
      for (const each of open) each.close();
    },
  };
}
