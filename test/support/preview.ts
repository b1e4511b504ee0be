import { request } from 'node:http';

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly cookie: string | undefined;
  readonly location: string | undefined;
}

/** As a browser: with the cookie that the first answer gives. `*.localhost` is not resolved everywhere. */
export async function visited(url: URL): Promise<Answer> {
  const first = await asked(url, {});
  const cookie = first.cookie?.split(';', 1)[0] ?? '';
  return first.status === 303 ? asked(new URL(first.location ?? '', url), { cookie }) : first;
}

function asked(url: URL, headers: Record<string, string>): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const place = { host: '127.0.0.1', port: url.port, path: `${url.pathname}${url.search}` };
    request({ ...place, headers: { ...headers, host: url.host } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      answer.on('end', () => {
        const { location, 'set-cookie': [cookie] = [] } = answer.headers;
        resolve({ status: answer.statusCode ?? 0, text, cookie, location });
      });
    })
      .on('error', reject)
      .end();
  });
}
