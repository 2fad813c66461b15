"""SIGINT and SIGTERM as bytes in a pipe.

Python runs its own handlers of signals in the main thread, between two steps of it. A signal that comes just
before that thread begins to wait is noticed when the wait ends. The byte in the pipe is written at once, by
whichever thread gets the signal, so the wait ends with it.
"""

from __future__ import annotations

import os
import signal
import types
from typing import Any, Dict, Optional

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_END = 0


class Signals:
    """Takes the signals of the process while it is entered, in the main thread."""

    def __init__(self) -> None:
        self._read = self._write = -1
        self._fd_before = -1
        self._is_ended = False
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> Signals:
        global _entered
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        try:
            for number in _NUMBERS:
                self._before[number] = signal.signal(number, _nothing)
            self._fd_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        except BaseException:
            self.__exit__()
            raise
        _entered = self
        return self

    def __exit__(self, *_: object) -> None:
        global _entered
        if _entered is self:
            _entered = None
            signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)

    def wait(self) -> bool:
        """Waits for the next signal; ``False`` if :meth:`end` was called."""
        while not self._is_ended:
            number = os.read(self._read, 1)[0]
            # Others may have handlers that the program has set.
            if number in _NUMBERS:
                return True
        return False

    def end(self) -> None:
        """Ends a wait, from any thread."""
        self._is_ended = True
        try:
            os.write(self._write, bytes([_END]))
        except BlockingIOError:
            # The pipe is full of signals, so the wait does not last.
            pass


_entered: Optional[Signals] = None


def _nothing(number: int, frame: Optional[types.FrameType]) -> None:
    """The byte in the pipe says it."""


def _leave() -> None:
    """A process that is forked has signals of its own: they are not those of the worker."""
    global _entered
    if _entered is not None:
        _entered = None
        signal.set_wakeup_fd(-1)
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_leave)
