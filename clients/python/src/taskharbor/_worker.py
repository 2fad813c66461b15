"""The threads of a worker.

A reserver for each queue asks for as many jobs as slots are free, and waits at the server for them. Handlers
run in threads of a pool, ``async`` ones on one event loop. The keeper extends all leases in one call, the
settler records outcomes in batches, the timer notes deadlines, the announcer tells others that the worker is
there, and the supervisor shuts all of them down. They share one lock, which is never held during a call.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from ._announce import announce, announce_often
from ._error import TaskHarborError, Unavailable
from ._held import Backoff, Handler, Held, Tally
from ._http import Connection, Endpoint
from ._keep import keep
from ._outcome import Outcome, failure, released, success, timed_out
from ._pace import log
from ._pool import Pool
from ._reserve import reserve
from ._settle import settle

# With the defaults for handlers, 15 s and 5 s, a shutdown ends within 25 s.
_POLL_SECONDS = 2.0
_STOP_SECONDS = 1.0
_FLUSH_SECONDS = 2.5
_LAST_CALL_SECONDS = 1.0


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
    backoff: Optional[Backoff]
    crash_limit: Optional[int]

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
        self.phase = "starting"
        self._is_quiet = threading.Event()
        self._grace_is_over = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._on_end = on_end
        self.polls: List[Connection] = []
        self._pool = Pool()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self.incarnation = os.urandom(8).hex()

    # Starting and stopping.

    def start(self) -> None:
        """Announces the worker and starts its threads. Raises :class:`ApiError` if the server refuses it."""
        connection = Connection(self.settings.endpoint)
        try:
            announce(self, connection)
        except Unavailable as error:
            log.warning("waiting for the server: %s", error)
        finally:
            connection.close()
        self.phase = "working"
        if any(handler.is_async for handler in self.handlers.values()):
            self._loop = asyncio.new_event_loop()
            self._spawn("async", _serve_loop, self._loop)
        for queue, slots in self.settings.queues.items():
            connection = Connection(self.settings.endpoint)
            self.polls.append(connection)
            self._spawn(f"reserve-{queue}", reserve, self, queue, slots, connection)
        self._spawn("keep", keep, self)
        self._spawn("settle", settle, self)
        self._spawn("timer", self._watch_time)
        self._spawn("announce", announce_often, self)
        self._spawn("supervise", self._supervise)
        log.info("worker %s serves %s", self.settings.name, ", ".join(self.settings.queues))

    def _spawn(self, name: str, work: Callable[..., object], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name=f"taskharbor-{name}", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Begins to shut down; :meth:`join` waits for the end."""
        self._stopping.set()

    def is_stopping(self) -> bool:
        """Whether it has begun to shut down."""
        return self._stopping.is_set()

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
        return self.phase == "ended"

    def _supervise(self) -> None:
        self._stopping.wait()
        settings = self.settings
        with self.lock:
            self.phase = "stopping"
            self.is_leaving = True
            running = sum(held.is_running for held in self.held)
            self.slots.notify_all()
            self.kept.notify_all()
        self._is_quiet.set()
        log.info("shutting down: %d jobs have %g s to finish", running, settings.grace)
        ends_at = time.monotonic() + settings.grace
        for connection in list(self.polls):
            connection.abort()
        self._wait_idle(min(settings.grace, _POLL_SECONDS), lambda: self._grace_is_over or not self.polls)
        for connection in list(self.polls):
            # Something between here and the server does not pass on that no more is sent.
            connection.abort(is_patient=False)
        self._wait_idle(ends_at - time.monotonic(), lambda: self._grace_is_over or self._is_drained())
        with self.lock:
            stop_at = time.monotonic() + settings.cancel_wait
            for held in self.held:
                if held.is_running:
                    self._tell_to_stop(held, "shutdown", stop_at)
            self.timed.notify_all()
        self._wait_idle(settings.cancel_wait + _STOP_SECONDS, self._is_drained)
        self._wait_idle(_FLUSH_SECONDS, lambda: not self.polls and not any(not it.is_over for it in self.held))
        self._end()

    def _is_drained(self) -> bool:
        """Whether the outcome of each job is decided, and no more jobs come."""
        return not self.polls and not any(held.is_running for held in self.held)

    def _wait_idle(self, seconds: float, is_done: Callable[[], bool]) -> None:
        with self.lock:
            self.idle.wait_for(is_done, seconds)

    def _end(self) -> None:
        with self.lock:
            self.phase = "ended"
            left = sum(not held.is_over for held in self.held)
            for condition in (self.slots, self.kept, self.outcomes, self.timed):
                condition.notify_all()
        if left:
            log.warning("%d jobs were left: they come back when their leases end", left)
        else:
            connection = Connection(self.settings.endpoint)
            try:
                announce(self, connection, _LAST_CALL_SECONDS)
            except TaskHarborError:
                # The announcement ends by itself soon.
                pass
            finally:
                connection.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._pool.end()
        log.info("worker %s has ended", self.settings.name)
        if self._on_end is not None:
            self._on_end()
        self._ended.set()

    # Running.

    def alone_until(self) -> float:
        """Until when a job runs beside which nothing may be reserved. The caller has the lock."""
        return max((held.alone_until for held in self.held if held.is_running), default=0.0)

    def is_alone(self, granted_at: float) -> bool:
        """Whether such a job was granted by an earlier answer and runs. The caller has the lock."""
        now = time.monotonic()
        return any(it.is_running and it.alone_until > now and it.granted_at < granted_at for it in self.held)

    def release_unstarted(self, held: Held) -> None:
        """Releases a job that was not started. The caller has the lock."""
        held.outcome, held.has_ended = released("unstarted"), True
        self.outcomes.notify()

    def run(self, held: Held) -> None:
        """Starts the handler of a job. Raises :class:`RuntimeError` if there are no more threads."""
        if held.handler.is_async and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._run_async(held), self._loop)
        else:
            self._pool.run(lambda: self._run(held))

    def _run(self, held: Held) -> None:
        try:
            outcome = success(held.handler.function(held.job))
        except BaseException as error:  # Every exception of a handler decides about its job.
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
        if outcome.kind == "error":
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
        """Decides the outcome of a job. The caller has the lock."""
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

    def hear(self) -> None:
        """A job has reported its progress."""
        with self.lock:
            self.kept.notify()


def _times(held: Held, margin: float) -> List[float]:
    """When something has to be done about a job that runs."""
    ends = (held.deadline, held.stop_at, held.expires_at - margin)
    return [at for at in ends if at is not None]


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Runs ``async`` handlers until the worker ends."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # One that does not stop goes on in no loop; closing it would only complain.
    if not asyncio.all_tasks(loop):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
