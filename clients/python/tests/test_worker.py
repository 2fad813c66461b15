"""Handlers, and the outcomes of their jobs."""

import asyncio
import functools
import json
import threading
import unittest

import rig
from taskharbor import Cancelled, Discard, NewJob, Retry, Snooze, Throttled


class Handling(rig.ServerCase):
    def test_a_job_runs_and_what_the_handler_returns_is_kept(self):
        app = self.app()

        @app.job("double", queue=self.queue)
        def double(job):
            return {"twice": job.payload["n"] * 2, "attempt": job.attempt}

        app.start()
        id = app.enqueue("double", {"n": 2**80}).id
        job = self.await_state(id, "done")
        self.assertEqual(job["output"], {"twice": 2**81, "attempt": 1})
        # The decorator leaves the function as it was.
        self.assertTrue(callable(double))

    def test_bytes_arrive_and_return_as_they_are(self):
        app = self.app()
        seen = rig.Witness()

        @app.job("bytes")
        def handle(job):
            seen.see(job.payload)
            return job.payload[::-1]

        app.start()
        id = self.enqueue("bytes", b"\x00\xff\xfe")
        job = self.await_state(id, "done")
        self.assertEqual(seen.wait(1), [b"\x00\xff\xfe"])
        self.assertEqual(job["output_base64"], "/v8A")

    def test_async_handlers_run_at_once_on_one_loop(self):
        app = self.app(slots=20)
        seen = rig.Witness()
        all_here = []

        async def handle(job, extra):
            seen.see(threading.get_ident())
            all_here.append(asyncio.Event())
            if len(all_here) == 20:
                for event in all_here:
                    event.set()
            await all_here[-1 if len(all_here) == 20 else job.payload].wait()
            return extra

        app.job("async")(functools.partial(handle, extra="x"))
        app.start()
        ids = [job.id for job in self.client.enqueue_many([NewJob("async", 0, queue=self.queue)] * 20)]
        self.assertEqual(self.await_state(ids[-1], "done")["output"], "x")
        self.assertEqual(len(set(seen.wait(20))), 1)

    def test_a_failure_is_tried_again_until_the_attempts_are_used_up(self):
        app = self.app()
        seen = rig.Witness()

        @app.job("fails", max_attempts=3)
        def handle(job):
            seen.see((job.attempt, job.max_attempts, job.last_error))
            raise ValueError(f"no {job.attempt}")

        app.start()
        job = self.await_state(self.enqueue("fails"), "dlq")
        last = [None, "ValueError: no 1", "ValueError: no 2"]
        self.assertEqual(seen.wait(3), [(n + 1, 3, last[n]) for n in range(3)])
        self.assertIn("ValueError: no 3", job["reason"])

    def test_a_handler_says_what_becomes_of_its_job(self):
        app = self.app()
        tries = {}

        def first(job):
            tries[job.id] = tries.get(job.id, 0) + 1
            return tries[job.id] == 1

        @app.job("discard")
        def discard(job):
            raise Discard("no such address")

        @app.job("retry")
        def retry(job):
            if first(job):
                raise Retry("busy", after=0.01)
            return job.attempt

        @app.job("snooze")
        async def snooze(job):
            if first(job):
                raise Snooze(0.01)
            return job.attempt

        @app.job("nan")
        def nan(job):
            return float("nan")

        app.start()
        ids = {type: self.enqueue(type) for type in ("discard", "retry", "snooze", "nan")}
        self.assertIn("no such address", self.await_state(ids["discard"], "dlq")["reason"])
        self.assertEqual(self.await_state(ids["retry"], "done")["output"], 2)
        self.assertEqual(self.await_state(ids["snooze"], "done")["output"], 1)
        self.assertIn("cannot be written as JSON", self.await_state(ids["nan"], "dlq")["reason"])

    def test_a_job_that_is_throttled_holds_its_lane(self):
        app = self.app()
        seen = rig.Witness()

        @app.job("call")
        def call(job):
            seen.see(job.lane)
            if job.lane == "slow":
                raise Throttled(3_600)

        throttled = self.enqueue("call", lane="slow")
        app.start()
        self.await_state(throttled, "scheduled")
        for lane in ("slow", "fast", "slow"):
            id = self.enqueue("call", lane=lane)
            if lane == "fast":
                self.await_state(id, "done")
        self.assertEqual(seen.wait(2), ["slow", "fast"])

    def test_a_handler_that_takes_too_long_has_failed(self):
        app = self.app(timeout=60)
        stopped = rig.Witness()

        @app.job("slow", timeout=0.2, max_attempts=1)
        def slow(job):
            job.wait_cancelled(rig.WAIT_LIMIT)
            stopped.see(job.cancel_reason)

        @app.job("slow-async", max_attempts=1)
        async def slow_async(job):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.see(job.cancel_reason)
                raise

        app.start()
        ids = [self.enqueue("slow"), self.enqueue("slow-async", timeout=0.2)]
        for id in ids:
            self.assertIn("timed out", self.await_state(id, "dlq")["reason"])
        self.assertEqual(stopped.wait(2), ["timeout", "timeout"])

    def test_a_job_that_is_cancelled_stops(self):
        app = self.app(lease=1.5)
        began, stopped = rig.Witness(), rig.Witness()

        @app.job("long")
        def long(job):
            began.see(job.id)
            job.wait_cancelled(rig.WAIT_LIMIT)
            stopped.see(job.cancel_reason)
            job.check()

        @app.job("long-async")
        async def long_async(job):
            began.see(job.id)
            await asyncio.Event().wait()

        app.start()
        ids = [self.enqueue("long"), self.enqueue("long-async")]
        began.wait(2)
        self.server.command("cancel", *ids)
        for id in ids:
            self.await_state(id, "cancelled")
        self.assertEqual(stopped.wait(1), ["requested"])

    def test_a_job_whose_handler_ignores_that_is_given_up(self):
        app = self.app(lease=1.5, cancel_wait=0.1)
        began, end = rig.Witness(), threading.Event()
        self.addCleanup(end.set)

        @app.job("deaf")
        def deaf(job):
            began.see(job.id)
            end.wait(rig.WAIT_LIMIT)

        app.start()
        id = self.enqueue("deaf")
        began.wait(1)
        self.server.command("cancel", id)
        self.await_state(id, "cancelled")

    def test_progress_is_seen_while_the_job_runs(self):
        app = self.app()
        go = threading.Event()
        self.addCleanup(go.set)

        @app.job("long")
        def long(job):
            job.progress("\ud800 3 of 7")
            go.wait(rig.WAIT_LIMIT)

        app.start()
        id, pause = self.enqueue("long"), threading.Event()
        for _ in range(int(rig.WAIT_LIMIT / 0.05)):
            said = self.server.inspect(id).get("progress")
            if said is not None:
                break
            pause.wait(0.05)
        self.assertEqual(said, "? 3 of 7")

    def test_leases_are_extended_while_handlers_run(self):
        app = self.app(lease=1.0)
        began, go = rig.Witness(), threading.Event()
        self.addCleanup(go.set)

        @app.job("long")
        def long(job):
            began.see(job.deliveries)
            # Two leases long.
            go.wait(2.2)
            return job.cancelled

        app.start()
        id = self.enqueue("long")
        self.assertIs(self.await_state(id, "done")["output"], False)
        self.assertEqual(began.wait(1), [1])

    def test_a_step_reads_what_the_steps_before_it_have_produced(self):
        app = self.app()

        @app.job("part")
        def part(job):
            return job.payload["n"] * 10

        @app.job("sum")
        async def total(job):
            inputs = await asyncio.to_thread(job.inputs)
            return {"of": inputs.value, "failed": inputs.failure}

        parts = [{"id": f"part-{n}", "type": "part", "payload": {"n": n}, "queue": self.queue} for n in (1, 2)]
        total = {"id": "sum", "type": "sum", "queue": self.queue, "after": ["part-1", "part-2"]}
        self.server.command("flow", "start", "-", input=json.dumps({"nodes": [*parts, total]}))
        app.start()
        self.assertEqual(self.await_flow(), {"of": [10, 20], "failed": None})

    def await_flow(self):
        pause = threading.Event()
        for _ in range(int(rig.WAIT_LIMIT / 0.05)):
            flows = [json.loads(line) for line in self.server.command("flow", "list").splitlines()]
            if flows and flows[0]["state"] == "done":
                return self.server.inspect(flows[0]["tail"])["output"]
            pause.wait(0.05)
        self.fail(f"the flow does not end: {flows}")

    def test_a_worker_is_listed_while_it_works(self):
        app = self.app(name="listed", version="1.2.3")
        app.job("a")(lambda job: None)
        app.start()
        listed = self.server.command("workers")
        self.assertIn("listed", listed)
        self.assertIn("1.2.3", listed)
        app.stop()
        self.assertNotIn("listed", self.server.command("workers"))

    def test_jobs_without_a_handler_stay_for_other_workers(self):
        app = self.app()
        app.job("mine")(lambda job: "done")
        app.start()
        other, mine = self.enqueue("other"), self.enqueue("mine")
        self.await_state(mine, "done")
        self.assertEqual(self.server.inspect(other)["attempts"], 0)

    def test_many_jobs_run_in_many_threads(self):
        app = self.app(slots=64)
        seen = rig.Witness()

        @app.job("many")
        def many(job):
            seen.see(job.payload)

        app.start()
        self.client.enqueue_many([NewJob("many", n, queue=self.queue) for n in range(1_000)])
        self.assertEqual(sorted(seen.wait(1_000)), list(range(1_000)))

    def test_large_payloads_and_outputs_pass(self):
        app = self.app()
        app.job("echo")(lambda job: job.payload)
        app.start()
        id = self.enqueue("echo", "é" * 500_000)
        self.assertEqual(len(self.await_state(id, "done")["output"]), 500_000)

    def test_a_payload_that_python_cannot_read_harms_no_other_job(self):
        app = self.app()
        seen = rig.Witness()
        app.job("echo")(lambda job: seen.see((job.id, type(job.payload).__name__)))
        deep = self.enqueue("echo", b"[" * 5_000 + b"]" * 5_000)
        long = self.enqueue("echo", b"7" * 5_000)
        plain = self.enqueue("echo", [1])
        app.start()
        self.assertEqual(dict(seen.wait(3)), {deep: "bytes", long: "Decimal", plain: "list"})


class Stopping(rig.ServerCase):
    def test_handlers_may_finish(self):
        app = self.app()
        began, go = rig.Witness(), threading.Event()

        @app.job("long")
        def long(job):
            began.see(job.id)
            go.wait(rig.WAIT_LIMIT)
            return "finished"

        worker = app.start()
        id = self.enqueue("long")
        began.wait(1)
        worker.stop()
        self.assertTrue(worker.wait_quiet(rig.WAIT_LIMIT))
        late = self.enqueue("long")
        go.set()
        self.assertTrue(worker.join(rig.WAIT_LIMIT))
        self.assertEqual(self.server.inspect(id)["output"], "finished")
        self.assertEqual(self.server.inspect(late)["state"], "ready")

    def test_a_handler_that_does_not_finish_is_told_and_then_given_up(self):
        app = self.app(grace=0.1, cancel_wait=0.2)
        began, go = rig.Witness(), threading.Event()
        self.addCleanup(go.set)

        @app.job("polite")
        def polite(job):
            began.see(job.id)
            job.wait_cancelled(rig.WAIT_LIMIT)
            raise Cancelled

        @app.job("async")
        async def endless(job):
            began.see(job.id)
            await asyncio.Event().wait()

        @app.job("deaf")
        def deaf(job):
            began.see(job.id)
            go.wait(rig.WAIT_LIMIT)

        worker = app.start()
        ids = [self.enqueue(type) for type in ("polite", "async", "deaf")]
        began.wait(3)
        worker.stop()
        self.assertTrue(worker.join(rig.WAIT_LIMIT))
        for id in ids:
            job = self.server.inspect(id)
            self.assertEqual((job["state"], job["attempts"]), ("ready", 0), job)

    def test_an_app_can_be_started_again(self):
        app = self.app()
        app.job("a")(lambda job: "x")
        for _ in range(3):
            app.start()
            self.await_state(self.enqueue("a"), "done")
            app.stop()
        app.stop()


if __name__ == "__main__":
    unittest.main()
