"""Enqueueing through a server."""

import os
import socket
import subprocess
import threading
import unittest
from datetime import datetime, timedelta, timezone

import rig
from taskharbor import ApiError, App, Client, NewJob, TaskHarborError, Unavailable


class Enqueueing(rig.ServerCase):
    def test_a_job_is_stored_with_all_that_is_said_about_it(self):
        stored = self.client.enqueue(
            "email:send", {"to": "ada", "n": 2**70}, queue=self.queue, id="mail-7", idempotency_key="k", delay=3600,
            priority=5, lane="acme", max_attempts=3, timeout=1.5, headers={"trace": "é"},
        )
        self.assertEqual((stored.id, stored.existed), ("mail-7", False))
        job = self.server.inspect("mail-7")
        self.assertEqual((job["type"], job["queue"], job["state"]), ("email:send", self.queue, "scheduled"))
        self.assertEqual((job["priority"], job["lane"], job["max_attempts"]), (5, "acme", 3))
        self.assertEqual(job["payload"]["n"], 2**70)

    def test_an_id_or_a_key_stands_for_one_job(self):
        first = self.client.enqueue("a", queue=self.queue, idempotency_key="k")
        second = self.client.enqueue("a", queue=self.queue, idempotency_key="k")
        self.assertEqual((second.id, second.existed), (first.id, True))
        third = self.client.enqueue("a", queue=self.queue, id=first.id)
        self.assertEqual((third.id, third.existed), (first.id, True))

    def test_a_time_to_run_at_keeps_a_job_waiting(self):
        at = datetime.now(timezone.utc) + timedelta(days=1)
        id = self.enqueue("a", run_at=at)
        self.assertEqual(self.server.inspect(id)["state"], "scheduled")

    def test_many_jobs_are_stored_in_their_order(self):
        stored = self.client.enqueue_many([NewJob("a", n, queue=self.queue) for n in range(1_200)])
        self.assertEqual(len({job.id for job in stored}), 1_200)
        self.assertEqual(self.server.inspect(stored[1_150].id)["payload"], 1_150)
        self.assertEqual(self.client.enqueue_many([]), [])

    def test_large_payloads_are_stored(self):
        large = NewJob("a", "é" * 500_000, queue=self.queue), NewJob("a", b"\xff" * 1_000_000, queue=self.queue)
        # More than one call takes.
        stored = self.client.enqueue_many(large * 20)
        self.assertEqual(len({job.id for job in stored}), 40)
        with self.assertRaisesRegex(ApiError, "enqueue a reference"):
            self.enqueue("a", "x" * 2_000_000)
        with self.assertRaisesRegex(TaskHarborError, "store it elsewhere"):
            self.enqueue("a", "x" * 40_000_000)

    def test_a_job_that_is_refused_says_why_and_the_others_are_stored(self):
        with self.assertRaises(ApiError) as caught:
            self.client.enqueue_many([NewJob("a", id="good-1"), NewJob(""), NewJob("a", id="good-2")])
        self.assertEqual((caught.exception.status, caught.exception.code), (200, "invalid_request"))
        self.assertTrue(caught.exception.detail)
        self.assertEqual(self.server.inspect("good-2")["state"], "ready")

    def test_a_payload_that_is_not_json_stores_nothing(self):
        with self.assertRaises(TaskHarborError):
            self.client.enqueue_many([NewJob("a", id="before"), NewJob("a", float("nan"))])
        with self.assertRaises(RuntimeError):
            self.server.inspect("before")

    def test_threads_share_a_client(self):
        ids, lock = set(), threading.Lock()

        def enqueue():
            for _ in range(20):
                id = self.enqueue("a")
                with lock:
                    ids.add(id)
            self.client.close()

        threads = [threading.Thread(target=enqueue) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(rig.WAIT_LIMIT)
        self.assertEqual(len(ids), 160)

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_process_that_is_forked_has_a_connection_of_its_own(self):
        self.enqueue("a")
        pids = []
        for number in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    for _ in range(20):
                        self.client.enqueue("a", queue=self.queue, id=f"{self.queue}-{number}")
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        for _ in range(50):
            self.assertFalse(self.client.enqueue("a", queue=self.queue).existed)
        self.assertEqual([os.waitpid(pid, 0)[1] for pid in pids], [0, 0, 0])


class Connecting(unittest.TestCase):
    def test_a_server_that_is_away_is_unavailable(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with self.assertRaises(Unavailable):
                Client(url, timeout=0.3).enqueue("a")

    def test_a_server_that_comes_back_in_time_gets_the_job(self):
        server = rig.Server()
        self.addCleanup(server.close)
        client = Client(server.url, timeout=rig.WAIT_LIMIT)
        self.addCleanup(client.close)
        client.enqueue("a", queue="q")
        server.kill()
        starting = threading.Timer(0.3, server.start, [server.port])
        starting.start()
        stored = client.enqueue("a", queue="q")
        starting.join()
        self.assertFalse(stored.existed)
        self.assertEqual(server.counts(), {"ready": 2})

    def test_tokens_decide(self):
        dir = rig.Server()
        dir.kill()
        self.addCleanup(dir.close)
        file = os.path.join(dir.dir, "tokens.json")

        def add(*options):
            command = [rig.program(), "token", "add", *options, "--tokens", file]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        token, viewer = add("worker", "--workers"), add("viewer")
        server = rig.Server("--tokens", file)
        self.addCleanup(server.close)
        with Client(server.url, token=token) as client:
            self.assertFalse(client.enqueue("a").existed)
        for wrong, status in ((None, 401), ("th_wrong", 401), (viewer, 403)):
            with self.assertRaises(ApiError) as caught, Client(server.url, token=wrong) as client:
                client.enqueue("a")
            self.assertEqual(caught.exception.status, status)
            app = App(server.url, queues={"default": 1}, token=wrong)
            app.job("a")(lambda job: None)
            with self.assertRaises(ApiError):
                app.start()
            self.assertNotIn(wrong or "None", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
