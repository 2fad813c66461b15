"""From what a handler returned or raised to what is recorded of its job."""

from __future__ import annotations

import asyncio
import base64
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ._error import Discard, Retry, Snooze, TaskHarborError, Throttled
from ._json import encode

MAX_MESSAGE_BYTES = 8 * 1024
# What the server takes: a hundred years, and a day for a lane or queue.
_MAX_SECONDS = 100.0 * 366 * 86_400
_MAX_HOLD_SECONDS = 86_400.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: one of ``ok``, ``error``, ``timeout``, ``snooze``, ``throttled``, ``release``."""

    kind: str
    text: str
    """What is said about it, as JSON."""

    @property
    def is_failure(self) -> bool:
        """Whether an attempt has failed."""
        return self.kind in ("error", "timeout")


def _outcome(kind: str, **said: Any) -> Outcome:
    return Outcome(kind, encode(said, "the outcome"))


def success(output: Any) -> Outcome:
    """The outcome of a handler that returned ``output``."""
    if output is None:
        return Outcome("ok", "{}")
    try:
        if isinstance(output, (bytes, bytearray, memoryview)):
            said = {"output_base64": base64.b64encode(output).decode()}
        else:
            said = {"output": output}
        return Outcome("ok", encode(said, "the output"))
    except TaskHarborError as error:
        # Running it again would come to the same.
        return permanent(str(error))


def permanent(message: str) -> Outcome:
    """The outcome of a job that is not tried again."""
    return _outcome("error", message=cut(message), retryable=False)


def failure(error: BaseException, cancel_reason: Optional[str]) -> Outcome:
    """The outcome of a handler that raised ``error``, and had been told to stop for this reason."""
    if isinstance(error, Snooze):
        return _pause("snooze", error.seconds)
    if isinstance(error, Throttled):
        return _pause("throttled", error.seconds)
    if isinstance(error, Discard):
        return permanent(_text_of(error))
    # It was told to stop, so that it failed says nothing about the job.
    if cancel_reason in ("requested", "shutdown"):
        return released(cancel_reason)
    if isinstance(error, Retry):
        said: Dict[str, Any] = {"message": cut(_text_of(error))}
        if error.after is not None:
            after = _seconds(error.after)
            if after is None:
                return permanent(f"Retry was raised with {error.after!r} seconds: use 0 or more")
            said["retry_after_seconds"] = after
        return _outcome("error", **said)
    return _outcome("error", message=cut(_chain(error)))


def _pause(kind: str, given: Any) -> Outcome:
    most = _MAX_HOLD_SECONDS if kind == "throttled" else _MAX_SECONDS
    seconds = _seconds(given, most)
    if seconds is None:
        return permanent(f"{kind.capitalize()} was raised with {given!r} seconds: use 0 to {most:.0f}")
    return _outcome(kind, seconds=seconds)


def _seconds(given: Any, most: float = _MAX_SECONDS) -> Optional[float]:
    """A time to wait; ``None`` if it is none."""
    try:
        seconds = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= most else None


def released(reason: str) -> Outcome:
    """The outcome of a job that has no result: ``requested``, ``shutdown`` or ``unstarted``."""
    return _outcome("release", reason=reason)


def timed_out() -> Outcome:
    """The outcome of a job that took longer than it may."""
    return Outcome("timeout", "{}")


def _chain(error: BaseException) -> str:
    """The error and its causes, on one line each."""
    parts, seen = [], set()
    current: Optional[BaseException] = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        name = "cancelled" if isinstance(current, asyncio.CancelledError) else type(current).__name__
        text = _text_of(current)
        parts.append(f"{name}: {text}" if text else name)
        current = current.__cause__
    return ": ".join(parts)


def _text_of(error: BaseException) -> str:
    """What an error says, unless it fails at that."""
    try:
        return str(error)
    except Exception:
        return "(its text cannot be made)"


def cut(text: str) -> str:
    """What the store keeps of a text; what is not UTF-8 is replaced."""
    return text.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore")
