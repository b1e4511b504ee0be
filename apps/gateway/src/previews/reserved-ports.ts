/** Ports that a provider's own machinery listens on, inside the sandbox. */
const RESERVED: Readonly<Record<string, readonly number[]>> = { cloudflare: [3000] };

export const isPort = (port: number): boolean => port >= 1 && port <= 65_535;

export const isReserved = (provider: string, port: number): boolean =>
  Object.hasOwn(RESERVED, provider) && (RESERVED[provider]?.includes(port) ?? false);
