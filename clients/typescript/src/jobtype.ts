/** Types of jobs that the enqueueing side and the worker share. */

declare const payload: unique symbol;
declare const output: unique symbol;

/** What holds for the jobs of a type. */
export interface JobTypeOptions {
  /** Where `enqueue` puts jobs of the type. Defaults to the queue `default`. */
  queue?: string;
}

/**
 * A type of jobs, with the types of its payload and output.
 *
 * Declare it once, in a module that both the worker and the program that enqueues import: the compiler then
 * holds the two together.
 *
 * ```ts
 * export const sendMail = new JobType<{ to: string }>("email:send", { queue: "mail" });
 * ```
 *
 * The types are those of the compiler. Nothing is checked when a job runs, so a handler that does not trust
 * what was enqueued has to look at it.
 */
export class JobType<P = unknown, R = unknown> {
  // They exist for the compiler only.
  declare readonly [payload]: P;
  declare readonly [output]: R;
  /** The queue of its jobs. */
  readonly queue: string | undefined;

  constructor(
    /** The name, as the store has it. */
    readonly name: string,
    options: JobTypeOptions = {},
  ) {
    this.queue = options.queue;
  }
}

/** A type, or its name. */
export type TypeName<P = unknown, R = unknown> = string | JobType<P, R>;

/** The name of a type. */
export function nameOf(type: TypeName): string {
  return typeof type === "string" ? type : type.name;
}

/** The queue of a type, if it names one. */
export function queueOf(type: TypeName): string | undefined {
  return typeof type === "string" ? undefined : type.queue;
}
