import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import {
  type CallOptions,
  type CheckpointFiles,
  type CheckpointKeeper,
  DriverRefused,
  DriverUnavailable,
  type Layer,
  plainFile,
  type SandboxId,
  TAR_END,
  tarHeader,
  tarPadding,
} from '@vmux/runner-kit';
import type Docker from 'dockerode';

const label = (name: string) => `dev.vmux.checkpoint.${name}`;
const RUNNER = label('runner');
const SANDBOX = label('sandbox');
const ARTIFACT = label('artifact');
const SINCE = label('since-ns');
const BASE_LAYERS = label('base-layers');
const AT = label('at');

/** An engine takes up to 127 layers, and each one makes looking up a file a little slower. */
const MAX_LAYERS_OVER_BASE = 24;
/** The clock that files are stamped with lags behind by so much. */
const TICK_NS = 50_000_000n;

const REF = /^[a-z0-9-]{1,63}\.[0-9a-f]{64}$/;
export const artifactOf = (ref: string): string => ref.slice(ref.lastIndexOf('.') + 1);
const sessionOf = (ref: string): string => ref.slice(0, ref.lastIndexOf('.'));

/** An image that holds a checkpoint. */
export interface LayeredImage {
  readonly imageId: string;
  readonly artifact: string;
  /** The files of the workload are those that changed after this time, in nanoseconds since 1970. */
  readonly sinceNs: string;
  readonly layers: readonly string[];
  readonly baseLayers: number;
}

interface Inspected {
  readonly Id: string;
  readonly Architecture: string;
  readonly Os: string;
  readonly RootFS: { readonly Layers?: readonly string[] };
  readonly Config: { readonly Labels?: Readonly<Record<string, string>> | null } | null;
}

/**
 * Checkpoints as images: a layer over the base, or over the layers of an earlier checkpoint of the same
 * sandbox, made out of the portable form. An image holds the session's files and the settings of its base;
 * nothing of a container's own settings, of our program or of its record gets into it.
 */
export class DockerLayers {
  constructor(
    private readonly docker: Docker,
    private readonly runnerId: string,
  ) {}

  async keeper(id: SandboxId, imageId: string, artifact: string): Promise<CheckpointKeeper> {
    const ref = `${id.sessionId}.${artifact}`;
    if (!REF.test(ref)) throw new DriverRefused('invalid', 'a checkpoint that cannot be named');
    const under: Inspected = await this.docker.getImage(imageId).inspect();
    return { ref, keep: (files, options) => this.keep(id, ref, under, files, options) };
  }

  /** Undefined when it is not here. */
  async find(ref: string): Promise<LayeredImage | undefined> {
    if (!REF.test(ref)) return undefined;
    const image: Inspected | undefined = await this.docker
      .getImage(this.nameOf(ref))
      .inspect()
      .catch((error) => missing(error));
    return image && this.layered(image);
  }

  async layersOf(image: string): Promise<readonly string[]> {
    const { RootFS }: Inspected = await this.docker.getImage(image).inspect();
    return RootFS.Layers ?? [];
  }

  /** The oldest first. */
  async refs(sandbox?: SandboxId): Promise<readonly { ref: string; sessionId: string }[]> {
    const wanted = [`${RUNNER}=${this.runnerId}`];
    if (sandbox) wanted.push(`${SANDBOX}=${sandboxName(sandbox)}`);
    const images = await this.docker.listImages({ filters: { label: wanted } });
    const prefix = this.nameOf('');
    const dated = images.flatMap(({ RepoTags, Labels }) =>
      (RepoTags ?? [])
        .filter((tag) => tag.startsWith(prefix) && REF.test(tag.slice(prefix.length)))
        .map((tag) => ({ ref: tag.slice(prefix.length), at: Number(Labels?.[AT] ?? 0) })),
    );
    return dated
      .sort((one, other) => one.at - other.at)
      .map(({ ref }) => ({ ref, sessionId: sessionOf(ref) }));
  }

  /** What runs out of it goes on; the last of that takes it along. */
  async forget(ref: string): Promise<void> {
    if (!REF.test(ref)) return;
    await this.remove(this.nameOf(ref), true);
    await this.sweep();
  }

  /** Removes images of ours that have no name any more, unless a container is made of them. */
  async sweep(): Promise<void> {
    const filters = { dangling: ['true'], label: [`${RUNNER}=${this.runnerId}`] };
    for (const { Id } of await this.docker.listImages({ filters })) await this.remove(Id, false);
  }

  private async keep(
    id: SandboxId,
    ref: string,
    under: Inspected,
    files: CheckpointFiles,
    { signal }: CallOptions = {},
  ): Promise<void> {
    if (await this.find(ref)) return;
    const { before, layer } = await this.layerFor(id, under, files);
    const base = (under.RootFS.Layers ?? []).slice(0, this.layered(under)?.baseLayers);
    const beneath = before?.layers ?? base;
    const { SystemTime }: { readonly SystemTime: string } = await this.docker.info();
    const at = nanoseconds(SystemTime);
    const { Labels, ...settings } = under.Config ?? {};
    const labels = {
      ...Labels,
      [RUNNER]: this.runnerId,
      [SANDBOX]: sandboxName(id),
      [ARTIFACT]: files.artifact,
      [SINCE]: before?.sinceNs ?? String(at - TICK_NS),
      [BASE_LAYERS]: String(base.length),
      [AT]: String(at),
    };
    const image = (diffId: string) => ({
      ...{ architecture: under.Architecture, os: under.Os, created: SystemTime },
      config: { ...settings, Labels: labels },
      rootfs: { type: 'layers', diff_ids: [...beneath, diffId] },
    });
    await this.load(imageArchive(layer, image, beneath.length, this.nameOf(ref)), signal);
    await this.sweep();
    if (!(await this.find(ref))) throw new DriverUnavailable('the engine has not kept it');
  }

  /** Over the last checkpoint of this sandbox, or the one that it was made of, or its base. */
  private async layerFor(
    id: SandboxId,
    under: Inspected,
    files: CheckpointFiles,
  ): Promise<{ readonly before?: LayeredImage; readonly layer: Layer }> {
    const last = (await this.refs(id)).at(-1);
    const before = (last && (await this.find(last.ref))) ?? this.layered(under);
    if (before && before.layers.length - before.baseLayers < MAX_LAYERS_OVER_BASE)
      try {
        return { before, layer: await files.over(before.artifact) };
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'artifact_not_found'))
          throw error;
      }
    return { layer: await files.over(null) };
  }

  private layered({ Id, Config, RootFS }: Inspected): LayeredImage | undefined {
    const labels = Config?.Labels ?? {};
    const { [ARTIFACT]: artifact, [SINCE]: sinceNs } = labels;
    const baseLayers = Number(labels[BASE_LAYERS]);
    if (labels[RUNNER] !== this.runnerId || !artifact || !sinceNs) return undefined;
    if (!/^\d{1,19}$/.test(sinceNs) || !Number.isSafeInteger(baseLayers)) return undefined;
    return { imageId: Id, artifact, sinceNs, layers: RootFS.Layers ?? [], baseLayers };
  }

  private async load(archive: AsyncIterable<Buffer>, signal?: AbortSignal): Promise<void> {
    const stopping = new AbortController();
    const source = Readable.from(archive, { objectMode: false });
    // What cannot be read to its end is not sent to its end either.
    source.once('error', (fault) => stopping.abort(fault));
    const abortSignal = signal ? AbortSignal.any([signal, stopping.signal]) : stopping.signal;
    const answer = await this.docker
      .loadImage(source, { quiet: true, abortSignal })
      .catch((fault) => {
        throw stopping.signal.aborted ? stopping.signal.reason : fault;
      });
    const said = await text(answer);
    const failed = /"error":"((?:[^"\\]|\\.)*)"/.exec(said);
    if (failed) throw new DriverUnavailable(`the engine refuses the layer (${failed[1]})`);
  }

  private async remove(name: string, force: boolean): Promise<void> {
    await this.docker
      .getImage(name)
      .remove({ force })
      .catch((error) => {
        // 404: it is gone. 409: something is made of it. Two that remove it at once: it is gone, too.
        const isGone = /unrecognized image ID/.test(error.message);
        if (![404, 409].includes(error.statusCode) && !isGone) throw error;
      });
  }

  private nameOf(ref: string): string {
    return `vmux-checkpoints/${this.runnerId}:${ref}`;
  }
}

/** An image as engines save and load them; of the layers beneath the engine has its own. */
async function* imageArchive(
  layer: Layer,
  imageWith: (diffId: string) => object,
  beneath: number,
  name: string,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let sent = 0;
  yield tarHeader(plainFile(LAYER, layer.bytes));
  for await (const part of layer.stream) {
    hash.update(part);
    sent += part.length;
    yield part;
  }
  if (sent !== layer.bytes) throw new Error(`a layer of ${sent} bytes, not ${layer.bytes}`);
  yield tarPadding(layer.bytes);
  const image = Buffer.from(JSON.stringify(imageWith(`sha256:${hash.digest('hex')}`)));
  const Config = `${createHash('sha256').update(image).digest('hex')}.json`;
  const Layers = [...Array(beneath).fill('beneath/layer.tar'), LAYER];
  yield* plain(Config, image);
  const manifest = [{ Config, RepoTags: [name], Layers }];
  yield* plain('manifest.json', Buffer.from(JSON.stringify(manifest)));
  yield TAR_END;
}

function* plain(path: string, content: Buffer): Generator<Buffer> {
  yield tarHeader(plainFile(path, content.length));
  yield content;
  yield tarPadding(content.length);
}

const LAYER = 'layer/layer.tar';

const sandboxName = ({ sessionId, epoch, instance }: SandboxId): string =>
  `${sessionId}/${epoch}/${instance}`;

/** Of an instant as engines write it, `2026-01-31T12:00:00.123456789Z`. */
function nanoseconds(instant: string): bigint {
  const [, seconds, fraction = ''] =
    /^([^.]+?)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d)$/.exec(instant) ?? [];
  const zone = instant.slice((seconds?.length ?? 0) + (fraction ? fraction.length + 1 : 0));
  const at = Date.parse(`${seconds}${zone}`);
  if (!Number.isFinite(at)) throw new DriverUnavailable(`the engine’s clock says ${instant}`);
  return BigInt(at) * 1_000_000n + BigInt(fraction.slice(0, 9).padEnd(9, '0'));
}

function missing(error: { readonly statusCode?: number }): undefined {
  if (error.statusCode !== 404) throw error;
}
