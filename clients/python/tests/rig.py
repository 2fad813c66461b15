"""A server with a file of its own, for tests that work against the real thing.

The program is named by the environment variable TASKHARBOR_PROGRAM. It is the command `taskharbor`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.join(ROOT, "src")
if SOURCE not in sys.path:
    sys.path.insert(0, SOURCE)

from taskharbor import App, Backoff, Client  # noqa: E402  (it is found now)

# Longer than anything that a test waits for takes, even on a busy machine.
WAIT_LIMIT = 30.0
QUICK = Backoff(base=0.05, cap=0.1, multiplier=1.0, jitter=0.0)


def program():
    """The command to test with."""
    path = os.environ.get("TASKHARBOR_PROGRAM")
    if not path:
        raise RuntimeError("TASKHARBOR_PROGRAM is not set: build taskharbor-cli and name the program there")
    return os.path.abspath(path)


def environment(**more):
    """That of a child process: without settings of the machine, with the package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKHARBOR_")}
    return {**kept, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", **more}


class Server:
    """`taskharbor serve` on a port of its own, and the command for its store."""

    def __init__(self, *options):
        self.dir = tempfile.mkdtemp(prefix="taskharbor-python-")
        self.store = "sqlite:" + os.path.join(self.dir, "jobs.db")
        self._options = options
        self._process = None
        self.url = None
        self.start()

    def start(self, port=0):
        """Starts it; a port that it had before is free again."""
        command = [program(), "serve", "--bind", f"127.0.0.1:{port}", "--url", f"main={self.store}?create=true"]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=self.dir, env=environment(), text=True,
        )
        for line in self._process.stdout:
            found = re.search(r"http://([\d.]+:\d+)", line)
            if found:
                self.url = found.group(0)
                return
        raise RuntimeError(f"the server ended with {self._process.wait()}")

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def kill(self):
        """Ends the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def restart(self):
        self.kill()
        self.start(self.port)

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self, *arguments, input=None):
        """Runs the command on the store; answers what it printed."""
        done = subprocess.run(
            [program(), *arguments, "--url", self.store, "--json"], check=False, input=input,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def inspect(self, id):
        """All there is to know about a job."""
        return json.loads(self.command("inspect", id))

    def counts(self):
        """How many jobs of all queues are in each state."""
        counts = {}
        for line in self.command("list", "--limit", "10000").splitlines():
            state = json.loads(line)["state"]
            counts[state] = counts.get(state, 0) + 1
        return counts


class ServerCase(unittest.TestCase):
    """Tests that share a server; each has queues of its own."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        self.queue = self._testMethodName[:60]
        self.client = Client(self.server.url)
        self.addCleanup(self.client.close)

    def app(self, slots=4, **options):
        """A worker of the test's queue, which ends with the test."""
        options.setdefault("backoff", QUICK)
        options.setdefault("grace", 5.0)
        app = App(self.server.url, queues={self.queue: slots}, **options)
        self.addCleanup(app.stop)
        return app

    def enqueue(self, type, payload=None, **options):
        return self.client.enqueue(type, payload, queue=self.queue, **options).id

    def await_state(self, id, state):
        """Waits until a job is in a state; answers all there is to know about it."""
        pause, end = threading.Event(), WAIT_LIMIT
        while end > 0:
            job = self.server.inspect(id)
            if job["state"] == state:
                return job
            # The store belongs to another process, which sends no notification of a change.
            pause.wait(0.05)
            end -= 0.05
        self.fail(f"the job is {job['state']} and not {state}: {job}")


class Witness:
    """What handlers have seen, in their order; a test waits until there is enough."""

    def __init__(self):
        self._changed = threading.Condition()
        self._seen = []

    def see(self, what):
        with self._changed:
            self._seen.append(what)
            self._changed.notify_all()

    def wait(self, count):
        """What was seen, as soon as it is this many."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._seen) >= count, WAIT_LIMIT):
                raise AssertionError(f"{len(self._seen)} were seen and not {count}: {self._seen[:20]}")
            return list(self._seen)
