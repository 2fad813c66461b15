"""The thread that tells others that the worker is there.

An announcement is valid for three intervals. One that ends in order withdraws it.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any, Dict

from ._error import TaskHarborError
from ._http import Connection
from ._json import encode
from ._pace import log
from ._version import __version__

if TYPE_CHECKING:
    from ._worker import Worker

_ANNOUNCE_SECONDS = 10.0
_CALL_SECONDS = 5.0


def announce_often(worker: Worker) -> None:
    """Announces the worker until it ends."""
    connection = Connection(worker.settings.endpoint)
    while not worker.join(_ANNOUNCE_SECONDS):
        try:
            announce(worker, connection)
        except TaskHarborError as error:
            log.debug("the worker could not announce itself: %s", error)
    connection.close()


def announce(worker: Worker, connection: Connection, timeout: float = _CALL_SECONDS) -> None:
    """Announces the worker once; withdraws that when it has ended."""
    valid = 0 if worker.is_ended else 3 * _ANNOUNCE_SECONDS
    body = {
        "worker": worker.settings.name,
        "incarnation": worker.incarnation,
        "valid_seconds": valid,
        "info": _info(worker),
    }
    connection.post("work/announce", encode(body, "the announcement"), timeout)


def _info(worker: Worker) -> Dict[str, Any]:
    settings, now = worker.settings, time.monotonic()
    with worker.lock:
        busy = [held.began_at for held in worker.held if not held.has_ended]
        queues = [
            worker.tallies[queue].to_json(queue, slots, worker.busy[queue])
            for queue, slots in settings.queues.items()
        ]
    info: Dict[str, Any] = {
        "library": f"python {__version__}",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "phase": worker.phase,
        "wake_ups": True,
        "queues": queues,
        "types": sorted(worker.handlers),
    }
    if settings.version is not None:
        info["version"] = settings.version
    if busy:
        info["oldest_secs"] = int(now - min(busy))
    return info
