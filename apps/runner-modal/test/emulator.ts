import { join } from 'node:path';
import { projectRoot, startProcess, temporaryDirectory } from '@vmux/testing';

interface Ready {
  readonly url: string;
  readonly controlPort: number;
  readonly tokenId: string;
  readonly tokenSecret: string;
}

/** Of requests with connect tokens. */
export interface ConnectCounts {
  readonly tokens: number;
  readonly opened: number;
  readonly refused: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** The emulator in a process of its own, as `vmux up --with modal-local` runs it. */
export async function startModalEmulator() {
  const dir = temporaryDirectory('modal');
  const emulator = await startProcess<Ready>({
    command: process.execPath,
    args: [join(projectRoot(), 'dist/emulators/modal/src/main.js')],
    env: {
      ...process.env,
      VMUX_MODAL_EMULATOR_DIR: dir,
      VMUX_CGROUP_PARENT: `vmux-modal-${process.pid}`,
    },
    ready: (line) => (line.startsWith('{"ready"') ? JSON.parse(line) : undefined),
  });
  const { url, controlPort, tokenId, tokenSecret } = emulator.ready;
  const control = async <T>(method: string, path: string, body?: object): Promise<T> => {
    const response = await fetch(`http://127.0.0.1:${controlPort}${path}`, {
      method,
      headers: { authorization: `Bearer ${tokenSecret}` },
      body: body ? JSON.stringify(body) : undefined,
    });
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()) as T;
  };
  return {
    url,
    tokenId,
    tokenSecret,
    faults: (faults: object) => control('PUT', '/faults', faults),
    end: (name: string, how: string) => control('POST', `/sandboxes/${name}/${how}`),
    sandboxes: (): Promise<{ sandboxId: string; name: string; gpu: string; result: unknown }[]> =>
      control('GET', '/sandboxes'),
    builds: (): Promise<{ imageId: string; commands: string[] }[]> => control('GET', '/builds'),
    images: (): Promise<
      { imageId: string; expiresAt: number | null; isGone: boolean; creates: number }[]
    > => control('GET', '/images'),
    removeImage: (imageId: string) => control('DELETE', `/images/${imageId}`),
    calls: (): Promise<{ byName: Record<string, number>; mostAtOnce: number }> =>
      control('GET', '/calls'),
    inputCalls: async (): Promise<number> =>
      (await control<{ input: number }>('GET', '/calls')).input,
    connects: async (): Promise<ConnectCounts> =>
      (await control<{ connects: ConnectCounts }>('GET', '/calls')).connects,
    stop: () => emulator.stop(),
  };
}
export type ModalEmulator = Awaited<ReturnType<typeof startModalEmulator>>;
