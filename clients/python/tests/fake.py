"""A server that answers as a test wants it, for what a real one does too rarely to be waited for."""

import http.server
import json
import threading
import time

import rig


def granted(id, **more):
    """What is known of a job that a fake server grants."""
    job = {
        "id": id, "lease": "lease-1", "type": "test", "queue": "q", "payload": None, "headers": {}, "attempt": 1,
        "max_attempts": 20, "deliveries": 1, "priority": 0, "created_at": "2026-01-01T00:00:00.000000Z",
        "lease_expires_at": "2026-01-01T00:01:00.000000Z", "inputs": False, "waited_ms": 0,
    }
    return {**job, **more}


def answer(handler, status, body):
    """Answers a call."""
    handler.send_response(status)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class Serving:
    """An HTTP server in threads of this process."""

    def __init__(self, handler):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Call:
    """A call that was made."""

    def __init__(self, name, body):
        self.name, self.body, self.at = name, body, time.monotonic()

    @property
    def jobs(self):
        return self.body["jobs"]


class Fake(Serving):
    """Grants jobs once.

    ``answers`` has functions by the name of the call. They get its body, and return an answer, a status, or nothing:
    then the caller waits.
    """

    def __init__(self, jobs, **answers):
        fake = self
        self._changed = threading.Condition()
        self._jobs = jobs
        self._calls = []
        self._answers = {
            "announce": lambda body: {},
            "reserve": self._reserve,
            "extend": lambda body: {"jobs": [{} for _ in body["jobs"]]},
            "settle": lambda body: {"jobs": [{"state": "done"} for _ in body["jobs"]]},
            **answers,
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                size = int(self.headers["content-length"])
                data = self.rfile.read(size)
                if len(data) < size:
                    # The call was ended while it was sent.
                    self.close_connection = True
                    return
                body = json.loads(data)
                name = self.path.rpartition("/")[2]
                with fake._changed:
                    fake._calls.append(Call(name, body))
                    fake._changed.notify_all()
                said = fake._answers[name](body)
                if said is None:
                    # The caller waits until it sends no more.
                    self.rfile.read(1)
                    self.close_connection = True
                elif isinstance(said, int):
                    answer(self, said, b"")
                else:
                    answer(self, 200, json.dumps(said).encode())

            def log_message(self, *_):
                pass

        super().__init__(Handler)

    def _reserve(self, body):
        with self._changed:
            jobs, self._jobs = self._jobs, []
        return {"jobs": jobs, "granted_after_ms": 0} if jobs else None

    def calls(self, name):
        """The calls of this name that were made."""
        with self._changed:
            return [call for call in self._calls if call.name == name]

    def made(self, name, count=1):
        """The calls of this name, as soon as there are this many."""
        def found():
            return [call for call in self._calls if call.name == name]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= count, rig.WAIT_LIMIT):
                raise AssertionError(f"{name} was called {len(found())} times and not {count}")
            return found()
