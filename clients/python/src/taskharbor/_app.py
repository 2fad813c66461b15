"""Workers: reserving jobs, running their handlers, recording what became of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar, Union

from ._client import Client, Enqueued
from ._error import TaskHarborError
from ._held import Handler
from ._http import Endpoint
from ._job import Job
from ._worker import Settings, Worker

F = TypeVar("F", bound=Callable[[Job], Any])


class App:
    """A worker of a TaskHarbor server, with its handlers.

    ``queues`` says how many handlers of a queue run at once. The other settings have defaults that suit
    most programs:

    - ``token``: defaults to the environment variable ``TASKHARBOR_TOKEN``.
    - ``store``: which store of the server. Defaults to its first.
    - ``name``: under which leases are held. Defaults to host and process.
    - ``version``: of your program, for people who look at the workers.
    - ``lease``: so many seconds after its last sign of life another worker gets a job. Defaults to 60.
    - ``grace``: so many seconds handlers may go on when the worker shuts down. Defaults to 15; five more
      when they are told to stop.
    - ``max_attempts``, ``timeout``: for jobs that bring none of their own, and whose type has none.
    """

    def __init__(
        self,
        url: str,
        *,
        queues: Mapping[str, int],
        token: Optional[str] = None,
        store: Optional[str] = None,
        name: Optional[str] = None,
        version: Optional[str] = None,
        lease: float = 60.0,
        grace: float = 15.0,
        cancel_wait: float = 5.0,
        poll: float = 20.0,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> None:
        if not queues or any(slots < 1 for slots in queues.values()):
            raise TaskHarborError('no queue was added: pass queues={"mail": 8}, each with at least one slot')
        if lease < 1:
            raise TaskHarborError(f"the lease is {lease} s: choose at least 1")
        if not 0 <= poll <= 30:
            raise TaskHarborError(f"poll is {poll} s: choose 0 to 30")
        token = token or os.environ.get("TASKHARBOR_TOKEN")
        self.client = Client(url, token=token, store=store)
        """Enqueues through the same server."""
        self._settings = Settings(
            endpoint=Endpoint(url, token, store),
            queues=dict(queues),
            name=name or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}",
            version=version,
            lease=lease,
            grace=grace,
            cancel_wait=cancel_wait,
            poll=poll,
            max_attempts=max_attempts,
            timeout=timeout,
        )
        self._handlers: Dict[str, Handler] = {}
        self._worker: Optional[Worker] = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name under which the worker holds leases."""
        return self._settings.name

    def job(
        self,
        type: str,
        *,
        queue: Optional[str] = None,
        max_attempts: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Callable[[F], F]:
        """Registers the handler of a job type: a function, or an ``async`` one, that takes a :class:`Job`.

        What it returns is the job's output. An exception is a failed attempt, which is retried with backoff
        until ``max_attempts`` have failed. :class:`Discard`, :class:`Retry`, :class:`Snooze` and
        :class:`Throttled` say something else. ``timeout`` seconds later the attempt has failed: an
        ``async`` handler is cancelled, a function should look at :attr:`Job.cancelled`. ``queue`` is where
        :meth:`enqueue` puts jobs of the type.
        """

        def register(function: F) -> F:
            if type in self._handlers:
                raise TaskHarborError(f"job type {type!r} has a handler already: register one")
            is_async = asyncio.iscoroutinefunction(function)
            self._handlers[type] = Handler(function, is_async, queue, max_attempts, timeout)
            return function

        return register

    def enqueue(self, type: str, payload: Any = None, **options: Any) -> Enqueued:
        """Stores a job of a type, in the queue that its handler names; the rest as :meth:`Client.enqueue`."""
        handler = self._handlers.get(type)
        if handler is not None and handler.queue is not None:
            options.setdefault("queue", handler.queue)
        return self.client.enqueue(type, payload, **options)

    def run(self) -> None:
        """Works until SIGTERM or SIGINT, then lets handlers finish, for 25 s at most.

        What has not ended by then is released for another worker. A second signal ends the grace period.
        Call it in the main thread; :meth:`start` and :meth:`stop` work in any.
        """
        read, write = os.pipe()
        os.set_blocking(write, False)

        def note(number: int, frame: Optional[types.FrameType]) -> None:
            try:
                os.write(write, b"!")
            except OSError:
                pass

        worker = self.start(on_end=lambda: note(0, None))
        numbers: List[signal.Signals] = [signal.SIGINT, signal.SIGTERM]
        before: Dict[signal.Signals, Union[Callable[..., Any], int, None]] = {}
        for number in numbers:
            before[number] = signal.signal(number, note)
        try:
            os.read(read, 1)
            worker.stop()
            while not worker.has_ended():
                os.read(read, 1)
                worker.end_grace()
            worker.join()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            os.close(read)
            os.close(write)

    def start(self, on_end: Optional[Callable[[], None]] = None) -> Worker:
        """Works in threads of its own until :meth:`stop`. Raises what the server says to the first call."""
        with self._lock:
            if self._worker is not None and not self._worker.has_ended():
                raise TaskHarborError("the app is running already")
            if not self._handlers:
                raise TaskHarborError("no handlers were registered: add one with @app.job(type)")
            self._worker = Worker(self._settings, dict(self._handlers), on_end)
            worker = self._worker
        worker.start()
        return worker

    def stop(self) -> None:
        """Shuts the worker down as :meth:`run` does, and waits for it."""
        worker = self._worker
        if worker is not None:
            worker.stop()
            worker.join()
