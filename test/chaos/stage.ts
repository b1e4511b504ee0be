/** What can be done to the time and place of a session. */
export const VERBS = [
  'checkpoint',
  'rollback',
  'fork',
  'suspend',
  'resume',
  'release',
  'rehydrate',
  'move',
] as const;
export type VerbName = (typeof VERBS)[number];

/** Where work and harm meet: whoever harms a verb asks for it and hears when it begins. */
export class Stage {
  /** To be done next by whoever can. */
  wanted: VerbName | null = null;
  private readonly listeners = new Set<(verb: VerbName) => void>();

  constructor(
    /** Kills the sandbox of a session behind everybody's back; false when it has none now. */
    readonly strike: (session: string) => Promise<boolean>,
    /** Where sessions can be moved to; one provider alone is nowhere. */
    readonly providers: readonly string[],
  ) {}

  begins(verb: VerbName): void {
    if (this.wanted === verb) this.wanted = null;
    for (const listener of [...this.listeners]) listener(verb);
  }

  /** True when somebody begins it in time. */
  async begun(verb: VerbName, withinMs: number): Promise<boolean> {
    this.wanted = verb;
    let listener: (begun: VerbName) => void = () => undefined;
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<boolean>((resolve) => {
        listener = (begun) => begun === verb && resolve(true);
        this.listeners.add(listener);
        timer = setTimeout(() => resolve(false), withinMs);
      });
    } finally {
      clearTimeout(timer);
      this.listeners.delete(listener);
      if (this.wanted === verb) this.wanted = null;
    }
  }
}
