"""What needs no server: values, outcomes, addresses, threads."""

import json
import os
import re
import threading
import unittest
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from unittest import mock

import rig
from taskharbor import App, Cancelled, Client, Discard, Job, NewJob, Retry, Snooze, TaskHarborError, Throttled
from taskharbor import __version__
from taskharbor._client import _batches, _new_id, _written
from taskharbor._http import Endpoint, _without_token
from taskharbor._json import decode, encode
from taskharbor._outcome import cut, failure, success
from taskharbor._pool import Pool
from taskharbor._settle import call_seconds


class Calls(unittest.TestCase):
    def test_a_call_may_take_longer_the_more_it_sends(self):
        self.assertEqual(call_seconds(""), 10.0)
        self.assertEqual(call_seconds("é" * 2 * 1024 * 1024), 26.0)


class Values(unittest.TestCase):
    def test_integers_are_exact(self):
        for number in (2**53 + 1, -(2**63), 2**64, 10**100):
            self.assertEqual(decode(encode([number], "it").encode()), [number])

    def test_an_integer_that_python_does_not_read_is_a_decimal(self):
        digits = "7" * 5_000
        value = decode(f'{{"a":{digits},"b":3}}'.encode())
        self.assertEqual(value, {"a": Decimal(digits), "b": 3})

    def test_what_is_not_json_is_refused(self):
        loop = []
        loop.append(loop)
        deep = []
        for _ in range(100_000):
            deep = [deep]
        for value in (float("nan"), float("inf"), {1, 2}, object(), loop, deep, {(1, 2): 3}, b"bytes"):
            with self.assertRaisesRegex(TaskHarborError, "cannot be written as JSON"):
                encode(value, "it")
        for data in (b"", b"{", b"<html>", b"[" * 100_000, b"\xff"):
            with self.assertRaises(ValueError):
                decode(data)

    def test_texts_are_exact(self):
        for text in ("é", "\u0000", "\U0001f4a5", "\u2028", "\ud800"):
            self.assertEqual(decode(encode(text, "it").encode()), text)


class Outcomes(unittest.TestCase):
    def of(self, error, reason=None):
        outcome = failure(error, reason)
        return outcome.kind, json.loads(outcome.text)

    def test_what_a_handler_returns_is_the_output(self):
        for output, text in [
            (None, "{}"),
            ({"é": [1, None]}, '{"output":{"é":[1,null]}}'),
            (b"\xff", '{"output_base64":"/w=="}'),
            (0, '{"output":0}'),
        ]:
            outcome = success(output)
            self.assertEqual((outcome.kind, outcome.text), ("ok", text))

    def test_an_output_that_is_not_json_is_a_permanent_failure(self):
        outcome = success({"a": float("nan")})
        said = json.loads(outcome.text)
        self.assertEqual((outcome.kind, said["retryable"]), ("error", False))
        self.assertIn("the output cannot be written as JSON", said["message"])
        for large in ("x" * 26_000_000, b"x" * 26_000_000):
            self.assertEqual(json.loads(success(large).text)["retryable"], False)

    def test_what_a_handler_raises_says_what_becomes_of_its_job(self):
        self.assertEqual(self.of(Snooze(5)), ("snooze", {"seconds": 5.0}))
        self.assertEqual(self.of(Throttled(timedelta(seconds=2).total_seconds())), ("throttled", {"seconds": 2.0}))
        self.assertEqual(self.of(Discard("no")), ("error", {"message": "no", "retryable": False}))
        self.assertEqual(self.of(Retry("later", after=3)), ("error", {"message": "later", "retry_after_seconds": 3.0}))
        self.assertEqual(self.of(Retry("later")), ("error", {"message": "later"}))
        self.assertEqual(self.of(KeyError("a")), ("error", {"message": "KeyError: 'a'"}))
        self.assertEqual(self.of(SystemExit(3)), ("error", {"message": "SystemExit: 3"}))

    def test_the_causes_of_an_error_are_told(self):
        try:
            try:
                raise OSError("no route")
            except OSError as error:
                raise ValueError("not sent") from error
        except ValueError as error:
            self.assertEqual(self.of(error)[1]["message"], "ValueError: not sent: OSError: no route")

    def test_a_handler_that_was_told_to_stop_has_not_failed(self):
        for reason in ("requested", "shutdown"):
            self.assertEqual(self.of(Cancelled(reason), reason), ("release", {"reason": reason}))
            self.assertEqual(self.of(ValueError(), reason), ("release", {"reason": reason}))
            self.assertEqual(self.of(Discard("no"), reason)[0], "error")

    def test_a_time_that_is_none_is_a_permanent_failure(self):
        pauses = (Snooze(float("nan")), Snooze(-1), Snooze("soon"), Throttled(1e300), Throttled(86_401))
        for error in (*pauses, Retry("x", after=-1)):
            kind, said = self.of(error)
            self.assertEqual((kind, said["retryable"]), ("error", False))

    def test_an_error_that_cannot_be_printed_is_told_all_the_same(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError

        self.assertEqual(self.of(Odd())[1]["message"], "Odd: (its text cannot be made)")
        self.assertEqual(self.of(ValueError("\ud800"))[1]["message"], "ValueError: ?")

    def test_long_texts_are_cut_between_characters(self):
        self.assertEqual(len(cut("é" * 10_000).encode()), 8 * 1024)
        self.assertEqual(len(cut("a" + "é" * 10_000).encode()), 8 * 1024 - 1)


class Addresses(unittest.TestCase):
    def test_an_address_may_have_a_path_a_token_and_a_store(self):
        at = Endpoint("https://:s%40cret@jobs.example.com/admin/?store=eu")
        self.assertEqual((at.host, at.port, at.prefix), ("jobs.example.com", 443, "/admin/v1/eu"))
        self.assertEqual(at.headers["Authorization"], "Bearer s@cret")
        self.assertNotIn("cret", repr(at))
        at = Endpoint("http://[::1]:7450", "token", "a/b")
        self.assertEqual((at.host, at.port, at.prefix), ("::1", 7450, "/v1/a%2Fb"))
        self.assertEqual(at.headers["Authorization"], "Bearer token")

    def test_a_token_is_an_argument_a_parameter_or_a_variable_in_this_order(self):
        def token(url, **options):
            return Endpoint(url, **options).headers.get("Authorization")

        with mock.patch.dict(os.environ, {"TASKHARBOR_TOKEN": "variable"}):
            self.assertEqual(token("http://a"), "Bearer variable")
            self.assertEqual(token("http://:password@a"), "Bearer password")
            self.assertEqual(token("http://a?token=a%26b+c"), "Bearer a&b+c")
            self.assertEqual(token("http://a/?store=eu&token=parameter", token="argument"), "Bearer argument")
            app = App("http://a/?store=eu&token=parameter", queues={"q": 1})
            for at in (app.client._endpoint, app._settings.endpoint):
                self.assertEqual((at.headers["Authorization"], at.prefix), ("Bearer parameter", "/v1/eu"))
        self.assertEqual(Endpoint("http://a/p?store=eu", store="us").prefix, "/p/v1/us")

    def test_unknown_parameters_of_an_address_are_refused(self):
        for query, message in (
            ("tokn=secret", "unknown parameter `tokn` in the address of the server: use store or token"),
            ("token=a&secret2=b", "write & = # % of a value as"),
            ("token=", "the parameter `token` in the address of the server is empty"),
            ("store", "the parameter `store` in the address of the server is empty"),
            ("token=a#secret", "remove the part from there on"),
        ):
            with self.assertRaisesRegex(TaskHarborError, re.escape(message)) as caught:
                Client(f"http://a/?{query}")
            self.assertNotIn("secret", str(caught.exception))
        with self.assertRaises(TaskHarborError) as caught:
            Client("localhost:7450?token=secret")
        self.assertNotIn("secret", str(caught.exception))

    def test_what_is_no_address_is_refused_without_its_token(self):
        for url in ("", "localhost:7450", "ftp://a", "http://", "http://a:port", "redis://:secret@a", "http://:secret@:7"):
            with self.assertRaises(TaskHarborError) as caught:
                Client(url)
            self.assertNotIn("secret", str(caught.exception))
        self.assertEqual(_without_token("http://u:secret@a"), "http://…@a")
        with self.assertRaisesRegex(TaskHarborError, "invalid token"):
            Client("http://a", token="two\nlines")


class Jobs(unittest.TestCase):
    def test_new_ids_are_uuids_of_version_7_and_sort_by_time(self):
        ids = [_new_id() for _ in range(1_000)]
        self.assertEqual(len(set(ids)), 1_000)
        for id in ids:
            self.assertRegex(id, "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        prefixes = [id[:13] for id in ids]
        self.assertEqual(prefixes, sorted(prefixes))

    def test_a_time_without_a_zone_is_refused(self):
        with self.assertRaisesRegex(TaskHarborError, "time zone"):
            NewJob("a", run_at=datetime(2030, 1, 1)).to_json()
        zone = timezone(timedelta(hours=2))
        job = NewJob("a", run_at=datetime(2030, 1, 1, 1, tzinfo=zone)).to_json()
        self.assertEqual(job["run_at"], "2029-12-31T23:00:00.000000Z")

    def test_jobs_are_sent_in_calls_of_bounded_size(self):
        many = [_written(NewJob("a", 1)) for _ in range(2_500)]
        self.assertEqual([len(batch) for batch in _batches(many)], [1_000, 1_000, 500])
        large = [_written(NewJob("a", "x" * 3_000_000)) for _ in range(3)]
        self.assertEqual([len(batch) for batch in _batches(large)], [1, 1, 1])
        self.assertEqual(list(_batches([])), [])

    def test_a_job_tells_its_handler_to_stop(self):
        granted = {
            "id": "a", "type": "t", "queue": "q", "payload_base64": "/w==", "attempt": 1, "max_attempts": 2,
            "deliveries": 1, "priority": 0, "created_at": "2030-01-01T00:00:00.000001Z",
        }
        heard = []
        job = Job(granted, lambda job: {}, lambda: heard.append(1))
        self.assertEqual((job.payload, job.created_at.microsecond, job.inputs().value), (b"\xff", 1, None))
        job.check()
        job.progress(3)
        self.assertEqual((job._progress, heard), ("3", [1]))
        self.assertTrue(job._cancel("requested"))
        self.assertFalse(job._cancel("shutdown"))
        self.assertTrue(job.wait_cancelled(0) and job.cancelled)
        with self.assertRaisesRegex(Cancelled, "requested"):
            job.check()


class Apps(unittest.TestCase):
    def test_invalid_settings_are_refused(self):
        for options in (
            {"queues": {}},
            {"queues": {"a": 0}},
            {"queues": {"a": 1}, "lease": 0.5},
            {"queues": {"a": 1}, "lease": float("nan")},
            {"queues": {"a": 1}, "poll": 31},
            {"queues": {"a": 1}, "grace": -1},
        ):
            with self.assertRaises(TaskHarborError):
                App("http://127.0.0.1:1", **options)

    def test_handlers_that_would_not_run_are_refused(self):
        app = App("http://127.0.0.1:1", queues={"a": 1})
        app.job("a")(lambda job: None)
        with self.assertRaisesRegex(TaskHarborError, "has a handler already"):
            app.job("a")(lambda job: None)

        def generator(job):
            yield

        async def stream(job):
            yield

        for function in (generator, stream):
            with self.assertRaisesRegex(TaskHarborError, "generator"):
                app.job("b")(function)
        with self.assertRaisesRegex(TaskHarborError, "no handlers"):
            App("http://127.0.0.1:1", queues={"a": 1}).start()

    def test_the_name_is_that_of_the_process(self):
        app = App("http://127.0.0.1:1", queues={"a": 1})
        self.assertEqual(app.name, app.name)
        self.assertEqual(App("http://127.0.0.1:1", queues={"a": 1}, name="w").name, "w")

    def test_the_version_is_that_of_the_package(self):
        with open(f"{rig.ROOT}/pyproject.toml", encoding="utf-8") as file:
            self.assertIn(f'version = "{__version__}"', file.read())


class Pools(unittest.TestCase):
    def test_work_never_waits_for_a_thread(self):
        pool, count = Pool(), 40
        for _ in range(3):
            barrier, done = threading.Barrier(count + 1), threading.Semaphore(0)

            def work():
                barrier.wait(rig.WAIT_LIMIT)
                done.release()

            for _ in range(count):
                pool.run(work)
            # All run at once, or the barrier would not open.
            barrier.wait(rig.WAIT_LIMIT)
            for _ in range(count):
                self.assertTrue(done.acquire(timeout=rig.WAIT_LIMIT))
        pool.end()


if __name__ == "__main__":
    unittest.main()
