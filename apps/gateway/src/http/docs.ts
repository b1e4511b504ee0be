import type { INestApplication } from '@nestjs/common';
import { DocumentBuilder, type OpenAPIObject, SwaggerModule } from '@nestjs/swagger';

/** The description of this API, at /openapi.json and to look at under /docs. */
export function describeApi(app: INestApplication): void {
  const about = new DocumentBuilder()
    .setTitle('vmux')
    .setDescription('Stateful sandboxes: sessions, execs, logs and history.')
    .setVersion('1')
    .addBearerAuth({ type: 'http', scheme: 'bearer', bearerFormat: 'vmux_<id>_<secret>' })
    .build();
  const document = withErrors(SwaggerModule.createDocument(app, about));
  SwaggerModule.setup('docs', app, document, {
    jsonDocumentUrl: 'openapi.json',
    customSiteTitle: 'vmux API',
  });
}

const METHODS = ['get', 'put', 'post', 'delete', 'patch'] as const;
const CHANGES = new Set(['put', 'post', 'delete', 'patch']);

const ERROR_SCHEMA = {
  type: 'object',
  required: ['code', 'message', 'hint', 'details'],
  properties: {
    code: { type: 'string' },
    message: { type: 'string' },
    hint: { type: 'string' },
    details: { type: 'object' },
  },
};

const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header' as const,
  required: false,
  description: 'The same key finds the same answer; made up and returned when it is left out.',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
};

/** Every operation may answer with an error, and every change takes a key. */
function withErrors(document: OpenAPIObject): OpenAPIObject {
  for (const path of Object.values(document.paths)) {
    for (const method of METHODS) {
      const operation = path[method];
      if (!operation) continue;
      const content = { 'application/json': { schema: ERROR_SCHEMA } };
      operation.responses = {
        ...operation.responses,
        default: { description: 'What went wrong and what to do about it', content },
      };
      if (CHANGES.has(method))
        operation.parameters = [...(operation.parameters ?? []), IDEMPOTENCY_KEY];
    }
  }
  return document;
}
