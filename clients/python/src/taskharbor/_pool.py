"""Threads that run handlers."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Deque


class Pool:
    """As many threads as have ever run handlers at once."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._work: Deque[Callable[[], None]] = deque()
        self._idle = 0
        self._count = 0
        self._is_ended = False

    def run(self, work: Callable[[], None]) -> None:
        """Runs ``work`` at once, in a thread that is idle or new.

        Raises :class:`RuntimeError` if the system gives no more threads; ``work`` is not run then.
        """
        with self._ready:
            if self._idle > len(self._work):
                self._work.append(work)
                self._ready.notify()
                return
            self._count += 1
            name = f"taskharbor-handler-{self._count}"
            # A new thread begins with the oldest work, so this cannot be left behind.
            self._work.append(work)
            try:
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            except RuntimeError:
                self._work.remove(work)
                raise

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
            # What it holds, such as a payload, is not kept until the next one comes.
            del work

    def end(self) -> None:
        """Ends the threads that are idle; the others end after their work."""
        with self._ready:
            self._is_ended = True
            self._ready.notify_all()
