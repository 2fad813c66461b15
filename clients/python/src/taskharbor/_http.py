"""One kept connection to a server, with the answers and errors of its JSON API."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from typing import Any, Dict, Optional
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ._error import ApiError, TaskHarborError, Unavailable

# Answers that say nothing about the call itself: the server, its store or a proxy is away or busy.
_AWAY = frozenset((408, 425, 429, 502, 503, 504))
# A store that failed is asked again by workers, but a caller is told.
_MAX_ERROR_BYTES = 64 * 1024


class Endpoint:
    """Where a server is, and with which token it is called."""

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        store: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TaskHarborError(f"not the address of a server: {_without_token(url)!r}: use http://host:port")
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.is_tls else 80)
        named = parse_qs(parts.query).get("store", [])
        self.store = store or (named[0] if named else "default")
        self.prefix = f"{parts.path.rstrip('/')}/v1/{quote(self.store, safe='')}"
        self.ssl_context = ssl_context or (ssl.create_default_context() if self.is_tls else None)
        secret = token if token is not None else parts.password
        self.headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if secret:
            self.headers["Authorization"] = f"Bearer {unquote(secret) if token is None else token}"

    def __repr__(self) -> str:
        scheme = "https" if self.is_tls else "http"
        return f"Endpoint({scheme}://{self.host}:{self.port}{self.prefix})"


def _without_token(url: str) -> str:
    """An address as it may be printed."""
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, mark, _ = before.partition("://")
    return f"{scheme}{mark}…@{after}" if mark else f"…@{after}"


class Connection:
    """A connection that is kept between calls. One thread uses it; any thread may :meth:`abort` it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http: Optional[http.client.HTTPConnection] = None
        self._lock = threading.Lock()
        self._is_aborted = False

    def post(self, path: str, body: Dict[str, Any], timeout: float) -> Any:
        """Sends a call and answers its JSON.

        Raises :class:`Unavailable` or :class:`ApiError`.
        """
        data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        is_kept = self._http is not None
        try:
            return self._send(path, data, timeout)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            # A server closes connections that were idle for long. It has read nothing then.
            self.close()
            if not is_kept or self._is_aborted:
                raise Unavailable(f"the server closed the connection: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"no answer from {self._endpoint.host}:{self._endpoint.port}: {error}") from error
        try:
            return self._send(path, data, timeout)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"no answer from {self._endpoint.host}:{self._endpoint.port}: {error}") from error

    def _send(self, path: str, data: bytes, timeout: float) -> Any:
        connection = self._open(timeout)
        connection.request("POST", f"{self._endpoint.prefix}/{path}", body=data, headers=self._endpoint.headers)
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        if 200 <= response.status < 300:
            return _json(answer, response.status)
        raise _error(response.status, answer)

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            if self._is_aborted:
                raise ConnectionError("the connection was ended")
            if self._http is None:
                at = self._endpoint
                if at.is_tls:
                    self._http = http.client.HTTPSConnection(at.host, at.port, context=at.ssl_context)
                else:
                    self._http = http.client.HTTPConnection(at.host, at.port)
            connection = self._http
        connection.timeout = timeout
        if connection.sock is None:
            # It turns off the delay of small packets, too.
            connection.connect()
            if self._is_aborted:
                raise ConnectionError("the connection was ended")
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

    def abort(self) -> None:
        """Ends a call that another thread waits in: an answer that is on its way still arrives.

        The server sees that no more is sent and gives the call up. What it has granted already is read.
        """
        with self._lock:
            self._is_aborted = True
            sock = self._http.sock if self._http is not None else None
        if sock is not None:
            try:
                # Not that of a TLS socket, which would forget its keys and read no more.
                socket.socket.shutdown(sock, socket.SHUT_WR)
            except OSError:
                pass

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        with self._lock:
            connection, self._http = self._http, None
        if connection is not None:
            connection.close()


def _json(answer: bytes, status: int) -> Any:
    try:
        return json.loads(answer) if answer else None
    except ValueError as error:
        raise Unavailable(f"the answer (status {status}) is not JSON: is this a TaskHarbor server?") from error


def _error(status: int, answer: bytes) -> TaskHarborError:
    """The error that a problem document, or a proxy's page, tells of."""
    code, title, detail = "unknown", f"the server answered {status}", ""
    try:
        problem = json.loads(answer[:_MAX_ERROR_BYTES])
        if isinstance(problem, dict):
            code = str(problem.get("code", code))
            title = str(problem.get("title", title))
            detail = str(problem.get("detail") or "")
    except ValueError:
        pass
    if status in _AWAY:
        return Unavailable(f"{title}: {detail}" if detail else title)
    return ApiError(status, code, title, detail)
