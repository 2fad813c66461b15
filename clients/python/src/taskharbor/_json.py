"""JSON as it is sent and read.

Values are written once, where they are handed in, so that one that cannot be written fails there and cannot
spoil a call that carries others. Integers are kept exactly, however long they are.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Union

from ._error import TaskHarborError

# What fits into one call with room to spare; the server takes 32 MiB.
MAX_BYTES = 24 * 1024 * 1024
# Python reads no longer integers unless it is told to, since that takes long.
_MAX_DIGITS = 4_300


def encode(value: Any, what: str) -> str:
    """Writes a value; raises :class:`TaskHarborError` if it is not JSON, or too large for a call."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskHarborError(f"{what} cannot be written as JSON: {error}") from error
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        # Half of a surrogate pair, which only an escape can express.
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        size = len(text)
    if size > MAX_BYTES:
        raise TaskHarborError(f"{what} takes {size} bytes: store it elsewhere, and pass on where it is")
    return text


def decode(data: bytes) -> Any:
    """Reads a value; raises :class:`ValueError` if it is not JSON."""
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError:
        # Somewhere is an integer that takes long to read as one.
        return json.loads(data, parse_int=_integer)


def _integer(digits: str) -> Union[int, Decimal]:
    return int(digits) if len(digits) <= _MAX_DIGITS else Decimal(digits)
