import type { TunnelFile, TunnelRequest, TunnelStream } from '@vmux/tunnel';
import type { FileEntry } from '../supervisor-answers';
import type { SupervisorClient } from '../supervisor-client';
import type { FileCall } from '../supervisor-files';

export type FileRequest = Extract<TunnelRequest, { path: string }>;

const BATCH_BYTES = 32 * 1024;

/** Files of a sandbox over a stream of the tunnel, as fast as the slower end and no faster. */
export async function serveFile(
  request: FileRequest,
  { files }: SupervisorClient,
  stream: TunnelStream,
  signal: AbortSignal,
): Promise<unknown> {
  const { path } = request;
  const call: FileCall = {
    signal,
    ...(request.user === null ? {} : { user: request.user }),
  };
  switch (request.op) {
    case 'stat':
      return fileJson(await files.stat(path, { ...call, followLink: request.followLink }));
    case 'list':
      return sendAll(stream, linesOf(files.list(path, call)));
    case 'read': {
      const { offset, length } = request;
      const range = length === null ? { offset } : { offset, length };
      return sendAll(stream, files.read(path, { ...call, ...range }));
    }
    case 'write': {
      const { mode, parents: makeParents } = request;
      const how = { ...call, makeParents, ...(mode === null ? {} : { mode }) };
      return { bytes: await files.write(path, stream.receive(), how) };
    }
    case 'remove':
      await files.remove(path, { ...call, recursive: request.recursive });
      return null;
    case 'mkdir': {
      const { mode, parents: makeParents } = request;
      await files.makeDirectory(path, { ...call, mode, makeParents });
      return null;
    }
    case 'tar-out':
      return sendAll(stream, files.tarOut(path, call));
    case 'tar-in':
      return { entries: await files.tarIn(path, stream.receive(), call) };
  }
}

async function sendAll(stream: TunnelStream, bytes: AsyncIterable<Buffer>): Promise<null> {
  for await (const piece of bytes) await stream.send(piece);
  stream.end();
  return null;
}

async function* linesOf(entries: AsyncIterable<FileEntry>): AsyncGenerator<Buffer> {
  let lines = '';
  for await (const entry of entries) {
    lines += `${JSON.stringify(fileJson(entry))}\n`;
    if (lines.length < BATCH_BYTES) continue;
    yield Buffer.from(lines);
    lines = '';
  }
  if (lines !== '') yield Buffer.from(lines);
}

function fileJson(entry: FileEntry): TunnelFile {
  const { type, mode, uid, gid, size, modifiedAtUs, linkTarget } = entry;
  const name = entry.name.toString('utf8');
  return {
    ...{ name, type, mode, uid, gid, size },
    nameBase64: Buffer.from(name).equals(entry.name) ? null : entry.name.toString('base64'),
    modifiedAtMs: Math.floor(modifiedAtUs / 1000),
    linkTarget: type === 'link' ? linkTarget.toString('utf8') : null,
  };
}
