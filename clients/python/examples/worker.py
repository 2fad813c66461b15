"""A worker in Python that counts the words of texts.

    pip install ./clients/python
    python3 clients/python/examples/worker.py http://127.0.0.1:7450

runs it on the server at this address, until Ctrl-C. With one command and without pip,
`cargo run -p taskharbor-web --example python` starts a server and this worker, and enqueues jobs.
"""

import sys
from collections import Counter

from taskharbor import App, Discard

app = App(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7450", queues={"python": 4})


@app.job("text:count", queue="python", max_attempts=3)
def count(job):
    words = job.payload["text"].lower().split()
    if not words:
        raise Discard("the text is empty")  # it stays empty, so the job is not retried
    word, times = Counter(words).most_common(1)[0]
    print(f"python: job {job.id}, attempt {job.attempt}: {len(words)} words", flush=True)
    return {"words": len(words), "most_common": word, "times": times}


if __name__ == "__main__":
    app.run()
