"""The threads that reserve jobs, one for each queue.

Each asks for as many jobs as slots are free, and waits at the server for them. A lease counts from the moment
at which the call was sent, so it is never believed to last longer than it does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Mapping

from ._error import ApiError, TaskHarborError, Unavailable
from ._held import Handler, Held
from ._http import Connection
from ._job import Job
from ._json import encode
from ._outcome import released
from ._pace import backoff, log

if TYPE_CHECKING:
    from ._worker import Worker

_CALL_SECONDS = 10.0
# No more is reserved while this many outcomes wait for a store in trouble.
_MAX_OUTCOMES = 1_000
# After this many failures in a row the inputs of a job are given up.
_MAX_INPUT_FAILURES = 10
# What the server takes.
MAX_SLOTS = 1_000


def reserve(worker: Worker, queue: str, slots: int, connection: Connection) -> None:
    """Reserves jobs of a queue until the worker begins to shut down."""
    failures = 0
    try:
        while _wait_for_slot(worker, queue, slots):
            with worker.lock:
                free = min(slots - worker.busy[queue], MAX_SLOTS)
            try:
                _reserve_once(worker, queue, free, connection)
            except (TaskHarborError, AttributeError, KeyError, TypeError, ValueError) as error:
                if worker.phase != "working":
                    break
                failures += 1
                if failures == 1 or isinstance(error, ApiError):
                    log.warning("no jobs can be reserved from %s: %s", queue, error)
                worker.wait_quiet(backoff(failures))
                continue
            if failures:
                log.info("jobs of %s are reserved again", queue)
            failures = 0
    finally:
        connection.close()
        with worker.lock:
            worker.polls.remove(connection)
            worker.idle.notify_all()


def _reserve_once(worker: Worker, queue: str, free: int, connection: Connection) -> None:
    """Reserves jobs and starts them. Raises if a part of the answer cannot be read, after starting the other
    jobs. The leases of the unreadable ones end, and after several times the server dead-letters them.
    """
    sent, wrong = time.monotonic(), None
    call_seconds = worker.settings.poll + _CALL_SECONDS
    answer = connection.post("work/reserve", _request(worker, queue, free), call_seconds)
    granted_at = sent + float(answer.get("granted_after_ms", 0)) / 1_000
    for granted in answer["jobs"]:
        try:
            _begin(worker, granted, granted_at)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            wrong = error
    if wrong is not None:
        raise wrong


def _wait_for_slot(worker: Worker, queue: str, slots: int) -> bool:
    """Waits until a job of the queue can run; ``False`` if the worker reserves no more."""
    with worker.lock:
        while worker.phase == "working":
            now, alone_until = time.monotonic(), worker.alone_until()
            waiting = sum(held.outcome is not None for held in worker.held)
            if worker.busy[queue] < slots and alone_until <= now and waiting < _MAX_OUTCOMES:
                return True
            worker.slots.wait(alone_until - now if alone_until > now else None)
        return False


def _request(worker: Worker, queue: str, free: int) -> str:
    settings = worker.settings
    request: Dict[str, Any] = {
        "queues": {queue: free},
        "worker": settings.name,
        "lease_seconds": settings.lease,
        "wait_seconds": settings.poll,
        "types": [_type(name, handler) for name, handler in worker.handlers.items()],
    }
    if settings.max_attempts is not None:
        request["max_attempts"] = settings.max_attempts
    if settings.timeout is not None:
        request["timeout_seconds"] = settings.timeout
    if settings.backoff is not None:
        request["retry"] = settings.backoff.to_json()
    if settings.crash_limit is not None:
        request["crash_limit"] = settings.crash_limit
    return encode(request, "the call")


def _type(name: str, handler: Handler) -> Any:
    options: Dict[str, Any] = {"type": name}
    if handler.max_attempts is not None:
        options["max_attempts"] = handler.max_attempts
    if handler.timeout is not None:
        options["timeout_seconds"] = handler.timeout
    return options if len(options) > 1 else name


def _begin(worker: Worker, granted: Mapping[str, Any], granted_at: float) -> None:
    """Starts a job, or releases it if the worker may not start it any more."""
    job = Job(granted, lambda _job: _read_inputs(worker, held), worker.hear)
    now, settings = time.monotonic(), worker.settings
    held = Held(
        job=job,
        handler=worker.handlers[job.type],
        lease=granted["lease"],
        expires_at=granted_at + settings.lease,
        extend_at=granted_at + settings.heartbeat,
        deadline=None if job.timeout is None else now + job.timeout,
        alone_until=now + float(granted.get("alone_seconds") or 0),
        granted_at=granted_at,
        began_at=now,
    )
    with worker.lock:
        # It may have been on its way when a job began that has to run alone.
        is_late = worker.phase != "working" or worker.is_alone(granted_at)
        worker.held.add(held)
        if is_late:
            worker.release_unstarted(held)
            return
        worker.busy[job.queue] += 1
        worker.tallies[job.queue].begin(float(granted.get("waited_ms", 0)))
        worker.kept.notify()
        worker.timed.notify()
    try:
        worker.run(held)
    except RuntimeError as error:
        log.error("%r cannot be started: %s", job, error)
        with worker.lock:
            worker.busy[job.queue] -= 1
            worker.release_unstarted(held)


def _read_inputs(worker: Worker, held: Held) -> Dict[str, Any]:
    """Reads the inputs of a job; an unavailable store is waited for, unless the job should stop."""
    job, connection, failures = held.job, Connection(worker.settings.endpoint), 0
    try:
        while True:
            with worker.lock:
                body = encode({"id": job.id, "lease": held.lease}, "the call")
            try:
                return connection.post("work/inputs", body, _CALL_SECONDS)
            except Unavailable:
                failures += 1
                if failures > _MAX_INPUT_FAILURES or job.wait_cancelled(backoff(failures)):
                    raise
    finally:
        connection.close()
