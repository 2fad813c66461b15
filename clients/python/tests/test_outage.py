"""Servers that go away, come back, lose answers or are none."""

import http.client
import http.server
import logging
import threading
import time
import unittest

import rig
from fake import Serving, answer
from taskharbor import App, Client

ANY = "q"


class Quiet(unittest.TestCase):
    """Tests in which a worker complains as it should."""

    def setUp(self):
        logger = logging.getLogger("taskharbor")
        before, logger.level = logger.level, logging.CRITICAL
        self.addCleanup(logger.setLevel, before)

    def app(self, url, **options):
        app = App(url, queues={ANY: 4}, backoff=rig.QUICK, grace=5.0, **options)
        self.addCleanup(app.stop)
        return app


class Outages(Quiet):
    def setUp(self):
        super().setUp()
        self.server = rig.Server()
        self.addCleanup(self.server.close)
        self.client = Client(self.server.url, timeout=rig.WAIT_LIMIT)
        self.addCleanup(self.client.close)

    def test_a_server_that_is_restarted_loses_no_outcome(self):
        app = self.app(self.server.url)
        began, go, ended = rig.Witness(), threading.Event(), rig.Witness()

        @app.job("long")
        def long(job):
            began.see(job.id)
            go.wait(rig.WAIT_LIMIT)
            ended.see(job.deliveries)
            return "kept"

        app.start()
        ids = [self.client.enqueue("long", queue=ANY).id for _ in range(4)]
        began.wait(4)
        self.server.kill()
        go.set()
        self.assertEqual(ended.wait(4), [1, 1, 1, 1])
        self.server.start(self.server.port)
        later = self.client.enqueue("long", queue=ANY).id
        ended.wait(5)
        app.stop()
        for id in [*ids, later]:
            job = self.server.inspect(id)
            self.assertEqual((job["state"], job["output"], job["deliveries"]), ("done", "kept", 1))

    def test_a_server_that_is_away_at_the_start_is_waited_for(self):
        self.server.kill()
        app = self.app(self.server.url)
        seen = rig.Witness()
        app.job("a")(lambda job: seen.see(job.id))
        app.start()
        self.server.start(self.server.port)
        id = self.client.enqueue("a", queue=ANY).id
        self.assertEqual(seen.wait(1), [id])

    def test_answers_that_are_lost_change_nothing(self):
        relay = Relay(self.server.port)
        self.addCleanup(relay.close)
        app = self.app(relay.url)
        seen = rig.Witness()

        @app.job("a", max_attempts=2)
        def handle(job):
            seen.see((job.id, job.attempt))
            if job.payload == "fails" and job.attempt == 1:
                raise ValueError("once")
            return "x"

        relay.lose("work/enqueue")
        with Client(relay.url, timeout=rig.WAIT_LIMIT) as client:
            good = client.enqueue("a", "works", queue=ANY)
            self.assertFalse(good.existed)
            relay.lose("work/settle", 3)
            app.start()
            bad = client.enqueue("a", "fails", queue=ANY)
        runs = seen.wait(3)
        self.assertEqual(sorted(runs), sorted([(good.id, 1), (bad.id, 1), (bad.id, 2)]))
        relay.wait_lost(4)
        app.stop()
        self.assertEqual(self.server.counts(), {"done": 2})

    def test_a_lease_that_cannot_be_extended_is_lost_before_it_ends(self):
        app = self.app(self.server.url, lease=1.5)
        began, told = rig.Witness(), rig.Witness()

        @app.job("long")
        def long(job):
            began.see(time.monotonic())
            job.wait_cancelled(rig.WAIT_LIMIT)
            told.see((job.cancel_reason, time.monotonic()))

        app.start()
        self.client.enqueue("long", queue=ANY)
        at = began.wait(1)[0]
        self.server.kill()
        reason, then = told.wait(1)[0]
        self.assertEqual(reason, "lease_lost")
        # It may have been extended just before the server went away.
        self.assertLess(then - at, 3.0)


class Strangers(Quiet):
    def test_a_server_that_is_none_is_survived(self):
        for said in (b"<html>", b"[]", b"{}", b'{"jobs":3}', b'{"jobs":[{}]}', b'{"jobs":[3]}', b"[" * 100_000):
            asked = rig.Witness()

            class Stranger(http.server.BaseHTTPRequestHandler):
                protocol_version = "HTTP/1.1"

                def do_POST(self):
                    self.rfile.read(int(self.headers["content-length"]))
                    asked.see(self.path)
                    answer(self, 200, said)

                def log_message(self, *_):
                    pass

            with self.subTest(said[:20]):
                server = Serving(Stranger)
                self.addCleanup(server.close)
                app = self.app(server.url)
                app.job("a")(lambda job: None)
                app.start()
                # It goes on asking.
                asked.wait(4)
                app.stop()


class Relay(Serving):
    """Passes calls on to a server, and loses the answers to some: the call is done, and it breaks off."""

    def __init__(self, port):
        relay = self
        self._left = {}
        self._lost = rig.Witness()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=rig.WAIT_LIMIT)
                try:
                    server.request("POST", self.path, body, {"content-type": "application/json"})
                    response = server.getresponse()
                    data = response.read()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                    return
                finally:
                    server.close()
                name = self.path.partition("/v1/default/")[2]
                if relay._left.get(name, 0) > 0:
                    relay._left[name] -= 1
                    self.close_connection = True
                    relay._lost.see(name)
                    return
                answer(self, response.status, data)

            def log_message(self, *_):
                pass

        super().__init__(Handler)

    def lose(self, name, count=1):
        self._left[name] = count

    def wait_lost(self, count):
        self._lost.wait(count)


if __name__ == "__main__":
    unittest.main()
