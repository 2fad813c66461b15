"""Background jobs through a TaskHarbor server: a client that enqueues, and workers that run jobs.

A worker is an :class:`App` with handlers. A program that only enqueues needs a :class:`Client`.
Delivery is at least once: a handler may run again if its process dies, so write handlers that can.
"""

from ._app import App
from ._client import Client, Enqueued, NewJob
from ._error import ApiError, Cancelled, Discard, Retry, Snooze, TaskHarborError, Throttled, Unavailable
from ._held import Backoff
from ._job import Inputs, Job
from ._version import __version__

__all__ = [
    "ApiError",
    "App",
    "Backoff",
    "Cancelled",
    "Client",
    "Discard",
    "Enqueued",
    "Inputs",
    "Job",
    "NewJob",
    "Retry",
    "Snooze",
    "TaskHarborError",
    "Throttled",
    "Unavailable",
    "__version__",
]
