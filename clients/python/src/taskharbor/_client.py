"""Enqueueing jobs."""

from __future__ import annotations

import base64
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ._error import ApiError, TaskHarborError, Unavailable
from ._http import Connection, Endpoint
from ._json import encode

# What goes into one call: the server takes a thousand jobs and 32 MiB.
_MAX_JOBS = 1_000
_MAX_CHARS = 4 * 1024 * 1024


@dataclass(frozen=True)
class Enqueued:
    """A job that is stored."""

    id: str
    """Identifies the job."""
    existed: bool
    """Whether a job of the same id or key was stored before; then that one is named, and none was added."""


@dataclass(frozen=True)
class NewJob:
    """A job to be enqueued with others, by :meth:`Client.enqueue_many`."""

    type: str
    """What kind of work it is."""
    payload: Any = None
    """What the handler receives: JSON, or ``bytes`` that are passed on as they are."""
    queue: Optional[str] = None
    """The queue it waits in. Defaults to ``default``."""
    id: Optional[str] = None
    """Its id. Defaults to a new one; enqueueing an id again changes nothing."""
    idempotency_key: Optional[str] = None
    """Keeps a second job with this key from being stored in the same queue."""
    run_at: Optional[datetime] = None
    """Not before this time; it must have a time zone."""
    delay: Optional[float] = None
    """Not before this many seconds have passed."""
    priority: Optional[int] = None
    """Higher runs first. Defaults to 0."""
    lane: Optional[str] = None
    """The lane of its queue: a tenant, host or account."""
    max_attempts: Optional[int] = None
    """How many executions may fail. Defaults to what the worker says."""
    timeout: Optional[float] = None
    """How many seconds one execution may take. Defaults to what the worker says."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Small texts that travel with the job."""

    def to_json(self) -> Dict[str, Any]:
        """As the server takes it."""
        job: Dict[str, Any] = {"type": self.type}
        if isinstance(self.payload, (bytes, bytearray, memoryview)):
            job["payload_base64"] = base64.b64encode(self.payload).decode()
        else:
            job["payload"] = self.payload
        if self.run_at is not None:
            job["run_at"] = _timestamp(self.run_at)
        if self.headers:
            job["headers"] = dict(self.headers)
        given = {
            "queue": self.queue,
            "id": self.id,
            "idempotency_key": self.idempotency_key,
            "delay_seconds": self.delay,
            "priority": self.priority,
            "lane": self.lane,
            "max_attempts": self.max_attempts,
            "timeout_seconds": self.timeout,
        }
        job.update({name: value for name, value in given.items() if value is not None})
        return job


def _timestamp(at: datetime) -> str:
    if at.tzinfo is None:
        raise TaskHarborError("run_at has no time zone: use datetime.now(timezone.utc), or delay")
    try:
        return at.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError as error:
        raise TaskHarborError(f"run_at is out of range: {at}") from error


class Client:
    """Enqueues jobs. One client serves all threads of a program.

    ``token`` and ``store`` can be parameters of the URL, too: ``https://host/?store=eu&token=…``. The token
    defaults to the environment variable ``TASKHARBOR_TOKEN``. A call that the server did not answer is
    repeated until ``timeout`` seconds have passed: each job has an id of its own, so no job is stored twice.
    A process that is forked may go on using it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Optional[str] = None,
        store: Optional[str] = None,
        timeout: float = 10.0,
    ) -> None:
        self._endpoint = Endpoint(url, token, store)
        self._timeout = timeout
        self._own = threading.local()

    def enqueue(
        self,
        type: str,
        payload: Any = None,
        *,
        queue: Optional[str] = None,
        id: Optional[str] = None,
        idempotency_key: Optional[str] = None,
        run_at: Optional[datetime] = None,
        delay: Optional[float] = None,
        priority: Optional[int] = None,
        lane: Optional[str] = None,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Enqueued:
        """Stores a job. :class:`NewJob` says what the arguments mean.

        Raises :class:`ApiError` if the job is refused, :class:`Unavailable` if it is unknown whether it is
        stored, :class:`TaskHarborError` if it cannot be written as JSON.
        """
        job = NewJob(
            type,
            payload,
            queue=queue,
            id=id,
            idempotency_key=idempotency_key,
            run_at=run_at,
            delay=delay,
            priority=priority,
            lane=lane,
            max_attempts=max_attempts,
            timeout=timeout,
            headers=headers or {},
        )
        return self.enqueue_many([job])[0]

    def enqueue_many(self, jobs: Sequence[NewJob]) -> List[Enqueued]:
        """Stores jobs, up to a thousand in one call, and answers them in their order.

        Each is stored by itself. Raises :class:`ApiError` for the first that is refused; the others of its
        call are stored.
        """
        # All are written before the first is sent, so that one that is not JSON stores nothing.
        items = [_written(job) for job in jobs]
        stored: List[Enqueued] = []
        for batch in _batches(items):
            body = '{"jobs":[' + ",".join(item.text for item in batch) + "]}"
            answers = self._call("work/enqueue", body, len(batch))
            stored.extend(map(_enqueued, batch, answers))
        return stored

    def _call(self, path: str, body: str, count: int) -> List[Dict[str, Any]]:
        end = time.monotonic() + self._timeout
        pause = 0.05
        while True:
            left = end - time.monotonic()
            try:
                return self._connection().post_jobs(path, body, count, max(left, 0.05))
            except Unavailable:
                if time.monotonic() + pause >= end:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _connection(self) -> Connection:
        connection: Optional[Connection] = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = Connection(self._endpoint)
        return connection

    def close(self) -> None:
        """Closes the connection of this thread; a later call opens another."""
        self._connection().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Written:
    """A job as it is sent."""

    text: str
    new_id: Optional[str]
    """The id that it was given here, if it had none."""


def _written(job: NewJob) -> _Written:
    item, new_id = job.to_json(), None
    if "id" not in item:
        # A job that has an id can be sent again when an answer was lost.
        item["id"] = new_id = _new_id()
    return _Written(encode(item, f"the job {job.type!r}"), new_id)


def _batches(items: Sequence[_Written]) -> Iterator[List[_Written]]:
    """Parts that fit into one call each."""
    batch: List[_Written] = []
    chars = 0
    for item in items:
        if batch and (len(batch) == _MAX_JOBS or chars + len(item.text) > _MAX_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(item)
        chars += len(item.text)
    if batch:
        yield batch


def _enqueued(item: _Written, answer: Dict[str, Any]) -> Enqueued:
    error = answer.get("error")
    if error is not None:
        raise ApiError(200, str(error["code"]), "the job was refused", str(error["message"]))
    id = str(answer["id"])
    # A new id that is stored already was stored by an earlier sending of this call.
    return Enqueued(id, bool(answer["existed"]) and id != item.new_id)


def _new_id() -> str:
    """A UUID of version 7: ids sort by the time at which they were made."""
    millis = int(time.time() * 1_000) & ((1 << 48) - 1)
    bits = int.from_bytes(os.urandom(10), "big")
    low = 0b10 << 62 | bits & ((1 << 62) - 1)
    number = millis << 80 | 0x7 << 76 | (bits >> 62 & 0xFFF) << 64 | low
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
