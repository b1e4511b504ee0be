import type { ApiClient } from './api-client';

interface Described {
  readonly paths: Readonly<
    Record<string, { readonly get?: { readonly parameters?: Parameter[] } }>
  >;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
}

const STAYS_MS = 700;
/** What describes no session is asked for too. */
const OF_NO_SESSION = { sha256: '0'.repeat(64) };

/**
 * Looks at a session in every way that the API describes, also in those that go on for as long as somebody
 * follows. Returns what was asked for and how it was answered.
 */
export async function lookEverywhere(
  api: ApiClient,
  known: Readonly<Record<string, string>>,
): Promise<readonly { readonly path: string; readonly status: number | 'followed' }[]> {
  const { paths } = (await api.get('/openapi.json')).json as Described;
  const looks = Object.entries(paths).flatMap(([path, { get }]) =>
    get ? urlsOf(path, get.parameters ?? [], { ...OF_NO_SESSION, ...known }) : [],
  );
  return Promise.all(
    looks.map(async (path) => {
      const left = AbortSignal.timeout(STAYS_MS);
      const status = await api.call('GET', path, { signal: left }).then(
        (reply) => reply.status,
        (fault) => {
          if (left.aborted) return 'followed' as const;
          throw fault;
        },
      );
      return { path, status };
    }),
  );
}

function urlsOf(
  path: string,
  parameters: readonly Parameter[],
  known: Readonly<Record<string, string>>,
): readonly string[] {
  const given = (name: string) => {
    const value = known[name];
    if (value === undefined) throw new Error(`what is ${name} of ${path}?`);
    return value;
  };
  const place = path.replace(/\{(\w+)\}/g, (_, name: string) => given(name));
  const query = new URLSearchParams();
  for (const { name, in: where, required } of parameters)
    if (where === 'query' && required) query.set(name, given(name));
  const once = `${place}?${query}`;
  const follows = parameters.some(({ name }) => name === 'follow');
  return follows ? [once, `${once}&follow=true`] : [once];
}
