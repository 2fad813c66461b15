"""The guide and the README: what they show runs as it stands."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import types
import unittest

import rig

GUIDE = os.path.join(rig.ROOT, "../../docs/guides/python.md")
README = os.path.join(rig.ROOT, "README.md")
RECIPE = os.path.join(rig.ROOT, "../../docs/guides/recipes/python-jobs.md")
MIGRATION = os.path.join(rig.ROOT, "../../docs/guides/recipes/migrating-from-celery.md")
ADDRESS = "http://127.0.0.1:7450"
# Blocks that need one of these are run where it is installed, and compiled everywhere.
FRAMEWORKS = ("django", "flask")


def blocks(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)


def is_missing(block):
    needed = [name for name in FRAMEWORKS if re.search(rf"^from {name}", block, re.MULTILINE)]
    return any(importlib.util.find_spec(name) is None for name in needed)


class Guides(unittest.TestCase):
    def setUp(self):
        self.server = rig.Server()
        self.addCleanup(self.server.close)

    def run_program(self, block):
        """Runs a block as the file that its first line names; answers its process."""
        path = os.path.join(self.server.dir, re.match(r"# (\w+\.py)", block).group(1))
        with open(path, "w", encoding="utf-8") as file:
            file.write(block.replace(ADDRESS, self.server.url))
        process = subprocess.Popen(
            [sys.executable, path], stdout=subprocess.PIPE, env=rig.environment(), text=True
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def namespace(self, path):
        """Runs the blocks of a text one after another, as one module that is imported."""
        module = types.ModuleType("guide")
        for block in blocks(path):
            code = compile(block.replace(ADDRESS, self.server.url), path, "exec")
            if not is_missing(block):
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(code, module.__dict__)
        return module

    def silence(self):
        """Keeps what handlers print out of the report."""
        silence = contextlib.redirect_stdout(io.StringIO())
        silence.__enter__()
        self.addCleanup(silence.__exit__, None, None, None)

    def test_the_first_two_programs_work_together(self):
        worker, enqueue = (self.run_program(block) for block in blocks(GUIDE)[:2])
        id = enqueue.stdout.readline().strip()
        self.assertEqual(worker.stdout.readline(), "sending to ada@example.com\n")
        worker.terminate()
        self.assertEqual((worker.wait(rig.WAIT_LIMIT), enqueue.wait(rig.WAIT_LIMIT)), (0, 0))
        job = self.server.inspect(id)
        self.assertEqual((job["state"], job["output"]), ("done", {"sent": True}))

    def test_what_the_guide_shows_runs(self):
        guide = self.namespace(GUIDE)
        guide.client.close()
        self.addCleanup(guide.app.stop)
        client = guide.app.client
        cases = {
            "page": ("page:fetch", {"url": "x"}, "done"),
            "good": ("card:charge", {"card": "ok"}, "done"),
            "night": ("card:charge", {"card": "night"}, "scheduled"),
            "stolen": ("card:charge", {"card": "stolen"}, "dlq"),
            "export": ("export:write", {"rows": 3}, "done"),
            "album": ("album:make", None, "done"),
        }
        ids = {name: client.enqueue(type, payload).id for name, (type, payload, _) in cases.items()}
        self.silence()
        guide.app.start()
        case = rig.ServerCase()
        case.server = self.server
        for name, (_, _, state) in cases.items():
            case.await_state(ids[name], state)

    def test_what_the_readme_shows_runs(self):
        readme = self.namespace(README)
        readme.client.close()
        self.addCleanup(readme.app.stop)
        self.silence()
        readme.app.start()
        case = rig.ServerCase()
        case.server = self.server
        id = readme.app.enqueue("email:send", {"to": "ada"}).id
        self.assertEqual(case.await_state(id, "done")["output"], {"sent": True})

    def test_what_the_recipes_show_runs(self):
        case = rig.ServerCase()
        case.server = self.server
        self.silence()
        for path, type, payload, output in [
            (RECIPE, "invoice:render", {"invoice": 7}, {"file": "invoice-7.pdf", "pages": 1}),
            (MIGRATION, "mail:welcome", {"to": "ada@example.com"}, {"sent": True}),
        ]:
            page = self.namespace(path)
            self.addCleanup(page.app.stop)
            page.app.start()
            queue = {"invoice:render": "python", "mail:welcome": "mail"}[type]
            id = page.app.enqueue(type, payload, queue=queue).id
            self.assertEqual(case.await_state(id, "done")["output"], output)


if __name__ == "__main__":
    unittest.main()
