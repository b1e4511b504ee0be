import { readFileSync } from 'node:fs';
import Module, { createRequire } from 'node:module';
import type { CompatServiceDefinition } from 'nice-grpc';

export interface Definitions {
  readonly ModalClientDefinition: CompatServiceDefinition;
  readonly TaskCommandRouterDefinition: CompatServiceDefinition;
}

/**
 * The wire protocol as the vendor's SDK itself has it: its bundle, loaded once more with one line behind it
 * that gives out the service definitions. Nothing of the protocol is written down here.
 */
export function loadDefinitions(): Definitions {
  const file = createRequire(__filename).resolve('modal');
  const bundle = file.replace(/index\.js$/, 'index.cjs');
  const source = readFileSync(bundle, 'utf8');
  const copy = new Module(`${bundle}#definitions`) as Module & {
    _compile(code: string, filename: string): void;
  };
  copy.paths = (Module as unknown as { _nodeModulePaths(from: string): string[] })._nodeModulePaths(
    bundle,
  );
  copy._compile(
    `${source}\nmodule.exports = { ModalClientDefinition, TaskCommandRouterDefinition };\n`,
    bundle,
  );
  return copy.exports as Definitions;
}
