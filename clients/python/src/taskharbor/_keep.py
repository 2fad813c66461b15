"""The thread that keeps leases alive.

Each lease is extended when a third of its time has passed, and those that soon will be go in the same call. A
lease that the server refuses to extend is lost, and its handler is told to stop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ._error import ApiError, TaskHarborError
from ._held import Held
from ._http import Connection
from ._json import encode
from ._pace import backoff, log

if TYPE_CHECKING:
    from ._worker import Worker

_BATCH = 1_000
# Reports of progress are sent this often at most.
_REPORT_SECONDS = 1.0
# How long to wait when a store is busy with a job.
_BUSY_SECONDS = 1.0
_CALL_SECONDS = 10.0


def keep(worker: Worker) -> None:
    """Extends leases until the worker ends."""
    connection, failures, resume_at, reported_at = Connection(worker.settings.endpoint), 0, 0.0, 0.0
    while True:
        with worker.lock:
            due = _due(worker, resume_at, reported_at)
            if worker.is_ended:
                break
            leaving = worker.is_leaving
            for held in due:
                held.is_extending = True
        sent = time.monotonic()
        reports = [held.job._progress for held in due]
        body = encode(_request(worker, due, reports, leaving), "the call")
        remaining = min((held.expires_at - sent for held in due), default=_CALL_SECONDS)
        try:
            answers = connection.post_jobs("work/extend", body, len(due), max(0.5, min(remaining, _CALL_SECONDS)))
        except TaskHarborError as error:
            failures += 1
            resume_at = time.monotonic() + backoff(failures, min(5.0, worker.settings.heartbeat / 2))
            if failures == 1 or isinstance(error, ApiError):
                log.warning("leases cannot be extended: %s", error)
            with worker.lock:
                for held in due:
                    held.is_extending = False
            continue
        failures, resume_at = 0, 0.0
        if any(report is not None for report in reports):
            reported_at = sent
        with worker.lock:
            for held, report, answer in zip(due, reports, answers):
                _take(worker, held, report, answer, sent)
                if leaving and answer.get("error") is None:
                    held.has_left = True
    connection.close()


def _due(worker: Worker, resume_at: float, reported_at: float) -> List[Held]:
    """Waits until leases have to be extended, and answers them. The caller has the lock."""
    while not worker.is_ended:
        now = time.monotonic()
        # A job that has come back is held twice for a moment; only its newest lease can be alive.
        newest: Dict[str, Held] = {}
        for held in worker.held:
            known = newest.get(held.job.id)
            if not held.is_settling and (known is None or known.job.deliveries < held.job.deliveries):
                newest[held.job.id] = held
        times = {held: _time(worker, held, reported_at) for held in newest.values()}
        soon = now + worker.settings.heartbeat / 2
        first = max(min(times.values()), resume_at) if times else None
        if first is not None and first <= now:
            due = sorted((held for held in times if times[held] <= soon), key=lambda held: held.expires_at)
            return due[:_BATCH]
        worker.kept.wait(None if first is None else first - now)
    return []


def _time(worker: Worker, held: Held, reported_at: float) -> float:
    """When the lease is to be extended."""
    if worker.is_leaving and not held.has_left and held.is_running:
        return held.leave_at
    if held.job._progress is not None and held.is_running:
        return min(held.extend_at, reported_at + _REPORT_SECONDS)
    return held.extend_at


def _request(worker: Worker, due: List[Held], reports: List[Optional[str]], leaving: bool) -> Dict[str, Any]:
    jobs: List[Dict[str, Any]] = []
    for held, report in zip(due, reports):
        item: Dict[str, Any] = {"id": held.job.id, "lease": held.lease}
        if report is not None:
            item["progress"] = report
        jobs.append(item)
    request: Dict[str, Any] = {"lease_seconds": worker.settings.lease, "jobs": jobs}
    if leaving:
        # If the process is killed now, that says nothing about its jobs.
        request["leaving"] = True
    return request


def _take(worker: Worker, held: Held, report: Any, answer: Dict[str, Any], sent: float) -> None:
    """Takes the answer about one lease. The caller has the lock."""
    held.is_extending = False
    error = answer.get("error")
    if error is not None:
        if error.get("code") == "busy":
            held.extend_at = held.leave_at = sent + _BUSY_SECONDS
        elif held.outcome is None and not held.is_over:
            worker.lose(held, str(error.get("message")))
        else:
            # It has been settled meanwhile, or the settler will hear the same.
            held.extend_at = held.expires_at
        return
    held.lease = answer.get("lease") or held.lease
    held.expires_at = sent + worker.settings.lease
    held.extend_at = sent + worker.settings.heartbeat
    if held.job._progress is report:
        held.job._progress = None
    if answer.get("cancel") == "requested" and held.is_running:
        worker.tell_to_stop(held, "requested")
