"""The thread that records outcomes.

Outcomes that arrive while a call is in flight are batched in the next one. A batch that fails is sent again
while the lease lives. After a call that the server refused as a whole, or failed to answer because of an error of
its own, each outcome is sent alone, so that one cannot hold up the others. Only a refusal changes an outcome.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List

from ._error import ApiError, TaskHarborError, Unavailable
from ._held import Held
from ._http import Connection
from ._json import encode
from ._outcome import permanent
from ._pace import backoff, log

if TYPE_CHECKING:
    from ._worker import Worker

_BATCH = 500
_BATCH_CHARS = 4 * 1024 * 1024
_MAX_PAUSE = 1.0
_CALL_SECONDS = 10.0
# The server waits a second more for each of these parts of a body.
_BYTES_PER_SECOND = 256 * 1024
# What is refused for who sends it, and not for what it says.
_NOT_ITS_FAULT = frozenset((401, 403, 404))
# The server itself has failed, perhaps on one of the outcomes.
_SERVER_ERROR = 500


def settle(worker: Worker) -> None:
    """Records outcomes until the worker ends."""
    connection, failures, resume_at = Connection(worker.settings.endpoint), 0, 0.0
    while True:
        with worker.lock:
            batch = _batch(worker, resume_at)
            if not batch:
                break
            leases = [held.lease for held in batch]
        body = '{"jobs":[' + ",".join(map(_item, batch, leases)) + "]}"
        remaining = min(held.expires_at for held in batch) - time.monotonic()
        seconds = max(0.5, min(remaining, call_seconds(body)))
        try:
            answers = connection.post_jobs("work/settle", body, len(batch), seconds)
        except TaskHarborError as error:
            if failures == 0:
                log.warning("outcomes cannot be recorded: %s", error)
            is_away = isinstance(error, Unavailable) or (isinstance(error, ApiError) and error.status in _NOT_ITS_FAULT)
            if is_away:
                failures += 1
                resume_at = time.monotonic() + backoff(failures, _MAX_PAUSE)
            with worker.lock:
                for held in batch:
                    held.is_settling = False
                    held.is_unanswered = held.is_unanswered or is_away
                    if isinstance(error, Unavailable) and error.status == _SERVER_ERROR:
                        held.refusals = max(held.refusals, 1)
                        held.resume_at = time.monotonic() + _MAX_PAUSE
                    elif not is_away:
                        _retry_individually(worker, held, error, was_alone=len(batch) == 1)
                # Their leases may be extended again.
                worker.kept.notify()
            continue
        failures, resume_at = 0, 0.0
        with worker.lock:
            for held, lease, answer in zip(batch, leases, answers):
                held.is_settling = False
                held.is_unanswered = held.is_unanswered or connection.was_repeated
                _take(worker, held, lease, answer)
            worker.kept.notify()
    connection.close()


def call_seconds(body: str) -> float:
    """How long a call may take: large outcomes take longer to send."""
    return _CALL_SECONDS + len(body.encode()) / _BYTES_PER_SECOND


def _item(held: Held, lease: str) -> str:
    item = encode({"id": held.job.id, "lease": lease}, "the lease")
    if held.outcome is None:
        return item
    return f'{item[:-1]},"{held.outcome.kind}":{held.outcome.text}}}'


def _batch(worker: Worker, resume_at: float) -> List[Held]:
    """Waits for outcomes, and answers some to be sent; none if the worker ends. The caller has the lock."""
    while not worker.is_ended:
        now = time.monotonic()
        waiting = [held for held in worker.held if held.outcome is not None]
        for held in [it for it in waiting if it.expires_at <= now]:
            worker.lose(held, "its outcome could not be recorded in time")
            waiting.remove(held)
        times = {held: max(held.resume_at, resume_at) for held in waiting}
        ready = [held for held in waiting if times[held] <= now]
        if ready:
            return _take_batch(ready)
        nexts = [min(times[held], held.expires_at) for held in waiting]
        worker.outcomes.wait(max(min(nexts) - now, 0.001) if nexts else None)
    return []


def _take_batch(ready: List[Held]) -> List[Held]:
    """As many as go into one call; one that was refused goes alone."""
    batch: List[Held] = []
    total, ids = 0, set()
    for held in sorted(ready, key=lambda it: (it.refusals, it.expires_at)):
        is_alone = held.refusals > 0
        total += len(held.outcome.text) if held.outcome is not None else 0
        if batch and (is_alone or total > _BATCH_CHARS):
            break
        if held.job.id not in ids:
            ids.add(held.job.id)
            held.is_settling = True
            batch.append(held)
        if is_alone or len(batch) == _BATCH:
            break
    return batch


def _retry_individually(worker: Worker, held: Held, error: TaskHarborError, was_alone: bool) -> None:
    """The server refuses the call. Alone and refused again, the outcome becomes a failure, then is given up."""
    held.refusals += 1
    held.resume_at = time.monotonic() + backoff(held.refusals, _MAX_PAUSE)
    if was_alone and held.refusals > 2:
        worker.lose(held, f"its outcome is refused: {error}")
    elif was_alone:
        held.refusals = 2
        held.outcome = permanent(f"the server refuses the outcome: {error}")


def _take(worker: Worker, held: Held, lease: str, answer: Dict[str, Any]) -> None:
    """Takes the answer about one outcome, which was sent with this lease. The caller has the lock."""
    error, outcome = answer.get("error"), held.outcome
    if error is None:
        if outcome is not None:
            worker.tallies[held.job.queue].settle(outcome, str(answer.get("state")))
        worker.forget(held)
    elif error.get("code") == "busy" or held.is_extending:
        held.resume_at = time.monotonic() + backoff(held.refusals + 1, _MAX_PAUSE)
    elif error.get("code") != "lease_lost":
        held_error = ApiError(200, str(error.get("code")), "an outcome is refused", str(error.get("message")))
        _retry_individually(worker, held, held_error, was_alone=True)
    elif held.lease != lease:
        # The lease was extended meanwhile and has changed: the outcome is sent again with the new one.
        return
    elif held.is_unanswered:
        # An earlier call has arrived, so the job is not inflight any more; or its lease has been over meanwhile.
        worker.forget(held)
    else:
        worker.lose(held, str(error.get("message")))
