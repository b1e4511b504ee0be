import { createHash, timingSafeEqual } from 'node:crypto';
import { type CallContext, ServerError, Status } from 'nice-grpc';
import { connectSubject } from './connect-endpoint';
import type { FaultBoard } from './faults';
import type { ImageBuilder, ImageDefinition } from './image-builder';
import type { ImageShelf } from './image-shelf';
import type { Tokens } from './tokens';
import type { CreateRequest, Tag } from './wire';
import type { Emulated, WorkerPool } from './worker-pool';

export interface ControlPlaneSettings {
  readonly tokenId: string;
  readonly tokenSecret: string;
  /** Where the command router is, as `https://127.0.0.1:<port>`: the SDK asks for https and uses none here. */
  readonly routerUrl: () => string;
  /** Where requests with connect tokens go. */
  readonly connectUrl: () => string;
  readonly pool: WorkerPool;
  readonly builder: ImageBuilder;
  readonly images: ImageShelf;
  readonly board: FaultBoard;
  readonly tokens: Tokens;
}

interface ById {
  readonly sandboxId: string;
}
interface Timed extends ById {
  readonly timeout?: number;
}
interface ImageRequest {
  readonly image?: ImageDefinition;
}
interface ImageId {
  readonly imageId: string;
}
interface JoinRequest {
  readonly imageId: string;
  readonly lastEntryId: string;
}
interface ListRequest {
  readonly appId: string;
  readonly beforeTimestamp: number;
  readonly includeFinished: boolean;
  readonly tags: readonly Tag[];
}
interface NameRequest {
  readonly sandboxName: string;
  readonly includeTerminated?: boolean;
}

const PAGE = 50;
const LONGEST_WAIT_SECONDS = 55;

/** The calls of `modal.client.ModalClient` that the runner's SDK makes. */
export function controlPlane(settings: ControlPlaneSettings) {
  const { pool, builder, images, board, tokens } = settings;

  const access = (sandbox: Emulated) => ({
    url: settings.routerUrl(),
    jwt: tokens.issue(sandbox.taskId, board.faults.routerTokenSeconds),
  });

  const known = (sandboxId: string): Emulated => {
    const sandbox = pool.find(sandboxId);
    if (!sandbox) throw new ServerError(Status.NOT_FOUND, `Sandbox ${sandboxId} not found`);
    return sandbox;
  };

  const expectImage = (imageId: string): void => {
    if (images.isGone(imageId)) throw noImage(imageId);
  };

  const create = async (request: CreateRequest, isV2: boolean): Promise<Emulated> => {
    const { name, imageId = '' } = request.definition ?? {};
    expectImage(imageId);
    if (name && pool.named(name, isV2, false))
      throw new ServerError(Status.ALREADY_EXISTS, `Sandbox with name '${name}' already exists`);
    const { quota } = board.faults;
    const running = pool.all.filter(({ result }) => result === null).length;
    if (quota > 0 && running >= quota)
      throw new ServerError(
        Status.RESOURCE_EXHAUSTED,
        'the workspace is at its limit of sandboxes',
      );
    const made = await pool.create(request, isV2);
    if (board.takes('loseCreateAnswers'))
      throw new ServerError(Status.UNAVAILABLE, 'the answer was lost (injected)');
    return made;
  };

  const wait = async ({ sandboxId, timeout = 0 }: Timed) => {
    const deadline = Date.now() + Math.min(timeout, LONGEST_WAIT_SECONDS) * 1000;
    for (;;) {
      const { result, appId } = known(sandboxId);
      if (result || Date.now() >= deadline)
        return { ...(result ? { result } : {}), metadata: { appId } };
      await pool.nextChange(deadline - Date.now());
    }
  };

  const taskId = ({ sandboxId }: ById) => {
    const { taskId, scheduled, result } = known(sandboxId);
    if (result) return { taskResult: result };
    return scheduled ? { taskId } : {};
  };

  const list = ({ appId, beforeTimestamp, includeFinished, tags }: ListRequest) => {
    const wanted = pool.all
      .filter((sandbox) => sandbox.appId === appId && (includeFinished || sandbox.result === null))
      .filter((sandbox) => tags.every((tag) => sandbox.tags.some(same(tag))))
      .filter(({ createdAt }) => !beforeTimestamp || createdAt < beforeTimestamp)
      .sort((one, other) => other.createdAt - one.createdAt);
    return {
      sandboxes: wanted.slice(0, PAGE).map((sandbox) => ({
        id: sandbox.sandboxId,
        createdAt: sandbox.createdAt,
        appId: sandbox.appId,
        tags: [...sandbox.tags],
        name: sandbox.name,
        timeoutSecs: sandbox.timeoutSecs,
        taskInfo: { id: sandbox.taskId, ...(sandbox.result ? { result: sandbox.result } : {}) },
      })),
    };
  };

  const fromName = ({ sandboxName, includeTerminated = false }: NameRequest, isV2: boolean) => {
    const sandbox = pool.named(sandboxName, isV2, includeTerminated);
    if (!sandbox) throw new ServerError(Status.NOT_FOUND, `no running sandbox ${sandboxName}`);
    return { sandboxId: sandbox.sandboxId };
  };

  const setTags = async ({ sandboxId, tags }: ById & { readonly tags: readonly Tag[] }) => {
    known(sandboxId);
    if (board.takes('refuseTags'))
      throw new ServerError(Status.INVALID_ARGUMENT, 'those tags are wrong (injected)');
    await pool.setTags(sandboxId, tags);
    return {};
  };
  const getTags = ({ sandboxId }: ById) => ({ tags: [...known(sandboxId).tags] });

  const connectToken = ({ sandboxId, port = 8080 }: ById & { readonly port?: number }) => {
    if (known(sandboxId).result)
      throw new ServerError(Status.FAILED_PRECONDITION, 'the sandbox has finished');
    board.connects.tokens += 1;
    const { connectTokenSeconds } = board.faults;
    const token = tokens.issue(connectSubject(sandboxId, port), connectTokenSeconds);
    return { url: settings.connectUrl(), token };
  };

  const terminate = async ({ sandboxId }: ById) => {
    const { result } = known(sandboxId);
    await pool.terminate(sandboxId);
    return result ? { existingResult: result } : {};
  };

  const methods = {
    authTokenGet: () => ({ token: tokens.issue('client', 1200) }),
    appGetOrCreate: ({ appName }: { readonly appName: string }) => ({
      appId: `ap-${digest(appName)}`,
      handleMetadata: { appId: `ap-${digest(appName)}`, description: appName },
    }),
    environmentGetOrCreate: () => ({
      environmentId: 'en-emulated',
      metadata: { name: 'main', settings: { imageBuilderVersion: '2025.06', webhookSuffix: '' } },
    }),
    imageGetOrCreate: ({ image }: ImageRequest) =>
      builder.getOrCreate(image ?? { dockerfileCommands: [], baseImages: [] }),
    imageFromId: ({ imageId }: ImageId) => {
      expectImage(imageId);
      return { imageId };
    },
    imageDelete: async ({ imageId }: ImageId) => {
      if (!(await images.remove(imageId))) throw noImage(imageId);
      return {};
    },

    sandboxCreateV2: async (request: CreateRequest) => {
      const sandbox = await create(request, true);
      const { result } = known(sandbox.sandboxId);
      if (result) throw new ServerError(Status.INTERNAL, result.exception);
      return {
        sandboxId: sandbox.sandboxId,
        taskId: sandbox.taskId,
        tunnels: [],
        commandRouterAccess: access(sandbox),
      };
    },
    sandboxCreate: async (request: CreateRequest) => ({
      sandboxId: (await create(request, false)).sandboxId,
    }),
    sandboxGetTaskId: taskId,
    sandboxGetTaskIdV2: taskId,
    sandboxWait: wait,
    sandboxWaitV2: wait,
    sandboxCreateConnectToken: connectToken,
    sandboxCreateConnectTokenV2: connectToken,
    sandboxTerminate: terminate,
    sandboxTerminateV2: terminate,
    sandboxList: list,
    sandboxListV2: list,
    sandboxGetFromName: (request: NameRequest) => fromName(request, false),
    sandboxGetFromNameV2: (request: NameRequest) => fromName(request, true),
    sandboxTagsSet: setTags,
    sandboxTagsSetV2: setTags,
    sandboxTagsGet: getTags,
    sandboxTagsGetV2: getTags,
    sandboxGetCommandRouterAccess: ({ sandboxId }: ById) => routerAccess(known(sandboxId)),
    taskGetCommandRouterAccess: (request: { readonly taskId: string }) => {
      const sandbox = pool.byTask(request.taskId);
      if (!sandbox) throw new ServerError(Status.NOT_FOUND, 'no such task');
      return routerAccess(sandbox);
    },
  };

  function routerAccess(sandbox: Emulated) {
    if (sandbox.result) throw new ServerError(Status.NOT_FOUND, 'the sandbox has finished');
    return access(sandbox);
  }

  const authenticated = ({ metadata }: CallContext): void => {
    const given = `${metadata.get('x-modal-token-id')} ${metadata.get('x-modal-token-secret')}`;
    const expected = `${settings.tokenId} ${settings.tokenSecret}`;
    if (!timingSafeEqual(sha256(given), sha256(expected)))
      throw new ServerError(Status.UNAUTHENTICATED, 'the token is missing or wrong');
  };

  const check = async (context: CallContext) => {
    authenticated(context);
    board.onCall();
    const { callDelayMs } = board.faults;
    if (callDelayMs > 0) await Promise.race([board.nextChange(), pause(callDelayMs)]);
  };
  return {
    ...guarded(methods, board, check),
    imageJoinStreaming: async function* (request: JoinRequest, context: CallContext) {
      await check(context);
      yield* builder.join(request.imageId, request.lastEntryId, context.signal);
    },
  };
}

const pause = (ms: number): Promise<void> => new Promise((end) => void setTimeout(end, ms).unref());

type Method = (request: never, context: CallContext) => unknown;

/** Puts a check in front of every method. */
export const guarded = <T extends Record<string, Method>>(
  methods: T,
  board: FaultBoard,
  check: (context: CallContext) => Promise<void>,
): Record<string, (request: unknown, context: CallContext) => Promise<unknown>> =>
  Object.fromEntries(
    Object.entries(methods).map(([name, method]) => [
      name,
      (request: unknown, context: CallContext) =>
        board.counted(name, async () => {
          await check(context);
          return method(request as never, context);
        }),
    ]),
  );

const noImage = (imageId: string) =>
  new ServerError(Status.NOT_FOUND, `Could not find image with ID ${imageId}`);

const same = (tag: Tag) => (other: Tag) =>
  tag.tagName === other.tagName && tag.tagValue === other.tagValue;

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();
const digest = (text: string): string => sha256(text).toString('hex').slice(0, 22);
