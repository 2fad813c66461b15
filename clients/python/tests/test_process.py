"""Workers as processes: signals, and kill -9 at random moments."""

import collections
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import rig
from taskharbor import Client, NewJob

KILLS = 20
JOBS = 400
LEASE = 1.0


class Log:
    """What the workers of a test have written."""

    def __init__(self, path):
        self.path = path

    def lines(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                split = [line.split() for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [(float(at), int(pid), step, id) for at, pid, step, id in split]

    def wait(self, is_enough):
        """Waits until there is what a test looks for; answers all lines."""
        pause, end = threading.Event(), time.monotonic() + rig.WAIT_LIMIT
        while time.monotonic() < end:
            lines = self.lines()
            if is_enough(lines):
                return lines
            # There is no notification that a file has grown.
            pause.wait(0.02)
        raise AssertionError(f"timed out; the last lines were: {lines[-20:]}")

    def wait_step(self, step, count=1):
        return self.wait(lambda lines: sum(line[2] == step for line in lines) >= count)


class ProcessCase(rig.ServerCase):
    def setUp(self):
        super().setUp()
        self.log = Log(os.path.join(self.server.dir, f"{self.queue}.log"))

    def start(self, *flags, lease=LEASE, grace=15.0, url=None):
        """Starts a worker of the test's queue, which ends with the test."""
        script = os.path.join(rig.ROOT, "tests", "program.py")
        process = subprocess.Popen(
            [sys.executable, *flags, script, url or self.server.url, self.queue, self.log.path, str(lease), str(grace)],
            env=rig.environment(), stderr=subprocess.DEVNULL,
        )
        self.addCleanup(self.kill, process)
        return process

    def kill(self, process):
        process.kill()
        process.wait()


class Signals(ProcessCase):
    def test_sigterm_lets_handlers_finish(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                ended = sum(line[2] == "end" for line in self.log.lines())
                worker = self.start("-O")
                id = self.enqueue("work", 0.5)
                begun = ended + 1
                self.log.wait_step("begin", begun)
                worker.send_signal(number)
                self.assertEqual(worker.wait(rig.WAIT_LIMIT), 0)
                self.assertEqual(self.server.inspect(id)["state"], "done")
                self.assertIn("ended", self.log.lines()[-1])

    def test_a_second_signal_ends_the_worker_at_once(self):
        worker = self.start(grace=3_600.0)
        id = self.enqueue("work", 3_600)
        self.log.wait_step("begin")
        worker.send_signal(signal.SIGTERM)
        pause = threading.Event()
        # Two that come together may arrive as one.
        while not any(line[2] == "stopped-shutdown" for line in self.log.lines()):
            worker.send_signal(signal.SIGTERM)
            pause.wait(0.2)
        self.assertEqual(worker.wait(rig.WAIT_LIMIT), 0)
        job = self.server.inspect(id)
        self.assertEqual((job["state"], job["attempts"]), ("ready", 0))
        self.assertEqual(sum(line[2] == "stopped-shutdown" for line in self.log.lines()), 1)

    def test_a_handler_that_does_not_stop_is_left_behind(self):
        worker = self.start(grace=0.2)
        id = self.enqueue("deaf", 3_600)
        self.log.wait_step("begin")
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(rig.WAIT_LIMIT), 0)
        job = self.server.inspect(id)
        self.assertEqual((job["state"], job["attempts"]), ("ready", 0))

    def test_a_worker_stops_while_its_server_is_away(self):
        server = rig.Server()
        self.addCleanup(server.close)
        with Client(server.url) as client:
            client.enqueue("work", 0.0, queue=self.queue)
        worker = self.start(url=server.url, grace=1.0)
        self.log.wait_step("end")
        server.kill()
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(rig.WAIT_LIMIT), 0)

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_process_that_a_handler_forks_has_its_own_signals(self):
        worker = self.start()
        job = self.await_state(self.enqueue("fork"), "done")
        self.assertEqual(job["output"], -signal.SIGTERM)
        self.await_state(self.enqueue("work", 0.0), "done")
        self.assertIsNone(worker.poll())


class Killed(ProcessCase):
    def test_no_job_is_lost_when_workers_are_killed(self):
        seed = int(os.environ.get("TASKHARBOR_SEED") or random.SystemRandom().randrange(2**32))
        print(f"\nkilling workers with TASKHARBOR_SEED={seed}", file=sys.stderr)
        chance = random.Random(seed)
        stored = []

        def enqueue(count):
            jobs = [NewJob("work", round(chance.uniform(0.0, 0.06), 3), queue=self.queue) for _ in range(count)]
            stored.extend(job.id for job in self.client.enqueue_many(jobs))

        enqueue(JOBS)
        workers, killed_at, pause = [self.start(), self.start()], {}, threading.Event()
        for _ in range(KILLS):
            # The moment is what is random; nothing is waited for.
            pause.wait(chance.uniform(0.05, 0.5))
            victim = workers.pop(chance.randrange(len(workers)))
            self.kill(victim)
            killed_at[victim.pid] = time.monotonic()
            workers.append(self.start())
            enqueue(5)
        self.assertEqual(len(set(stored)), JOBS + 5 * KILLS)
        # A worker takes signals once it works; one that has just been started does not yet.
        end = time.monotonic() + rig.WAIT_LIMIT
        pids = {worker.pid for worker in workers}
        while not pids <= {pid for _, pid, step, _ in self.log.lines() if step == "begin"}:
            self.assertLess(time.monotonic(), end, "a worker runs no job")
            enqueue(5)
            pause.wait(0.1)
        self.log.wait(lambda lines: set(stored) <= {id for _, _, step, id in lines if step == "end"})
        # What has ended is recorded as well, or will run again until it is.
        end = time.monotonic() + rig.WAIT_LIMIT
        while self.states() != {"done": len(stored)} and time.monotonic() < end:
            pause.wait(0.1)
        self.assertEqual(self.states(), {"done": len(stored)})
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            self.assertEqual(worker.wait(rig.WAIT_LIMIT), 0)
        self.assert_no_overlap(killed_at)

    def states(self):
        lines = self.server.command("list", "--queue", self.queue, "--limit", "10000").splitlines()
        return collections.Counter(line.split('"state":"')[1].split('"')[0] for line in lines)

    def assert_no_overlap(self, killed_at):
        """No job ran in two places: each run began after the one before had ended or had been killed."""
        runs = collections.defaultdict(list)
        for at, pid, step, id in self.log.lines():
            if step == "begin":
                runs[id].append([at, killed_at.get(pid), pid])
            elif step == "end":
                run = next(run for run in reversed(runs[id]) if run[2] == pid)
                run[1] = at
        again = 0
        for id, those in runs.items():
            for before, after in zip(those, those[1:]):
                again += 1
                self.assertIsNotNone(before[1], f"{id} runs twice: {those}")
                self.assertLessEqual(before[1], after[0], f"{id} ran twice at once: {those}")
        self.assertGreater(again, 0, "no worker was killed while it ran a job")


if __name__ == "__main__":
    unittest.main()
