import type { LoggerService } from '@nestjs/common';
import pino, { type Logger } from 'pino';

/** JSON lines on stderr; stdout carries only the line that says that the process serves. */
export const loggerFor = (instance: string, level: string): Logger =>
  pino(
    {
      level,
      base: { service: 'session-service', instance },
      serializers: { fault: pino.stdSerializers.err },
    },
    // Asynchronous: whoever reads stderr too slowly must not hold up the work.
    pino.destination({ dest: 2, sync: false }),
  );

/** Nest's own lines, where they matter. */
export const nestLogger = (log: Logger): LoggerService => ({
  log: (message: unknown) => log.debug({}, String(message)),
  warn: (message: unknown) => log.warn({}, String(message)),
  error: (message: unknown) => log.error({}, String(message)),
});
