"""A worker as a program of its own, which tests start and kill.

Its handlers write what they do into a file, a line for each step: when by the clock of the machine, the
process, the step, the job.
"""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

from taskharbor import App, Backoff, Cancelled  # noqa: E402


def main(url, queue, path, lease, grace):
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(step, id):
        os.write(log, f"{time.monotonic()} {os.getpid()} {step} {id}\n".encode())

    quick = Backoff(base=0.05, cap=0.1, multiplier=1.0, jitter=0.0)
    app = App(url, queues={queue: 4}, lease=lease, grace=grace, cancel_wait=1.0, backoff=quick, crash_limit=100)

    @app.job("work")
    def work(job):
        note("begin", job.id)
        job.wait_cancelled(job.payload)
        if job.cancelled:
            note(f"stopped-{job.cancel_reason}", job.id)
            raise Cancelled
        note("end", job.id)

    @app.job("deaf")
    def deaf(job):
        note("begin", job.id)
        time.sleep(job.payload)
        note("end", job.id)

    @app.job("fork")
    def fork(job):
        pid = os.fork()
        if pid == 0:
            # With the signals of the worker, but not the worker.
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    note("started", "-")
    app.run()
    note("ended", "-")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
