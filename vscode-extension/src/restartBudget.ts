// How often a server that ends by itself is started again.

const LIMIT = 4;
const WINDOW_MS = 3 * 60_000;

/** Allows four restarts in three minutes: enough for a bad moment, not for a server that cannot run. */
export class RestartBudget {
  private taken: number[] = [];

  /** How long to wait before the next restart, in ms; undefined when there shall be none. `now` in ms. */
  take(now: number): number | undefined {
    this.taken = this.taken.filter((time) => now - time < WINDOW_MS);
    if (this.taken.length >= LIMIT) return undefined;
    this.taken.push(now);
    return 500 * 2 ** (this.taken.length - 1);
  }

  refill(): void {
    this.taken = [];
  }
}
