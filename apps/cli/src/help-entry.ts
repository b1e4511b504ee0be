export interface CommandHelp {
  readonly usage: string;
  readonly summary: string;
  readonly details: string;
}
