"""The threads of a worker.

A reserver for each queue asks for as many jobs as slots are free, and waits at the server for them. Handlers
run in threads of a pool, ``async`` ones on one event loop. The keeper extends all leases in one call, the
settler records outcomes in batches, the timer notes deadlines, the announcer tells others that the worker is
there, and the supervisor shuts all of them down. They share one lock, which is never held during a call.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Set

from ._error import ApiError, TaskHarborError, Unavailable
from ._held import Handler, Held, Tally
from ._http import Connection, Endpoint
from ._job import Job
from ._keep import keep
from ._outcome import Outcome, failure, released, success, timed_out
from ._pace import backoff, log
from ._settle import settle

# What the server is asked within; a lease lives longer.
CALL_SECONDS = 10.0
_ANNOUNCE_SECONDS = 10.0
_FLUSH_SECONDS = 4.0
_LAST_CALL_SECONDS = 1.0
# No more is reserved while so many outcomes wait for a store in trouble.
_MAX_OUTCOMES = 1_000


@dataclass(frozen=True)
class Settings:
    """What was configured."""

    endpoint: Endpoint
    queues: Mapping[str, int]
    name: str
    version: Optional[str]
    lease: float
    grace: float
    cancel_wait: float
    poll: float
    max_attempts: Optional[int]
    timeout: Optional[float]

    @property
    def heartbeat(self) -> float:
        """After which time a lease is extended."""
        return self.lease / 3

    @property
    def margin(self) -> float:
        """How long before the end of a lease its handler is told to stop."""
        return min(max(self.lease / 10, 2.0), (self.lease - self.heartbeat) / 2)


class Worker:
    """A worker that runs in threads of its own."""

    def __init__(
        self, settings: Settings, handlers: Mapping[str, Handler], on_end: Optional[Callable[[], None]]
    ) -> None:
        self.settings = settings
        self.handlers = handlers
        self.lock = threading.Lock()
        self.slots = threading.Condition(self.lock)
        self.kept = threading.Condition(self.lock)
        self.outcomes = threading.Condition(self.lock)
        self.timed = threading.Condition(self.lock)
        self.idle = threading.Condition(self.lock)
        self.held: Set[Held] = set()
        self.busy: Dict[str, int] = {queue: 0 for queue in settings.queues}
        self.tallies: Dict[str, Tally] = {queue: Tally() for queue in settings.queues}
        self.is_leaving = False
        self._phase = "starting"
        self._is_quiet = threading.Event()
        self._grace_is_over = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._on_end = on_end
        self._polls: List[Connection] = []
        self._pool = _Pool()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._incarnation = os.urandom(8).hex()

    # Starting and stopping.

    def start(self) -> None:
        """Announces the worker and starts its threads. Raises :class:`ApiError` if the server refuses it."""
        try:
            self._announce(Connection(self.settings.endpoint))
        except Unavailable as error:
            log.warning("waiting for the server: %s", error)
        self._phase = "working"
        if any(handler.is_async for handler in self.handlers.values()):
            self._loop = asyncio.new_event_loop()
            self._spawn("async", self._loop.run_forever)
        for queue, slots in self.settings.queues.items():
            connection = Connection(self.settings.endpoint)
            self._polls.append(connection)
            self._spawn(f"reserve-{queue}", self._reserve, queue, slots, connection)
        self._spawn("keep", keep, self)
        self._spawn("settle", settle, self)
        self._spawn("timer", self._watch_time)
        self._spawn("announce", self._announce_often)
        self._spawn("supervise", self._supervise)
        log.info("worker %s serves %s", self.settings.name, ", ".join(self.settings.queues))

    def _spawn(self, name: str, work: Callable[..., object], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name=f"taskharbor-{name}", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Begins to shut down; :meth:`join` waits for the end."""
        self._stopping.set()

    def end_grace(self) -> None:
        """Tells handlers to stop now, if the worker is shutting down."""
        with self.lock:
            self._grace_is_over = True
            self.idle.notify_all()

    def has_ended(self) -> bool:
        """Whether the worker has ended."""
        return self._ended.is_set()

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits for the end of the worker, at most so long; whether it has ended."""
        return self._ended.wait(timeout)

    def wait_quiet(self, seconds: float) -> bool:
        """Waits so long, or until the worker reserves nothing more; whether it does not."""
        return self._is_quiet.wait(seconds)

    @property
    def is_ended(self) -> bool:
        """Whether the threads should end."""
        return self._phase == "ended"

    def _supervise(self) -> None:
        self._stopping.wait()
        settings = self.settings
        with self.lock:
            self._phase = "stopping"
            self.is_leaving = True
            self.slots.notify_all()
            self.kept.notify_all()
        self._is_quiet.set()
        log.info("shutting down: %d jobs have %g s to finish", self._running(), settings.grace)
        for connection in self._polls:
            connection.abort()
        self._wait_idle(settings.grace, lambda: self._grace_is_over or self._is_drained())
        with self.lock:
            stop_at = time.monotonic() + settings.cancel_wait
            for held in self.held:
                if held.is_running:
                    self._tell_to_stop(held, "shutdown", stop_at)
            self.timed.notify_all()
        self._wait_idle(settings.cancel_wait + 1, self._is_drained)
        self._wait_idle(_FLUSH_SECONDS, lambda: not self._polls and not any(not it.is_over for it in self.held))
        self._end()

    def _is_drained(self) -> bool:
        """Whether it is known of each job what becomes of it, and no more come."""
        return not self._polls and not any(held.is_running for held in self.held)

    def _running(self) -> int:
        return sum(held.is_running for held in self.held)

    def _wait_idle(self, seconds: float, is_done: Callable[[], bool]) -> None:
        with self.lock:
            self.idle.wait_for(is_done, seconds)

    def _end(self) -> None:
        with self.lock:
            self._phase = "ended"
            left = sum(not held.is_over for held in self.held)
            for condition in (self.slots, self.kept, self.outcomes, self.timed):
                condition.notify_all()
        if left:
            log.warning("%d jobs were left: they come back when their leases end", left)
        else:
            try:
                self._announce(Connection(self.settings.endpoint), _LAST_CALL_SECONDS)
            except TaskHarborError:
                pass
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._pool.end()
        log.info("worker %s has ended", self.settings.name)
        self._ended.set()
        if self._on_end is not None:
            self._on_end()

    # Reserving.

    def _reserve(self, queue: str, slots: int, connection: Connection) -> None:
        failures = 0
        try:
            while self._wait_for_slot(queue, slots):
                with self.lock:
                    free = slots - self.busy[queue]
                sent = time.monotonic()
                try:
                    answer = connection.post("work/reserve", self._request(queue, free), self.settings.poll + CALL_SECONDS)
                except TaskHarborError as error:
                    if self._phase != "working":
                        break
                    failures += 1
                    if failures == 1 or isinstance(error, ApiError):
                        log.warning("no jobs can be reserved from %s: %s", queue, error)
                    self._is_quiet.wait(backoff(failures))
                    continue
                if failures:
                    log.info("jobs of %s are reserved again", queue)
                failures = 0
                granted_at = sent + float(answer.get("granted_after_ms", 0)) / 1_000
                for granted in answer["jobs"]:
                    self._begin(granted, granted_at)
        finally:
            connection.close()
            with self.lock:
                self._polls.remove(connection)
                self.idle.notify_all()

    def _wait_for_slot(self, queue: str, slots: int) -> bool:
        """Waits until a job of the queue can run; ``False`` if the worker reserves no more."""
        with self.lock:
            while self._phase == "working":
                now = time.monotonic()
                alone_until = max((held.alone_until for held in self.held if held.is_running), default=0.0)
                waiting = sum(held.outcome is not None for held in self.held)
                if self.busy[queue] < slots and alone_until <= now and waiting < _MAX_OUTCOMES:
                    return True
                self.slots.wait(alone_until - now if alone_until > now else None)
            return False

    def _request(self, queue: str, free: int) -> Dict[str, Any]:
        settings = self.settings
        request: Dict[str, Any] = {
            "queues": {queue: free},
            "worker": settings.name,
            "lease_seconds": settings.lease,
            "wait_seconds": settings.poll,
            "types": [_type(name, handler) for name, handler in self.handlers.items()],
        }
        if settings.max_attempts is not None:
            request["max_attempts"] = settings.max_attempts
        if settings.timeout is not None:
            request["timeout_seconds"] = settings.timeout
        return request

    def _begin(self, granted: Mapping[str, Any], granted_at: float) -> None:
        """Starts a job, or releases it at once if the worker has begun to shut down."""
        job, now, settings = Job(granted, self._read_inputs), time.monotonic(), self.settings
        held = Held(
            job=job,
            handler=self.handlers[job.type],
            lease=granted["lease"],
            expires_at=granted_at + settings.lease,
            extend_at=granted_at + settings.heartbeat,
            deadline=None if job.timeout is None else now + job.timeout,
            alone_until=now + float(granted.get("alone_seconds") or 0),
            began_at=now,
        )
        job._news = self._hear
        with self.lock:
            self.held.add(held)
            if self._phase != "working":
                held.outcome, held.has_ended = {"release": {"reason": "unstarted"}}, True
                self.outcomes.notify()
                return
            self.busy[job.queue] += 1
            self.tallies[job.queue].begin(float(granted.get("waited_ms", 0)))
            self.kept.notify()
            self.timed.notify()
        if held.handler.is_async and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._run_async(held), self._loop)
        else:
            self._pool.run(lambda: self._run(held))

    def _read_inputs(self, id: str) -> Dict[str, Any]:
        """Reads the inputs of a job; an unavailable store is waited for, while the lease lives."""
        connection, failures = Connection(self.settings.endpoint), 0
        try:
            while True:
                try:
                    answer: Dict[str, Any] = connection.post("work/inputs", {"id": id}, CALL_SECONDS)
                    return answer
                except Unavailable:
                    failures += 1
                    if failures > 10:
                        raise
                time.sleep(backoff(failures))
        finally:
            connection.close()

    # Running.

    def _run(self, held: Held) -> None:
        try:
            outcome = success(held.handler.function(held.job))
        except BaseException as error:  # Whatever a handler raises is what becomes of its job.
            outcome = self._failed(held, error)
        self._ended_with(held, outcome)

    async def _run_async(self, held: Held) -> None:
        held.task = asyncio.current_task()
        try:
            # It may have been told to stop before it had a task to be cancelled.
            if held.job.cancelled:
                raise asyncio.CancelledError
            outcome = success(await held.handler.function(held.job))
        except BaseException as error:
            outcome = self._failed(held, error)
        self._ended_with(held, outcome)

    def _failed(self, held: Held, error: BaseException) -> Outcome:
        outcome = failure(error, held.job.cancel_reason)
        if "error" in outcome:
            log.info("%r has failed", held.job, exc_info=error)
        return outcome

    def _ended_with(self, held: Held, outcome: Outcome) -> None:
        """A handler has ended: its slot is free, and its outcome counts unless the job was given up."""
        with self.lock:
            held.has_ended = True
            self.busy[held.job.queue] -= 1
            if held.is_running:
                self._decide(held, outcome)
            self.slots.notify_all()
            self.idle.notify_all()

    def _decide(self, held: Held, outcome: Outcome) -> None:
        """Says what becomes of a job. The caller has the lock."""
        held.outcome = outcome
        self.tallies[held.job.queue].end((time.monotonic() - held.began_at) * 1_000, outcome)
        self.outcomes.notify()

    def tell_to_stop(self, held: Held, reason: str) -> None:
        """Tells a handler to stop; if it does not, its job is released. The caller has the lock."""
        self._tell_to_stop(held, reason, time.monotonic() + self.settings.cancel_wait)
        self.timed.notify()

    def _tell_to_stop(self, held: Held, reason: str, stop_at: Optional[float]) -> None:
        if not held.job._cancel(reason):
            return
        held.stop_at = stop_at
        if held.task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(held.task.cancel)

    def lose(self, held: Held, why: str) -> None:
        """The lease is lost: nothing is recorded, and the handler is told to stop. The caller has the lock."""
        if held.is_over:
            return
        log.warning("the lease of %r is lost: %s", held.job, why)
        self.tallies[held.job.queue].lost += 1
        self._tell_to_stop(held, "lease_lost", None)
        self.forget(held)

    def forget(self, held: Held) -> None:
        """Nothing more is to be done for a job. The caller has the lock."""
        held.is_over = True
        self.held.discard(held)
        self.slots.notify_all()
        self.idle.notify_all()

    def _watch_time(self) -> None:
        """Ends what takes too long: handlers with a timeout, those that do not stop, and those without a lease."""
        with self.lock:
            while not self.is_ended:
                now, margin = time.monotonic(), self.settings.margin
                for held in [it for it in self.held if it.is_running]:
                    if held.deadline is not None and held.deadline <= now:
                        # The thread may go on and keeps its slot; the job is tried again.
                        self._tell_to_stop(held, "timeout", None)
                        self._decide(held, timed_out())
                    elif held.stop_at is not None and held.stop_at <= now:
                        self._decide(held, released(held.job.cancel_reason or "shutdown"))
                    elif held.expires_at - margin <= now:
                        self.lose(held, "it could not be extended in time")
                self.idle.notify_all()
                nexts = [at for it in self.held if it.is_running for at in _times(it, margin)]
                self.timed.wait(max(min(nexts) - now, 0.001) if nexts else None)

    def _hear(self) -> None:
        with self.lock:
            self.kept.notify()

    # Announcing.

    def _announce_often(self) -> None:
        connection = Connection(self.settings.endpoint)
        while not self._ended.wait(_ANNOUNCE_SECONDS):
            try:
                self._announce(connection)
            except TaskHarborError as error:
                log.debug("the worker could not announce itself: %s", error)

    def _announce(self, connection: Connection, timeout: float = CALL_SECONDS / 2) -> None:
        """Tells others that the worker is there; when it has ended, that it is not."""
        settings, now = self.settings, time.monotonic()
        with self.lock:
            busy = [held.began_at for held in self.held if not held.has_ended]
            queues = [
                self.tallies[queue].to_json(queue, slots, self.busy[queue]) for queue, slots in settings.queues.items()
            ]
        info: Dict[str, Any] = {
            "library": "python 0.1.0",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "phase": self._phase,
            "wake_ups": True,
            "queues": queues,
            "types": sorted(self.handlers),
        }
        if settings.version is not None:
            info["version"] = settings.version
        if busy:
            info["oldest_secs"] = int(now - min(busy))
        valid = 0 if self.is_ended else 3 * _ANNOUNCE_SECONDS
        body = {"worker": settings.name, "incarnation": self._incarnation, "valid_seconds": valid, "info": info}
        connection.post("work/announce", body, timeout)


def _times(held: Held, margin: float) -> List[float]:
    """When something has to be done about a job that runs."""
    ends = (held.deadline, held.stop_at, held.expires_at - margin)
    return [at for at in ends if at is not None]


def _type(name: str, handler: Handler) -> Any:
    options: Dict[str, Any] = {"type": name}
    if handler.max_attempts is not None:
        options["max_attempts"] = handler.max_attempts
    if handler.timeout is not None:
        options["timeout_seconds"] = handler.timeout
    return options if len(options) > 1 else name


class _Pool:
    """Threads that run handlers: as many as have ever run at once."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._work: Deque[Callable[[], None]] = deque()
        self._idle = 0
        self._count = 0
        self._is_ended = False

    def run(self, work: Callable[[], None]) -> None:
        """Runs ``work`` at once, in a thread that is idle or new."""
        with self._ready:
            self._work.append(work)
            if self._idle >= len(self._work):
                self._ready.notify()
                return
            self._count += 1
            name = f"taskharbor-handler-{self._count}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._ready:
                self._idle += 1
                while not self._work and not self._is_ended:
                    self._ready.wait()
                self._idle -= 1
                if not self._work:
                    return
                work = self._work.popleft()
            work()

    def end(self) -> None:
        """Ends the threads that are idle; the others end after their work."""
        with self._ready:
            self._is_ended = True
            self._ready.notify_all()
