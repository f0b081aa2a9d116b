"""The emulator and its events: small functions in Python, correct and faulty ones."""

import base64
import gzip
import http.client
import json
import os
import stat
import sys
import tempfile
import threading
import time
import unittest
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import events
import flood
import gateways
import store
import thaw
from runtime import Function, FunctionFailed

BOOTSTRAP = """
import json, os, sys, threading, time, urllib.error, urllib.request
API = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/"
def post(path, value):
    urllib.request.urlopen(urllib.request.Request(API + path, json.dumps(value).encode(), method="POST")).read()
def counting():
    global count
    while True:
        count += 1
count = 0
if "broken" in sys.argv:
    sys.exit(3)
if "unready" in sys.argv:
    post("init/error", {"errorMessage": "no table"})
    time.sleep(60)
while True:
    with urllib.request.urlopen(API + "invocation/next") as response:
        name, event = response.headers["Lambda-Runtime-Aws-Request-Id"], json.load(response)
    left = int(response.headers["Lambda-Runtime-Deadline-Ms"]) / 1000 - time.time()
    if event == "count":
        threading.Thread(target=counting, daemon=True).start()
    if event == "end":
        os._exit(7)
    if event == "kill":
        os.kill(os.getpid(), 9)
    if event == "hang":
        time.sleep(60)
    if event == "fail":
        post(f"invocation/{name}/error", {"errorMessage": "on purpose"})
        continue
    if str(event).startswith("repeat "):
        post(f"invocation/{name}/response", "x" * (int(event[7:]) - 2))
        continue
    post(f"invocation/{name}/response", {"event": event, "count": count, "left": left, "wall": time.time(), "monotonic": time.monotonic(), "environment": dict(os.environ)})
"""


class Small(BaseHTTPRequestHandler):
    """A store that responds to each request with an empty object, on connections that stay open."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


class Emulated(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.bootstrap = Path(self.directory.name) / "bootstrap"
        self.bootstrap.write_text(f"#!{sys.executable}\n{BOOTSTRAP}")
        self.bootstrap.chmod(self.bootstrap.stat().st_mode | stat.S_IXUSR)

    def function(self, *arguments, **settings):
        return Function([self.bootstrap, *arguments], "small", **settings)

    def test_events_are_handled_in_order_and_timed(self):
        with self.function(timeout=20) as function:
            responses = [function.invoke({"number": n}) for n in range(3)]
        self.assertEqual([response.value()["event"] for response in responses], [{"number": n} for n in range(3)])
        self.assertGreater(function.first_poll_seconds, 0)
        self.assertTrue(all(0 < response.seconds < 10 for response in responses))
        self.assertTrue(10 < responses[0].value()["left"] < 20.1, "the deadline is that of the time-out")

    def test_a_response_has_six_mebibytes_and_no_more(self):
        with self.function() as function:
            self.assertEqual(len(function.invoke("repeat 6291556").value()), 6291554)
            with self.assertRaisesRegex(FunctionFailed, "ResponseSizeTooLarge"):
                function.invoke("repeat 6291557").value()
            self.assertEqual(function.invoke(1).value()["event"], 1)

    def test_the_environment_is_lambdas_alone(self):
        os.environ["PENNON_OF_THE_CALLER"] = "1"
        self.addCleanup(os.environ.pop, "PENNON_OF_THE_CALLER")
        with self.function(environment={"PENNON_LOG": "warn"}, memory=1769) as function:
            environment = function.invoke(0).value()["environment"]
        self.assertNotIn("PENNON_OF_THE_CALLER", environment)
        self.assertNotIn("HOME", environment)
        expected = {"AWS_LAMBDA_FUNCTION_NAME": "small", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769", "PENNON_LOG": "warn",
                  "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST"}
        self.assertEqual({name: environment[name] for name in expected}, expected)

    def test_a_process_is_halted_from_its_response_to_the_next_event(self):
        def state(function):
            return Path(f"/proc/{function.process.pid}/stat").read_text().rsplit(") ", 1)[1][0]

        def ran(function):
            tasks = Path(f"/proc/{function.process.pid}/task").glob("*/schedstat")
            return sum(int(task.read_text().split()[0]) for task in tasks)

        with self.function() as function:
            function.invoke("count")
            self.assertEqual(state(function), "T")
            before = ran(function)
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass
            self.assertEqual(ran(function), before)
            self.assertEqual(function.invoke(1).value()["event"], 1)
        with self.function(halts=False) as function:
            function.invoke("count")
            self.assertNotEqual(state(function), "T")

    def test_the_wall_clock_goes_on_while_a_process_is_frozen_and_the_monotonic_clock_stands_still(self):
        clock = thaw.WallClock(self.directory.name)
        with self.function(timeout=20, environment=clock.environment, clock=clock) as function:
            before = function.invoke({}).value()
            clock.forward(600)
            after = function.invoke({}).value()
        self.assertGreaterEqual(after["wall"] - before["wall"], 600)
        self.assertLess(after["monotonic"] - before["monotonic"], 60)
        self.assertTrue(0 < after["left"] < 20.1, "the deadline is of the same clock")

    def test_severed_connections_stay_open_and_respond_to_nothing(self):
        upstream = ThreadingHTTPServer(("127.0.0.1", 0), Small)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        self.addCleanup(upstream.server_close)
        self.addCleanup(upstream.shutdown)
        proxy = store.Proxy(f"http://127.0.0.1:{upstream.server_port}")
        self.addCleanup(proxy.close)

        def connect():
            connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=0.2)
            self.addCleanup(connection.close)
            connection.request("POST", "/", b"{}")
            return connection

        connection = connect()
        self.assertEqual(connection.getresponse().read(), b"{}")
        self.assertEqual(proxy.sever(), 1)
        connection.request("POST", "/", b"{}")
        self.assertRaises(TimeoutError, connection.getresponse)
        self.assertEqual(proxy.lost, 1)
        self.assertEqual(connect().getresponse().read(), b"{}")

    def test_errors_endings_and_time_outs_are_distinguished(self):
        def outcome(event, **settings):
            with self.function(**settings) as function:
                outcome = function.invoke(event)
            with self.assertRaises(FunctionFailed):
                outcome.value()
            return outcome.kind, outcome.payload

        self.assertEqual(outcome("fail"), ("error", b'{"errorMessage": "on purpose"}'))
        self.assertEqual(outcome("end"), ("ended", "small: exit status 7"))
        self.assertEqual(outcome("kill"), ("ended", "small: signal: SIGKILL"))
        self.assertEqual(outcome("hang", timeout=0.3), ("timed out", "small: Task timed out after 0.30 seconds"))

    def test_an_error_is_followed_by_the_next_event(self):
        with self.function() as function:
            self.assertEqual(function.invoke("fail").kind, "error")
            self.assertEqual(function.invoke(2).value()["event"], 2)

    def test_a_failed_start_names_the_reason(self):
        for argument, why in (("broken", "exit status 3"), ("unready", "no table")):
            with self.assertRaisesRegex(FunctionFailed, why):
                self.function(argument).start()


class LimitsOfGateways(unittest.TestCase):
    def test_a_bucket_has_its_burst_and_is_refilled(self):
        now = [0.0]
        bucket = flood.Bucket(10, 5, lambda: now[0])
        self.assertEqual([bucket.take() for _ in range(6)], [True] * 5 + [False])
        now[0] = 0.25
        self.assertEqual([bucket.take() for _ in range(3)], [True, True, False])
        now[0] = 60.0
        self.assertEqual(sum(bucket.take() for _ in range(9)), 5)

    def test_a_route_with_a_limit_leaves_the_account_to_others(self):
        limits = flood.Limits({"rest": (2_500, 1_250), "http": (1_000, 500)}, lambda: 0.0)
        self.assertEqual(sum(limits.admits("rest", "/e") for _ in range(1_000)), 6)
        self.assertTrue(limits.admits("rest", "/flags") and limits.admits("http", "/api/projects"))
        shared = flood.Limits(None, lambda: 0.0)
        self.assertEqual(sum(shared.admits("rest", "/e") for _ in range(1_000)), 25)
        self.assertFalse(shared.admits("rest", "/flags"))


class Events(unittest.TestCase):
    request = events.Request("POST", "/a/b c/", [("x", "1"), ("x", "2 & ä"), ("y", "")],
                             [("Content-Type", "application/json"), ("Cookie", "a=1; b=2"), ("X-Two", "1"), ("X-Two", "2")],
                             b"{}")

    def test_form_two(self):
        event = events.http_api(self.request)
        self.assertEqual(event["rawQueryString"], "x=1&x=2+%26+%C3%A4&y=")
        self.assertEqual(event["queryStringParameters"], {"x": "1,2 & ä", "y": ""})
        self.assertEqual(event["headers"]["x-two"], "1,2")
        self.assertEqual((event["cookies"], event["rawPath"]), (["a=1", "b=2"], "/a/b c/"))
        self.assertEqual((event["body"], event["isBase64Encoded"]), ("{}", False))
        self.assertEqual(events.http_api(self.request, "prod")["rawPath"], "/prod/a/b c/")
        self.assertIn(".lambda-url.", events.function_url(self.request)["requestContext"]["domainName"])

    def test_form_one(self):
        event = events.rest_api(self.request)
        self.assertEqual((event["path"], event["requestContext"]["path"]), ("/a/b c/", "/prod/a/b c/"))
        self.assertEqual(event["multiValueQueryStringParameters"], {"x": ["1", "2 & ä"], "y": [""]})
        self.assertEqual(event["queryStringParameters"], {"x": "2 & ä", "y": ""})
        self.assertEqual(event["multiValueHeaders"]["X-Two"], ["1", "2"])
        self.assertEqual((event["body"], event["isBase64Encoded"]), ("e30=", True))

    def test_bodies_that_are_no_text_are_base64(self):
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        for headers, text in (([], False), (form, False), ([("content-type", "text/csv")], True), ([("content-type", "application/json; charset=utf-8")], True)):
            event = events.http_api(events.Request("POST", "/", [], headers, b"a=1"))
            self.assertEqual(event["isBase64Encoded"], not text, headers)
        packed = events.Request("POST", "/", [], [("content-type", "application/json"), ("content-encoding", "gzip")], b"\x1f\x8b")
        binary = events.Reading.BINARY
        for event in (events.http_api(packed, reading=binary), events.function_url(packed, binary), events.rest_api(packed)):
            self.assertEqual((base64.b64decode(event["body"]), event["isBase64Encoded"]), (b"\x1f\x8b", True))

    def test_gzip_that_is_taken_for_text_is_destroyed(self):
        plain = events.Request("POST", "/e/", [], [("Content-Type", "text/plain")], b"\x1f\x8b\x08\x00\xff")
        packed = replace(plain, headers=[("Content-Type", "application/json; charset=utf-8"), ("Content-Encoding", "gzip")])
        destroyed = b"\x1f\xef\xbf\xbd\x08\x00\xef\xbf\xbd"
        for form in (events.http_api, events.function_url):
            self.assertEqual([events.received(form(it)) for it in (plain, packed)], [destroyed] * 2)
            self.assertEqual([events.received(form(it, reading=events.Reading.BINARY)) for it in (plain, packed)], [destroyed, packed.body])
        for make in (events.rest_api, gateways.deployed):
            self.assertEqual([events.received(make(it)) for it in (plain, packed)], [plain.body] * 2)

    def test_a_rest_api_may_decompress_bodies_with_a_content_encoding(self):
        packed = events.Request("POST", "/e/", [], [("Content-Encoding", "gzip")], gzip.compress(b"{}"))
        self.assertEqual(events.received(events.rest_api(packed, inflates=True)), b"{}")
        self.assertEqual(events.received(events.rest_api(replace(packed, headers=[]), inflates=True)), packed.body)

    def test_the_distribution_chooses_the_gateway(self):
        def deployed(path):
            event = gateways.deployed(events.Request("GET", path), "d1.example")
            host = event["headers"].get("x-forwarded-host")
            return event.get("version", "1.0"), event.get("rawPath", event.get("path")), event["requestContext"]["stage"], host

        self.assertEqual(deployed("/flags/"), ("1.0", "/flags", "live", None))
        self.assertEqual(deployed("/i/v0/e/"), ("1.0", "/i/v0/e", "live", None))
        self.assertEqual(deployed("/flags/definitions/"), ("2.0", "/flags/definitions", "$default", None))
        self.assertEqual(deployed("/api/projects/"), ("2.0", "/api/projects/", "$default", "d1.example"))

    def test_a_response_is_read_in_both_forms(self):
        one = {"statusCode": 200, "headers": {}, "multiValueHeaders": {"Vary": ["a", "b"]}, "body": "aGk=", "isBase64Encoded": True}
        self.assertEqual(events.response_of(one), (200, {"vary": "a, b"}, b"hi"))
        self.assertEqual(events.response_of(json.loads('{"statusCode": 204, "headers": {"A": "b"}, "body": null}')), (204, {"a": "b"}, b""))


if __name__ == "__main__":
    unittest.main()
