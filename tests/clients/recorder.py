"""A forwarding server between a client and the product. It records every request: status, time, origin page, whether it has
cookies, and the events in its body. It changes a body only as the gateway does that a deployment has for its path."""

import base64
import gzip
import http.client
import json
import sys
import threading
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lambda"))
import events  # noqa: E402
import gateways  # noqa: E402

# The gateways of template.yaml, and an HTTP API alone, under the worse reading of what AWS documents.
GATEWAYS = {"deployed": gateways.deployed, "http": events.http_api}
# Hop-by-hop headers, which a proxy must not forward.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


@dataclass
class Exchange:
    method: str
    path: str
    headers: dict
    status: int | None = None  # None: no response
    response_headers: dict = field(default_factory=dict)
    milliseconds: float = 0
    events: list = field(default_factory=list)  # (name, uuid or the event as a string)
    is_altered: bool = False  # whether the product got another body than the client sent
    began: float = field(default_factory=time.monotonic)

    def __str__(self):
        return f"{self.method} {self.path} -> {self.status} in {self.milliseconds:.0f} ms"


def decode_events(path, headers, body):
    """The events of a capture request, in any form that SDKs send; [] if the body has none."""
    try:
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        if body.startswith(b"data="):
            body = base64.b64decode(urllib.parse.parse_qs(body.decode())["data"][0])
        found = json.loads(body)
    except (ValueError, KeyError, EOFError, OSError):
        return []
    if isinstance(found, dict):
        found = found.get("batch", [found])
    named = [event for event in found if isinstance(event, dict) and "event" in event]
    return [(event["event"], identify_event(event)) for event in named]


def identify_event(event):
    properties = event.get("properties") or {}
    return event.get("uuid") or properties.get("$insert_id") or json.dumps(event, sort_keys=True)


def through(make, method, path, headers, body):
    """The body that a function gets of a request, where a gateway makes events with `make`."""
    if not body:
        return body
    return events.received(make(events.Request(method, urllib.parse.urlsplit(path).path, [], list(headers.items()), body)))


class Recorder:
    """Forwards from a free port of 127.0.0.1 to `target`; `make` is the gateway between, from tests/lambda."""

    def __init__(self, target, make):
        self.target, self.make = urllib.parse.urlsplit(target), make
        self.exchanges = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def count_sent(self, name):
        """How often each event of this name was sent, by its uuid."""
        exchanges = list(self.exchanges)
        return Counter(uuid for exchange in exchanges for sent, uuid in exchange.events if sent == name)

    def is_quiet(self, seconds=0):
        """Whether every request has a response, and the last one arrived at least so many seconds ago."""
        exchanges = list(self.exchanges)
        is_recent = bool(exchanges) and time.monotonic() - exchanges[-1].began < seconds
        return not is_recent and all(exchange.status is not None for exchange in exchanges)

    def _handler(recorder):  # noqa: N805 `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def forward_request(self):
                body = self.read_body()
                exchange = Exchange(self.command, self.path, dict(self.headers.items()))
                exchange.events = decode_events(self.path, self.headers, body) if self.command == "POST" else []
                recorder.exchanges.append(exchange)
                sent, body = body, through(recorder.make, self.command, self.path, self.headers, body)
                exchange.is_altered = sent != body
                connection = http.client.HTTPConnection(recorder.target.hostname, recorder.target.port, timeout=60)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in HOP_BY_HOP | {"content-length"}:
                        connection.putheader(name, value)
                if body or self.command == "POST":
                    connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                exchange.milliseconds = (time.monotonic() - exchange.began) * 1000
                exchange.response_headers = dict(response.getheaders())
                self.return_response(response, content)
                exchange.status = response.status

            def read_body(self):
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def return_response(self, response, content):
                self.send_response_only(response.status, response.reason)
                for name, value in response.getheaders():
                    if name.lower() not in HOP_BY_HOP | {"content-length"}:
                        self.send_header(name, value)
                if response.status not in (204, 304):
                    length = response.getheader("Content-Length") if self.command == "HEAD" else None
                    self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_POST = do_OPTIONS = do_PUT = do_PATCH = do_DELETE = forward_request

        return Handler
