"""What can go wrong in a call, and what a handler raises to decide about its job."""

from __future__ import annotations

from typing import Optional


class TaskHarborError(Exception):
    """The base of all errors of this package."""


class Unavailable(TaskHarborError):
    """The server or its store cannot be reached, or is busy. Trying again is worth it."""

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of the response, if there was one."""


class ApiError(TaskHarborError):
    """The server refused the call. Sending it again unchanged is of no use."""

    def __init__(self, status: int, code: str, title: str, detail: str = "") -> None:
        text = f"{title}: {detail}" if detail else title
        super().__init__(f"{text} ({status} {code})")
        self.status = status
        """The status of the response; 200 if the server took the call and refused one job of it."""
        self.code = code
        """What the server calls the error; it does not change between versions."""
        self.detail = detail
        """What the server says about it."""


class Discard(TaskHarborError):
    """Raised by a handler: trying again will not help, the job is dead-lettered with this reason."""


class Retry(TaskHarborError):
    """Raised by a handler: the attempt has failed, and the next one runs ``after`` this many seconds.

    Without ``after`` it is the same as any other exception: the delays grow with each attempt.
    """

    def __init__(self, message: str, after: Optional[float] = None) -> None:
        super().__init__(message)
        self.after = after
        """The seconds to wait, or ``None`` for the delay of the retry policy."""


class Snooze(TaskHarborError):
    """Raised by a handler: not now, run the job again in this many seconds. No attempt is charged."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds
        """The seconds to wait."""


class Throttled(TaskHarborError):
    """Raised by a handler: the service it calls asks to be left alone for this many seconds.

    No attempt is charged, and the lane of the job, or its queue if it has none, is on hold for as long: a day at
    most.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"throttled for {seconds} s")
        self.seconds = seconds
        """The seconds to wait."""


class Cancelled(TaskHarborError):
    """Raised by :meth:`Job.check` in a handler that has been told to stop. Let it pass."""
