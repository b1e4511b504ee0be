/** Where an event stands, by its id, for the most recent events: what makes `any` appends repeatable. */
export interface Place {
  readonly revision: number;
  readonly position: number;
}

export class RecentIds {
  private readonly places = new Map<string, Place>();
  constructor(private readonly capacity: number) {}

  add(stream: number, id: string, place: Place): void {
    if (this.places.size >= this.capacity) {
      const oldest = this.places.keys().next();
      if (!oldest.done) this.places.delete(oldest.value);
    }
    this.places.set(key(stream, id), place);
  }

  find(stream: number, id: string): Place | undefined {
    return this.places.get(key(stream, id));
  }

  clear(): void {
    this.places.clear();
  }
}

const key = (stream: number, id: string): string => `${stream} ${id}`;
