"""A worker and a server in trouble: refusals, failures, leases that change."""

import logging
import threading
import unittest

import rig
from fake import Fake, granted
from taskharbor import App


class Trouble(unittest.TestCase):
    def setUp(self):
        logger = logging.getLogger("taskharbor")
        before, logger.level = logger.level, logging.CRITICAL
        self.addCleanup(logger.setLevel, before)

    def working(self, handler, *jobs, answers=None, **options):
        """A fake server that grants these jobs once, and a worker of it that has started."""
        server = Fake(list(jobs), **(answers or {}))
        self.addCleanup(server.close)
        options = {"grace": 5.0, "cancel_wait": 0.1, **options}
        app = App(server.url, queues={"q": 4}, **options)
        self.addCleanup(app.stop)
        app.job("test")(handler)
        app.start()
        return server, app

    def test_an_outcome_is_not_changed_because_the_server_fails_and_does_not_hold_up_the_others(self):
        failed, recorded = [], threading.Event()

        def settle(body):
            if any(job["id"] == "bad" for job in body["jobs"]):
                if len(failed) < 3:
                    failed.append(body)
                    return 500
                recorded.set()
            return {"jobs": [{"state": "done"} for _ in body["jobs"]]}

        server, app = self.working(lambda job: job.id, granted("bad"), granted("good"), answers={"settle": settle})
        self.assertTrue(recorded.wait(rig.WAIT_LIMIT))
        app.stop()
        calls = server.calls("settle")
        bad = [job.get("ok") for call in calls for job in call.jobs if job["id"] == "bad"]
        self.assertEqual(bad, [{"output": "bad"}] * 4)
        self.assertEqual([job["id"] for job in calls[-1].jobs], ["bad"])

    def test_a_refused_outcome_is_not_sent_again_at_once(self):
        server, _ = self.working(lambda job: 1, granted("a"), answers={"settle": lambda body: 400})
        first, second = server.made("settle", 2)
        self.assertGreater(second.at - first.at, 0.05)
        self.assertEqual(second.jobs[0]["error"]["retryable"], False)

    def test_a_lease_is_extended_after_a_slow_call_of_the_settler_that_fails_or_is_busy(self):
        for said in (503, {"jobs": [{"error": {"code": "busy", "message": "busy"}}]}):
            extended, calls = threading.Event(), []

            def extend(body):
                extended.set()
                return {"jobs": [{}]}

            def settle(body):
                calls.append(body)
                if len(calls) == 1:
                    # Longer than the time after which a lease is extended.
                    extended.wait(0.6)
                return {"jobs": [{"state": "done"}]} if extended.is_set() else said

            with self.subTest(said):
                answers = {"extend": extend, "settle": settle}
                _, app = self.working(lambda job: 1, granted("a"), answers=answers, lease=1.5)
                self.assertTrue(extended.wait(5.0))
                app.stop()

    def test_what_is_held_is_only_looked_at_under_the_lock(self):
        class Guarded(set):
            """Python raises if a set changes while it is looked at; so does this one if it could change."""

            def __iter__(self):
                if not worker.lock.locked():
                    raise RuntimeError("the set could change during the iteration")
                return super().__iter__()

        server, app = self.working(lambda job: 1)
        # The worker waits: it has nothing to do.
        server.made("reserve")
        worker = app._worker
        with worker.lock:
            worker.held = Guarded()
        # The traceback of a thread that fails is not for the console.
        failed = []
        before, threading.excepthook = threading.excepthook, failed.append
        self.addCleanup(setattr, threading, "excepthook", before)
        worker.stop()
        has_ended = worker.join(10.0)
        if not has_ended:
            app._worker = None
        self.assertTrue(has_ended)
        self.assertEqual(failed, [])

    def test_an_outcome_is_sent_with_the_lease_that_an_extension_has_changed(self):
        extending, refused = threading.Event(), threading.Event()

        def extend(body):
            extending.set()
            refused.wait(rig.WAIT_LIMIT)
            return {"jobs": [{"lease": "lease-2"}]}

        def settle(body):
            if body["jobs"][0]["lease"] == "lease-2":
                return {"jobs": [{"state": "done"}]}
            # The server has changed the lease, and the worker does not know that yet.
            refused.set()
            return {"jobs": [{"error": {"code": "lease_lost", "message": "an old lease"}}]}

        def handle(job):
            extending.wait(rig.WAIT_LIMIT)
            return "output"

        server, app = self.working(
            handle, granted("a"), answers={"extend": extend, "settle": settle}, lease=1.5
        )
        server.made("settle", 2)
        app.stop()
        last = server.calls("settle")[-1].jobs
        self.assertEqual(last, [{"id": "a", "lease": "lease-2", "ok": {"output": "output"}}])

    def test_an_outcome_that_may_have_arrived_is_sent_with_a_new_lease_too(self):
        extending, refused, calls = threading.Event(), threading.Event(), []

        def extend(body):
            extending.set()
            refused.wait(rig.WAIT_LIMIT)
            return {"jobs": [{"lease": "lease-2"}]}

        def settle(body):
            calls.append(body)
            if len(calls) == 1:
                # It is lost on its way, and the lease is extended then.
                return 503
            if body["jobs"][0]["lease"] == "lease-2":
                return {"jobs": [{"state": "done"}]}
            if extending.is_set():
                refused.set()
                return {"jobs": [{"error": {"code": "lease_lost", "message": "an old lease"}}]}
            return 503

        def handle(job):
            raise ValueError("no")

        server, app = self.working(
            handle, granted("a"), answers={"extend": extend, "settle": settle}, lease=1.5
        )
        self.assertTrue(refused.wait(rig.WAIT_LIMIT))
        app.stop()
        self.assertEqual(server.calls("settle")[-1].jobs[0]["lease"], "lease-2")

    def test_leases_are_marked_again_when_the_call_fails_or_the_store_is_busy(self):
        for said in (503, {"jobs": [{"error": {"code": "busy", "message": "busy"}}]}):
            began, go, calls = threading.Event(), threading.Event(), []

            def extend(body):
                calls.append(body)
                return said if len(calls) == 1 else {"jobs": [{}]}

            def handle(job):
                began.set()
                go.wait(rig.WAIT_LIMIT)

            with self.subTest(said):
                server, app = self.working(handle, granted("a"), answers={"extend": extend}, grace=rig.WAIT_LIMIT)
                self.addCleanup(go.set)
                self.assertTrue(began.wait(rig.WAIT_LIMIT))
                app._worker.stop()
                first, second = server.made("extend", 2)
                go.set()
                app.stop()
                self.assertEqual([first.body["leaving"], second.body["leaving"]], [True, True])
                self.assertGreater(second.at - first.at, 0.05)


if __name__ == "__main__":
    unittest.main()
