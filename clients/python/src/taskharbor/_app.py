"""Workers: reserving jobs, running their handlers, recording their outcomes."""

from __future__ import annotations

import inspect
import os
import socket
import threading
from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar

from ._client import Client, Enqueued
from ._error import TaskHarborError
from ._held import Backoff, Handler
from ._http import Endpoint
from ._job import Job
from ._signal import Signals
from ._worker import Settings, Worker

F = TypeVar("F", bound=Callable[[Job], Any])


class App:
    """A worker of a TaskHarbor server, with its handlers.

    ``queues`` says how many handlers of a queue run at once. The other settings have defaults that suit
    most programs:

    - ``token``: defaults to the one in the URL, then to the environment variable ``TASKHARBOR_TOKEN``.
    - ``store``: which store of the server. Defaults to the one in the URL, then to ``default``.
    - ``name``: under which leases are held. Defaults to host and process.
    - ``version``: of your program, for people who look at the workers.
    - ``lease``: so many seconds after its last sign of life another worker gets a job. Defaults to 60.
    - ``grace``: so many seconds handlers may go on when the worker shuts down. Defaults to 15; five more
      when they are told to stop.
    - ``cancel_wait``: so many seconds a handler that was told to stop may take, before its job is released.
    - ``poll``: so many seconds one call waits at the server for jobs. Defaults to 20.
    - ``max_attempts``, ``timeout``: for jobs that bring none of their own, and whose type has none.
    - ``backoff``: the delays after failures, see :class:`Backoff`.
    - ``crash_limit``: a job is dead-lettered when its lease has run out so often in a row. Defaults to 5.
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
        backoff: Optional[Backoff] = None,
        crash_limit: Optional[int] = None,
    ) -> None:
        if not queues or any(slots < 1 for slots in queues.values()):
            raise TaskHarborError('no queue was added: pass queues={"mail": 8}, each with at least one slot')
        if not 0 <= grace <= 3_600 or not 0 <= cancel_wait <= 3_600:
            raise TaskHarborError(f"grace is {grace} s and cancel_wait {cancel_wait} s: choose 0 to 3600")
        if not 1 <= lease <= 86_400:
            raise TaskHarborError(f"the lease is {lease} s: choose 1 to 86400")
        if not 0 <= poll <= 30:
            raise TaskHarborError(f"poll is {poll} s: choose 0 to 30")
        self.client = Client(url, token=token, store=store)
        """Enqueues through the same server."""
        self._name = name
        self._own_name: Tuple[int, str] = (0, "")
        self._settings = Settings(
            endpoint=Endpoint(url, token, store),
            queues=dict(queues),
            name=name or "",
            version=version,
            lease=lease,
            grace=grace,
            cancel_wait=cancel_wait,
            poll=poll,
            max_attempts=max_attempts,
            timeout=timeout,
            backoff=backoff,
            crash_limit=crash_limit,
        )
        self._handlers: Dict[str, Handler] = {}
        self._worker: Optional[Worker] = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name under which the worker holds leases: the one that was given, or host and process."""
        if self._name is not None:
            return self._name
        # A process that is forked is another worker.
        if self._own_name[0] != os.getpid():
            own = f"{socket.gethostname()[:80]}-{os.getpid()}-{os.urandom(2).hex()}"
            self._own_name = (os.getpid(), own)
        return self._own_name[1]

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
            call = getattr(function, "__call__", None)
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TaskHarborError(f"the handler of {type!r} is a generator, which would not run: return instead")
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
        Call it in the main thread; :meth:`start` and :meth:`stop` work in any. Processes that handlers fork
        get signals of their own.
        """
        with Signals() as signals:
            worker = self.start(on_end=signals.end)
            while not worker.has_ended() and signals.wait():
                if worker.is_stopping():
                    worker.end_grace()
                worker.stop()
            worker.join()

    def start(self, on_end: Optional[Callable[[], None]] = None) -> Worker:
        """Works in threads of its own until :meth:`stop`.

        Raises :class:`ApiError` if the server refuses the worker, for its token say. A server that is away is
        waited for. ``on_end`` is called in one of the threads when the worker has ended.
        """
        with self._lock:
            if self._worker is not None and not self._worker.has_ended():
                raise TaskHarborError("the app is running already")
            if not self._handlers:
                raise TaskHarborError("no handlers were registered: add one with @app.job(type)")
            settings = replace(self._settings, name=self.name)
            worker = self._worker = Worker(settings, dict(self._handlers), on_end)
        try:
            worker.start()
        except BaseException:
            self._worker = None
            raise
        return worker

    def stop(self) -> None:
        """Shuts the worker down as :meth:`run` does, and waits for it."""
        worker = self._worker
        if worker is not None:
            worker.stop()
            worker.join()
        self.client.close()
