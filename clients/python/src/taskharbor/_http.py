"""One kept connection to a server, with the answers and errors of its JSON API."""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import threading
from typing import Any, Dict, List, Optional
from urllib.parse import quote, unquote, urlsplit

from ._error import ApiError, TaskHarborError, Unavailable
from ._json import decode

# Besides 5xx, answers that say nothing about the call itself: the server, its store or a proxy is busy.
_AWAY = frozenset((408, 425, 429))
_MAX_ERROR_BYTES = 64 * 1024
# What a connection raises that the server had closed before, or that broke.
_CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Endpoint:
    """Where a server is, and with which token it is called.

    The arguments come first, then the parameters of the URL, then the variable ``TASKHARBOR_TOKEN``.
    """

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        store: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _not_a_server(url) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _not_a_server(url)
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.is_tls else 80)
        if parts.fragment:
            raise TaskHarborError("the address of the server has a #: remove the part from there on, or write %23")
        named = _parameters(parts.query)
        self.store = store or named.get("store", "default")
        self.prefix = f"{parts.path.rstrip('/')}/v1/{quote(self.store, safe='')}"
        self.ssl_context = ssl_context or (ssl.create_default_context() if self.is_tls else None)
        secret = token or named.get("token") or unquote(parts.password or "") or os.environ.get("TASKHARBOR_TOKEN")
        self.headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if secret:
            if not secret.isascii() or not secret.isprintable():
                raise TaskHarborError("invalid token: it has characters that no token has")
            self.headers["Authorization"] = f"Bearer {secret}"

    def __repr__(self) -> str:
        scheme = "https" if self.is_tls else "http"
        return f"Endpoint({scheme}://{self.host}:{self.port}{self.prefix})"


def _parameters(query: str) -> Dict[str, str]:
    """The parameters of an address. No message repeats a value, or a name that could be a part of one."""
    named: Dict[str, str] = {}
    for parameter in filter(None, query.split("&")):
        name, _, value = parameter.partition("=")
        if name not in ("store", "token"):
            if re.fullmatch("[a-z_-]{1,20}", name):
                raise TaskHarborError(f"unknown parameter `{name}` in the address of the server: use store or token")
            raise TaskHarborError("unknown parameter in the address of the server: write & = # % of a value as %26 …")
        # A plus sign stands for itself, as in the URLs of the HTTP driver.
        named[name] = unquote(value)
        if not named[name]:
            raise TaskHarborError(f"the parameter `{name}` in the address of the server is empty")
    return named


def _not_a_server(url: str) -> TaskHarborError:
    return TaskHarborError(f"not the address of a server: {_without_token(url)!r}: use http://host:port")


def _without_token(url: str) -> str:
    """An address as it may be printed."""
    address, mark, _ = url.partition("?")
    query = f"{mark}…" if mark else ""
    before, at, after = address.rpartition("@")
    if not at:
        return address + query
    scheme, mark, _ = before.partition("://")
    return f"{scheme}{mark}…@{after}{query}" if mark else f"…@{after}{query}"


class Connection:
    """A connection that is kept between calls. One thread uses it; any thread may :meth:`abort` it.

    A process that is forked opens one of its own: two processes on one connection would read each other's
    answers.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http: Optional[http.client.HTTPConnection] = None
        self._lock = threading.Lock()
        self._is_aborted = False
        self._pid = os.getpid()
        self.was_repeated = False
        """Whether the last call was sent twice, so that its first sending may have been done."""

    def post(self, path: str, body: str, timeout: float) -> Dict[str, Any]:
        """Sends a call with this JSON and answers the object that the server answers.

        Raises :class:`Unavailable` or :class:`ApiError`.
        """
        data = body.encode()
        self.was_repeated = False
        try:
            is_kept = self._http is not None and self._pid == os.getpid()
            try:
                return self._send(path, data, timeout)
            except _CLOSED:
                # A server closes connections that have been idle for long.
                self.close()
                if not is_kept or self._is_aborted:
                    raise
            self.was_repeated = True
            return self._send(path, data, timeout)
        except _CLOSED as error:
            self.close()
            raise Unavailable(f"{self._server()} closed the connection: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"no answer from {self._server()}: {error}") from error

    def post_jobs(self, path: str, body: str, count: int, timeout: float) -> List[Dict[str, Any]]:
        """Sends a call about this many jobs and answers what the server says about each."""
        answers: List[Dict[str, Any]] = self.post(path, body, timeout).get("jobs") or []
        if not _are_objects(answers) or len(answers) != count:
            raise Unavailable(f"{self._server()} gave an answer without all jobs: is it a TaskHarbor server?")
        return answers

    def _server(self) -> str:
        return f"{self._endpoint.host}:{self._endpoint.port}"

    def _send(self, path: str, data: bytes, timeout: float) -> Dict[str, Any]:
        connection = self._open(timeout)
        connection.request("POST", f"{self._endpoint.prefix}/{path}", body=data, headers=self._endpoint.headers)
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        if 200 <= response.status < 300:
            return _object(answer, response.status)
        raise _error(response.status, answer)

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            if self._is_aborted:
                raise ConnectionError("the connection was ended")
            if self._pid != os.getpid():
                # The other process goes on with it: this one gives up its copy, and says nothing.
                inherited, self._pid, self._http = self._http, os.getpid(), None
                if inherited is not None:
                    inherited.close()
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

    def abort(self, is_patient: bool = True) -> None:
        """Ends a call that another thread waits in.

        The server sees that no more is sent and gives the call up. What it has granted already is read,
        unless the caller is not patient.
        """
        with self._lock:
            self._is_aborted = True
            sock = self._http.sock if self._http is not None else None
        if sock is not None:
            try:
                # Not that of a TLS socket, which would forget its keys and read no more.
                socket.socket.shutdown(sock, socket.SHUT_WR if is_patient else socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        with self._lock:
            connection, self._http = self._http, None
        if connection is not None:
            connection.close()


def _are_objects(answers: Any) -> bool:
    return isinstance(answers, list) and all(isinstance(answer, dict) for answer in answers)


def _object(answer: bytes, status: int) -> Dict[str, Any]:
    try:
        value = decode(answer)
    except ValueError as error:
        text = f"the answer (status {status}) cannot be read: {error}: is this a TaskHarbor server?"
        raise Unavailable(text) from error
    if not isinstance(value, dict):
        raise Unavailable(f"the answer (status {status}) is not an object: is this a TaskHarbor server?")
    return value


def _error(status: int, answer: bytes) -> TaskHarborError:
    """The error that a problem document, or a proxy's page, tells of."""
    code, title, detail = "unknown", f"the server answered {status}", ""
    try:
        problem = decode(answer[:_MAX_ERROR_BYTES])
        if isinstance(problem, dict):
            code = str(problem.get("code", code))
            title = str(problem.get("title", title))
            detail = str(problem.get("detail") or "")
    except ValueError:
        pass
    if status >= 500 or status in _AWAY:
        return Unavailable(f"{title}: {detail}" if detail else title, status)
    return ApiError(status, code, title, detail)
