"""The embedded DynamoDB as the functions' store: their own tables, and a proxy that records the calls and their times.

The functions get copies of the local server's tables (and of its event files), in the same database: both sides begin with the
same state and assign the same numbers, and the server's background work does not affect theirs. Requests contain the access
key id that the embedded database requires; it verifies no signature.
"""

import http.client
import json
import shutil
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from runtime import read_body, read_headers, read_request, serve_each

RECORDS, BLOCKS = "loop-records", "loop-blocks"
JOB_PREFIX = "JOB#"
WRITES = {"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"}


class Database:
    """A client of the endpoint `url`, which requires `access_key_id`."""

    def __init__(self, url, access_key_id):
        self.authorization = (f"AWS4-HMAC-SHA256 Credential={access_key_id}/20260101/us-east-1/dynamodb/aws4_request, "
                              "SignedHeaders=host, Signature=00")
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def call(self, operation, **arguments):
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0",
                   "Authorization": self.authorization}
        self.connection.request("POST", "/", json.dumps(arguments), headers)
        response = self.connection.getresponse()
        body = response.read()
        # The server closes idle connections, and minutes may pass until the next call, which opens another one.
        self.connection.close()
        if response.status != 200:
            raise RuntimeError(f"{operation}: {response.status} {body[:500]!r}")
        return json.loads(body) if body else {}

    def items(self, table):
        start = {}
        while True:
            page = self.call("Scan", TableName=table, ConsistentRead=True, **start)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def copy(self, source, target):
        """Creates the table `target` with all items of `source`."""
        names = [("pk", "HASH"), ("sk", "RANGE")]
        self.call("CreateTable", TableName=target, BillingMode="PAY_PER_REQUEST",
                  AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in names],
                  KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names])
        items = list(self.items(source))
        for at in range(0, len(items), 25):
            puts = [{"PutRequest": {"Item": item}} for item in items[at:at + 25]]
            left = self.call("BatchWriteItem", RequestItems={target: puts}).get("UnprocessedItems")
            assert not left, "an embedded table has no capacity to exceed"
        return len(items)

    def jobs(self):
        """Keys of the jobs that wait for a worker."""
        found = [item for item in self.items(RECORDS) if item["pk"]["S"].startswith(JOB_PREFIX)]
        return [{"pk": item["pk"], "sk": item["sk"]} for item in found]


def prepare(server, directory):
    """Copies of the tables and event files of `server`; the environment that points functions there."""
    for source, target in (("pennon-records", RECORDS), ("pennon-blocks", BLOCKS)):
        server.database.copy(source, target)
    events = Path(directory) / "events"
    shutil.copytree(server.data / "events", events)
    return {"AWS_ENDPOINT_URL_DYNAMODB": server.dynamodb, "AWS_ACCESS_KEY_ID": server.access_key_id,
            "PENNON_RECORDS_TABLE": RECORDS, "PENNON_BLOCKS_TABLE": BLOCKS,
            "PENNON_EVENTS_URL": f"file://{events}", "PENNON_LOG": "info", "MALLOC_ARENA_MAX": "2",
            "PENNON_RATE_LIMITS": "off", "PENNON_PAYLOAD_KEY": (server.data / "payload.key").read_text().strip()}


class Proxy:
    """Forwards requests to the database at `url`, and records `(operation, began, ended)` of each. Writes take `writing`
    seconds longer, so that a response that does not wait for a write is sent before the write ends. After `sever` the
    connections that were open then stay open and respond to nothing; `lost` counts what is sent on them."""

    def __init__(self, url, writing=0.0):
        self.upstream, self.writing = urlsplit(url), writing
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock, self.calls = threading.Lock(), []
        self.alive, self.lost = set(), 0
        threading.Thread(target=serve_each, args=(self.listener, self._serve), daemon=True).start()

    def since(self, moment):
        """Names of the calls that were pending at `moment`."""
        with self.lock:
            return [call["operation"] for call in self.calls if call["ended"] is None or call["ended"] > moment]

    def sever(self):
        """Stops responding on the open connections; returns their number."""
        with self.lock:
            severed, self.alive = len(self.alive), set()
        return severed

    def close(self):
        self.listener.close()

    def _serve(self, connection):
        with self.lock:
            self.alive.add(connection)
        try:
            with connection, connection.makefile("rb") as reader, \
                    socket.create_connection((self.upstream.hostname, self.upstream.port)) as upstream, \
                    upstream.makefile("rb") as responses:
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while (message := read_request(reader)) is not None:
                    with self.lock:
                        is_severed = connection not in self.alive
                        self.lost += is_severed
                    if not is_severed:
                        self._pass(connection, upstream, responses, *message)
        except OSError:
            return
        finally:
            with self.lock:
                self.alive.discard(connection)

    def _pass(self, connection, upstream, responses, method, path, headers, body):
        call = {"operation": headers.get("x-amz-target", "?").rsplit(".", 1)[-1], "began": time.monotonic(), "ended": None}
        with self.lock:
            self.calls.append(call)
        try:
            if call["operation"] in WRITES:
                time.sleep(self.writing)
            upstream.sendall(message(f"{method} {path} HTTP/1.1", headers, body))
            status = responses.readline().decode("latin-1").strip()
            response_headers = read_headers(responses)
            response = message(status, response_headers, read_body(responses, response_headers))
        finally:
            with self.lock:
                call["ended"] = time.monotonic()
        connection.sendall(response)


def message(first, headers, body):
    kept = {name: value for name, value in headers.items() if name not in ("content-length", "transfer-encoding")}
    lines = [first, *(f"{name}: {value}" for name, value in kept.items()), f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
