/** Where a worker writes what people should know. */

/** What takes the messages of a worker: `console`, pino, winston and the like. */
export interface Logger {
  /** Takes what is expected: that a worker starts and ends, and that jobs fail. */
  info(message: string, error?: unknown): void;
  /** Takes what an operator may have to look at. */
  warn(message: string, error?: unknown): void;
}

/** Writes to the console; an error with its stack. */
export const CONSOLE: Logger = {
  info: (message, error) => write(console.info, message, error),
  warn: (message, error) => write(console.warn, message, error),
};

function write(line: (...parts: unknown[]) => void, message: string, error: unknown): void {
  line(...(error === undefined ? [`taskharbor: ${message}`] : [`taskharbor: ${message}:`, error]));
}
