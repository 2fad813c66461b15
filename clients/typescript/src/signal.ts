/** Waiting: for a time, for news, and after failures. */

/** Waits so many milliseconds. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Wakes what waits for news. Nothing is lost, as long as nothing is awaited between a look and the wait. */
export class Signal {
  readonly #waiting = new Set<() => void>();

  /** There is news. */
  notify(): void {
    for (const wake of [...this.#waiting]) {
      wake();
    }
  }

  /** Waits for news, at most so many milliseconds. */
  wait(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const wake = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      this.#waiting.add(wake);
      if (ms !== undefined) {
        // A timer takes 24 days at most, and fires at once if it is asked for more.
        timer = setTimeout(wake, Math.min(Math.max(ms, 0), 2_000_000_000));
      }
    });
  }
}

/** The milliseconds to wait after so many failures in a row, a quarter of them random. */
export function backoff(failures: number, longest = 5_000): number {
  return Math.min(100 * 2 ** Math.min(failures - 1, 10), longest) * (1 - Math.random() / 4);
}

/** Milliseconds of a clock that cannot be set. */
export function now(): number {
  return performance.now();
}
