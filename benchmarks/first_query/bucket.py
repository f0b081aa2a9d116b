#!/usr/bin/env python3
"""A bucket on loopback over a directory, with the latency and the bandwidth of an object store.

    bucket.py DIRECTORY [--first-byte-ms 15] [--megabytes 80]

Prints its port. Each response waits for its first byte and then sends at most so many megabytes a second on its connection. What is
put is kept in memory, so the directory does not change. `GET /requests` responds with the requests since the last such call, as JSON:
method, object, bytes, began and ended in seconds."""

import argparse
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CHUNK = 64 * 1024
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class Bucket(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory, first_byte, rate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.directory, self.first_byte, self.rate = Path(directory), first_byte, rate
        self.lock, self.put, self.requests = threading.Lock(), {}, []

    def content(self, name):
        """Size of an object and a function that reads a part of it; `None` if there is none."""
        if name in self.put:
            body = self.put[name]
            return len(body), lambda start, length: body[start:start + length]
        file = self.directory / name
        if not file.is_file():
            return None

        def read(start, length):
            with open(file, "rb") as opened:
                return os.pread(opened.fileno(), length, start)
        return file.stat().st_size, read

    def names(self, prefix):
        files = (str(file.relative_to(self.directory)) for file in self.directory.rglob("*") if file.is_file())
        return sorted(name for name in {*files, *self.put} if name.startswith(prefix))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def name(self):
        """The name of the object: the path without the bucket."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def respond(self, status, body=b"", headers=()):
        """Sends a response with latency and bandwidth, and records it."""
        began = time.monotonic()
        time.sleep(self.server.first_byte)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            sending = time.monotonic()
            for start in range(0, len(body), CHUNK):
                time.sleep(max(0.0, sending + start / self.server.rate - time.monotonic()))
                self.wfile.write(body[start:start + CHUNK])
        with self.server.lock:
            self.server.requests.append([self.command, self.name(), len(body), began, time.monotonic()])

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/requests":
            with self.server.lock:
                requests, self.server.requests = self.server.requests, []
            body = json.dumps(requests).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)
        query = parse_qs(url.query)
        if "list-type" in query:
            return self.list_objects(query.get("prefix", [""])[0])
        self.object()

    def do_HEAD(self):
        self.object()

    def object(self):
        found = self.server.content(self.name())
        if found is None:
            return self.respond(404, b"<Error><Code>NoSuchKey</Code></Error>")
        size, read = found
        headers = [("ETag", f'"{size}"'), ("Last-Modified", DATE), ("Accept-Ranges", "bytes")]
        if self.command == "HEAD":
            return self.respond(200, b"", [*headers, ("Content-Length", str(size))])
        selected = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not selected:
            return self.respond(200, read(0, size), headers)
        start, end = int(selected[1]), min(int(selected[2]), size - 1)
        self.respond(206, read(start, end + 1 - start), [*headers, ("Content-Range", f"bytes {start}-{end}/{size}")])

    def list_objects(self, prefix):
        rows = "".join(f"<Contents><Key>{escape(name)}</Key><Size>{self.server.content(name)[0]}</Size>"
                       f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag></Contents>"
                       for name in self.server.names(prefix))
        self.respond(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.name()
        if self.headers.get("If-None-Match") == "*" and self.server.content(name):
            return self.respond(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        self.server.put[name] = body
        self.respond(200, b"", [("ETag", f'"{len(body)}"')])

    def do_DELETE(self):
        self.server.put.pop(self.name(), None)
        self.respond(204)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--first-byte-ms", type=float, default=15)
    parser.add_argument("--megabytes", type=float, default=80)
    options = parser.parse_args()
    bucket = Bucket(options.directory, options.first_byte_ms / 1e3, options.megabytes * 1e6)
    print(bucket.server_address[1], flush=True)
    bucket.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
