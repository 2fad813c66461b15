"""From what a handler returned or raised to what is recorded of its job."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Dict, Optional

from ._error import Discard, Retry, Snooze, Throttled

Outcome = Dict[str, Any]
_MAX_MESSAGE_BYTES = 8 * 1024


def success(output: Any) -> Outcome:
    """The outcome of a handler that returned ``output``."""
    if output is None:
        return {"ok": {}}
    if isinstance(output, (bytes, bytearray, memoryview)):
        return {"ok": {"output_base64": base64.b64encode(output).decode()}}
    try:
        json.dumps(output, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        # Running it again would come to the same.
        return permanent(f"the output cannot be written as JSON: {error}")
    return {"ok": {"output": output}}


def permanent(message: str) -> Outcome:
    """The outcome of a job that is not tried again."""
    return {"error": {"message": _cut(message), "retryable": False}}


def failure(error: BaseException, cancel_reason: Optional[str]) -> Outcome:
    """The outcome of a handler that raised ``error``, and had been told to stop for this reason."""
    if isinstance(error, Snooze):
        return {"snooze": {"seconds": error.seconds}}
    if isinstance(error, Throttled):
        return {"throttled": {"seconds": error.seconds}}
    if isinstance(error, Discard):
        return permanent(str(error))
    # It was told to stop, so that it failed says nothing about the job.
    if cancel_reason in ("requested", "shutdown"):
        return released(cancel_reason)
    if isinstance(error, Retry):
        told: Dict[str, Any] = {"message": _cut(str(error))}
        if error.after is not None:
            told["retry_after_seconds"] = error.after
        return {"error": told}
    return {"error": {"message": _cut(_text(error))}}


def released(reason: str) -> Outcome:
    """The outcome of a job that was stopped: ``requested`` or ``shutdown``."""
    return {"release": {"reason": reason}}


def timed_out() -> Outcome:
    """The outcome of a job that took longer than it may."""
    return {"timeout": {}}


def size(outcome: Outcome) -> int:
    """About how many bytes it takes in a call."""
    return len(json.dumps(outcome, ensure_ascii=False).encode("utf-8", "replace"))


def _text(error: BaseException) -> str:
    """The error and its causes, on one line each."""
    parts, seen = [], set()
    current: Optional[BaseException] = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        name = "cancelled" if isinstance(current, asyncio.CancelledError) else type(current).__name__
        text = str(current)
        parts.append(f"{name}: {text}" if text else name)
        current = current.__cause__
    return ": ".join(parts)


def _cut(text: str) -> str:
    """What the store keeps of a text; what is not UTF-8 is replaced."""
    return text.encode("utf-8", "replace")[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore")
