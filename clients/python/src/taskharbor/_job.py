"""A job as its handler sees it."""

from __future__ import annotations

import base64
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Mapping, Optional

from ._error import Cancelled
from ._outcome import cut


@dataclass(frozen=True)
class Inputs:
    """What the steps before a step of a flow have produced."""

    value: Any
    """The output of the parent, or a list; ``None`` without parents, ``bytes`` if it is not JSON."""
    failure: Optional[Mapping[str, Any]]
    """``state`` and ``reason`` of the parent that failed, if the step runs in spite of that."""


class Job:
    """A job as its handler sees it. A handler may use it from any thread."""

    def __init__(
        self,
        granted: Mapping[str, Any],
        read_inputs: Callable[[Job], Dict[str, Any]],
        hear: Callable[[], None],
    ) -> None:
        self.id: str = granted["id"]
        """Identifies the job: the same in each execution, so it makes a good key for what a handler writes."""
        self.type: str = granted["type"]
        """What kind of work it is."""
        self.queue: str = granted["queue"]
        """The queue it came from."""
        raw = granted.get("payload_base64")
        self.payload: Any = granted.get("payload") if raw is None else base64.b64decode(raw)
        """What was enqueued: JSON, or ``bytes`` if it is not JSON.

        Integers of any size are exact; those of more than 4,300 digits come as :class:`decimal.Decimal`.
        """
        self.headers: Mapping[str, str] = granted.get("headers") or {}
        """Small texts that travel with the job."""
        self.attempt: int = granted["attempt"]
        """Which execution this is, from 1. Executions that were not charged do not count."""
        self.max_attempts: int = granted["max_attempts"]
        """How many executions may fail before the job is dead-lettered."""
        self.deliveries: int = granted["deliveries"]
        """How often a worker was given the job, this time included."""
        self.lane: Optional[str] = granted.get("lane")
        """The lane of its queue that it belongs to."""
        self.priority: int = granted["priority"]
        """Higher runs first."""
        self.created_at: datetime = _time(granted["created_at"])
        """When it was enqueued."""
        self.timeout: Optional[float] = granted.get("timeout_seconds")
        """How many seconds this execution may take."""
        self.last_error: Optional[str] = granted.get("last_error")
        """The error of the last failure."""
        self.has_inputs: bool = bool(granted.get("inputs"))
        """Whether it is a step of a flow that reads what the steps before it have produced."""
        self._read_inputs = read_inputs
        self._stop = threading.Event()
        self._stop_reason: Optional[str] = None
        self._progress: Optional[str] = None
        self._hear = hear

    def progress(self, text: str) -> None:
        """Reports how far the job is: a short text for people. Reports are sent once a second at most."""
        self._progress = cut(str(text))
        self._hear()

    def inputs(self) -> Inputs:
        """Reads what the steps before this one have produced.

        It asks the server, so an ``async`` handler says ``await asyncio.to_thread(job.inputs)``. Raises
        :class:`ApiError` if they cannot be read, :class:`Unavailable` if the server has been away for long.
        """
        if not self.has_inputs:
            return Inputs(None, None)
        answer = self._read_inputs(self)
        raw = answer.get("input_base64")
        value = answer.get("input") if raw is None else base64.b64decode(raw)
        return Inputs(value, answer.get("failure"))

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop."""
        return self._stop.is_set()

    @property
    def cancel_reason(self) -> Optional[str]:
        """Why the handler should stop: ``requested``, ``shutdown``, ``timeout`` or ``lease_lost``."""
        return self._stop_reason

    def wait_cancelled(self, seconds: Optional[float] = None) -> bool:
        """Waits until the handler should stop, at most so long: a pause that can be interrupted."""
        return self._stop.wait(seconds)

    def check(self) -> None:
        """Raises :class:`Cancelled` if the handler should stop."""
        if self._stop.is_set():
            raise Cancelled(self._stop_reason or "cancelled")

    def _cancel(self, reason: str) -> bool:
        """Tells the handler to stop; whether it had not been told so."""
        if self._stop.is_set() and reason != "lease_lost":
            return False
        self._stop_reason = reason
        self._stop.set()
        return True

    def __repr__(self) -> str:
        return f"Job({self.type} {self.id}, attempt {self.attempt})"


def _time(text: str) -> datetime:
    """A time as the server writes it: RFC 3339 in UTC, with a fraction."""
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.strptime(text, form).replace(tzinfo=timezone.utc)
