import type { LoggerService } from '@nestjs/common';
import pino, { type Logger } from 'pino';

/** JSON lines on stderr; stdout carries only the line that says that the gateway serves. */
export const loggerFor = (level: string): Logger =>
  pino(
    {
      level,
      base: { service: 'gateway', pid: process.pid },
      serializers: { err: pino.stdSerializers.err, fault: pino.stdSerializers.err },
    },
    pino.destination({ dest: 2, sync: true }),
  );

/** Nest's own lines, where they matter. */
export const nestLogger = (log: Logger): LoggerService => ({
  log: (message: unknown) => log.debug({}, String(message)),
  warn: (message: unknown) => log.warn({}, String(message)),
  error: (message: unknown) => log.error({}, String(message)),
});
