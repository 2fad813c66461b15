/** What can go wrong in a call, and what a handler throws to decide about its job. */

/** A century, which is the longest that the server takes. */
const MAX_SECONDS = 100 * 366 * 86_400;
/** How long the server holds a lane or queue at most. */
const MAX_HOLD_SECONDS = 86_400;

/** The base of all errors of this package. */
export class TaskHarborError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The server or its store cannot be reached, or is busy. Trying again is worth it. */
export class Unavailable extends TaskHarborError {
  /** The status of the response, if there was one. */
  readonly status: number | undefined;

  constructor(message: string, options: ErrorOptions & { status?: number } = {}) {
    super(message, options);
    this.status = options.status;
  }
}

/** The server refused the call. Sending it again unchanged is of no use. */
export class ApiError extends TaskHarborError {
  constructor(
    /** The status of the response; 200 if the server took the call and refused one job of it. */
    readonly status: number,
    /** What the server calls the error; it does not change between versions. */
    readonly code: string,
    title: string,
    /** What the server says about it. */
    readonly detail: string = "",
  ) {
    super(`${detail === "" ? title : `${title}: ${detail}`} (${status} ${code})`);
  }
}

/** Thrown by a handler: trying again will not help, the job is dead-lettered with this reason. */
export class Discard extends TaskHarborError {}

/**
 * Thrown by a handler: the attempt has failed, and the next one runs `after` this many seconds.
 *
 * Without `after` it is the same as any other error: the delays grow with each attempt.
 */
export class Retry extends TaskHarborError {
  /** The seconds to wait; without it the retry policy says. */
  readonly after: number | undefined;

  constructor(message: string, options: { after?: number } = {}) {
    super(message);
    this.after = options.after === undefined ? undefined : checked(options.after);
  }
}

/** Thrown by a handler: not now, run the job again in so many seconds. No attempt is charged. */
export class Snooze extends TaskHarborError {
  /** The seconds to wait. */
  readonly seconds: number;

  constructor(seconds: number) {
    super(`snoozed for ${seconds} s`);
    this.seconds = checked(seconds);
  }
}

/**
 * Thrown by a handler: the service it calls asks to be left alone for this many seconds.
 *
 * No attempt is charged, and the lane of the job, or its queue if it has none, is on hold for as long: a
 * day at most.
 */
export class Throttled extends TaskHarborError {
  /** The seconds to wait. */
  readonly seconds: number;

  constructor(seconds: number) {
    super(`throttled for ${seconds} s`);
    this.seconds = checked(seconds, MAX_HOLD_SECONDS);
  }
}

function checked(seconds: number, most = MAX_SECONDS): number {
  const isIn = seconds >= 0 && seconds <= most;
  if (!isIn) {
    throw new RangeError(`the time to wait is ${seconds} s: choose 0 to ${most}`);
  }
  return seconds;
}
