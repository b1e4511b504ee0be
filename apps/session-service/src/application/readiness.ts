/** Why this process should get no work, if anything. */
export class Readiness {
  private readonly obstacles = new Map<string, string>();

  set(name: string, obstacle: string | null): void {
    if (obstacle === null) this.obstacles.delete(name);
    else this.obstacles.set(name, obstacle);
  }

  get reasons(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.obstacles);
  }

  get ready(): boolean {
    return this.obstacles.size === 0;
  }
}
