// Makes the editor show growth at the pace that it can bear.

/** Each update cancels the one before while that is still being fetched: closer together, none would ever be shown. */
export const GAP_MS = 100;

/** Calls `refresh` after each `ask`, one at a time and not too often. What is asked for last is always followed by one. */
export class Refresher {
  private wanted = false;
  private running = false;
  private earliest = 0;

  constructor(
    private readonly refresh: () => Promise<void>,
    private readonly gap = GAP_MS,
  ) {}

  /** The editor has been given something just now. */
  shown(): void {
    this.earliest = performance.now() + this.gap;
  }

  ask(): void {
    this.wanted = true;
    if (!this.running) void this.run();
  }

  /** Forgets what was asked for. */
  clear(): void {
    this.wanted = false;
  }

  private async run(): Promise<void> {
    this.running = true;
    while (this.wanted) {
      const wait = this.earliest - performance.now();
      if (wait > 0) {
        await new Promise((resolve) => setTimeout(resolve, wait));
        continue; // it may have been cleared or shown otherwise meanwhile
      }
      this.wanted = false;
      this.shown();
      await this.refresh().catch(() => undefined);
    }
    this.running = false;
  }
}
