"""How long to wait after failures, and where the package logs."""

from __future__ import annotations

import logging
import random

log = logging.getLogger("taskharbor")


def backoff(failures: int, longest: float = 5.0) -> float:
    """The seconds to wait after this many failures in a row, a quarter of them random."""
    return float(min(0.1 * 2.0 ** min(failures - 1, 10), longest) * (1 - random.random() / 4))
