"""A job that the worker holds, and what the worker counts of its queues."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

from ._job import Job
from ._outcome import Outcome


@dataclass(frozen=True)
class Handler:
    """What runs the jobs of a type."""

    function: Callable[[Job], Any]
    is_async: bool
    queue: Optional[str]
    max_attempts: Optional[int]
    timeout: Optional[float]


@dataclass(frozen=True)
class Backoff:
    """The delays after failures: ``base`` seconds, ``multiplier`` times as long after each further failure,
    at most ``cap``. Of each delay the part ``jitter`` is random.
    """

    base: float = 2.0
    cap: float = 3_600.0
    multiplier: float = 2.0
    jitter: float = 0.25

    def to_json(self) -> Dict[str, float]:
        """As the server takes it."""
        return {
            "base_seconds": self.base,
            "cap_seconds": self.cap,
            "multiplier": self.multiplier,
            "jitter": self.jitter,
        }


@dataclass(eq=False)
class Held:
    """A job under a lease. Guarded by the lock of the worker. Times are those of the monotonic clock."""

    job: Job
    handler: Handler
    lease: str
    expires_at: float
    extend_at: float
    deadline: Optional[float]
    alone_until: float
    granted_at: float
    began_at: float
    # The outcome of the job, once it is decided; the handler may still run then.
    outcome: Optional[Outcome] = None
    # When the job is released although its handler has not ended.
    stop_at: Optional[float] = None
    # Whether its handler has ended, and whether nothing more is to be done for it.
    has_ended: bool = False
    is_over: bool = False
    is_settling: bool = False
    # Its lease is being extended, and may be another afterwards.
    is_extending: bool = False
    # An outcome was sent, and it is unknown whether it arrived.
    is_unanswered: bool = False
    refusals: int = 0
    resume_at: float = 0.0
    # The server knows that the worker shuts down, or is too busy to hear it before this time.
    has_left: bool = False
    leave_at: float = 0.0
    task: Optional["asyncio.Task[Any]"] = None

    @property
    def is_running(self) -> bool:
        """Whether its outcome is not decided yet."""
        return self.outcome is None and not self.is_over


# The upper ends of the buckets of times, in milliseconds, as all workers announce them.
_BUCKETS = (1, 5, 25, 100, 250, 1_000, 2_500, 10_000, 30_000, 120_000, 600_000)


def _empty() -> List[int]:
    return [0] * (len(_BUCKETS) + 1)


@dataclass
class Tally:
    """What the worker has done with the jobs of a queue, as it is announced."""

    started: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    released: int = 0
    lost: int = 0
    wait: List[int] = field(default_factory=_empty)
    run: List[int] = field(default_factory=_empty)

    def begin(self, waited_ms: float) -> None:
        """A handler begins."""
        self.started += 1
        self.wait[bisect_left(_BUCKETS, waited_ms)] += 1

    def end(self, ran_ms: float, outcome: Outcome) -> None:
        """A handler has ended, or was given up."""
        self.run[bisect_left(_BUCKETS, ran_ms)] += 1
        if outcome.is_failure:
            self.failed += 1

    def settle(self, outcome: Outcome, state: str) -> None:
        """The outcome is recorded."""
        if state == "done":
            self.done += 1
        elif state == "dlq":
            self.dead += 1
        elif not outcome.is_failure:
            self.released += 1

    def to_json(self, name: str, slots: int, busy: int) -> Dict[str, Any]:
        """As it is announced."""
        counts = {name: getattr(self, name) for name in ("started", "done", "failed", "dead", "released", "lost")}
        return {"name": name, "slots": slots, "busy": busy, **counts, "wait": self.wait, "run": self.run}
