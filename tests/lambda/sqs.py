"""A queue that behaves as SQS and Lambda's poller do, in the readings of their documentation that are worse for a consumer.

The queue receives SendMessage over HTTP in the JSON protocol and refuses what SQS refuses: unsigned requests, messages above the
queue's size, characters that are not allowed in XML. `deliver` gives batches to a function as an event source mapping does:
at most 10,000 messages and 6 MB of event, in any order, every third message twice in its batch, and some again after they were
processed, because a delete may be lost. Only the messages that the function names come again; all of them if the function fails,
ends or times out, or if its response is not one that Lambda accepts. A message that was received too often is in `dead_letters`.
"""

import hashlib
import json
import random
import re
import socket
import threading
import uuid

from runtime import FunctionFailed, Outcome, read_request, respond, serve_each

ARN = "arn:aws:sqs:us-east-1:123456789012:capture"
BATCH_MESSAGES_MAX = 10_000
# Lambda's limit of an event, with all fields of its messages, less twenty large ones that are delivered again.
EVENT_BYTES_MAX = 6_000_000 - 20 * 70_000
INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Queue:
    """A queue with the settings of the template; `seed` decides order and repetitions."""

    def __init__(self, message_bytes_max, receives_max, seed=1):
        self.message_bytes_max, self.receives_max = message_bytes_max, receives_max
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.waiting, self.dead_letters, self.deleted = [], [], []
        self.refusals, self.sent, self.failing = [], 0, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.url = f"{self.endpoint}/123456789012/capture"
        threading.Thread(target=serve_each, args=(self.listener, self._serve), daemon=True).start()

    def environment(self):
        """Variables that give a function the queue."""
        return {"PENNON_CAPTURE_QUEUE_URL": self.url, "AWS_ENDPOINT_URL_SQS": self.endpoint}

    def put(self, body):
        """Stores a message as SendMessage does."""
        with self.lock:
            message = {"id": str(uuid.uuid4()), "body": body, "receives": 0}
            self.waiting.append(message)
            self.sent += 1
            return message

    def close(self):
        self.listener.close()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as reader:
            try:
                while (message := read_request(reader)) is not None:
                    if not self._handle(connection, *message):
                        return
            except OSError:
                return

    def _handle(self, connection, method, path, headers, body):
        def refuse(status, kind, text):
            with self.lock:
                self.refusals.append(kind)
            return respond(connection, status, json.dumps({"__type": f"com.amazonaws.sqs#{kind}", "message": text}).encode())

        request = json.loads(body)
        if method != "POST" or headers.get("x-amz-target") != "AmazonSQS.SendMessage":
            return refuse("400 Bad Request", "InvalidAction", headers.get("x-amz-target", path))
        if "/us-east-1/sqs/aws4_request" not in headers.get("authorization", "") or "x-amz-security-token" not in headers:
            return refuse("403 Forbidden", "AccessDenied", "the request is not signed for SQS in this region")
        if request.get("QueueUrl") != self.url or set(request) != {"QueueUrl", "MessageBody"}:
            return refuse("400 Bad Request", "QueueDoesNotExist", str(request.get("QueueUrl")))
        text = request["MessageBody"]
        if self.failing == "throttled":
            return refuse("400 Bad Request", "RequestThrottled", "slow down")
        if not 1 <= len(text.encode()) <= self.message_bytes_max or INVALID.search(text):
            return refuse("400 Bad Request", "InvalidParameterValue", f"Message must be shorter than {self.message_bytes_max} bytes.")
        message = self.put(text)
        if self.failing == "lost":
            # Stored, and the connection ends before the response.
            connection.shutdown(socket.SHUT_RDWR)
            return False
        digest = hashlib.md5(text.encode()).hexdigest()
        return respond(connection, "200 OK", json.dumps({"MessageId": message["id"], "MD5OfMessageBody": digest}).encode())

    def deliver(self, function):
        """Invokes `function` with one batch. Returns the outcome, none if the queue is empty."""
        with self.lock:
            self.random.shuffle(self.waiting)
            batch, size = [], 0
            while self.waiting and len(batch) < BATCH_MESSAGES_MAX:
                # Every third one is there twice.
                size += (len(json.dumps(record(self.waiting[-1]))) + 2) * (2 if len(batch) % 3 == 0 else 1)
                if size > EVENT_BYTES_MAX:
                    break
                batch.append(self.waiting.pop())
            for message in batch:
                message["receives"] += 1
            dead = [message for message in batch if message["receives"] > self.receives_max]
            batch = [message for message in batch if message not in dead]
            self.dead_letters += dead
            again = [message for message in self.deleted if self.random.random() < 0.05][:20]
        if not batch:
            return None
        delivered = [*batch, *batch[::3], *again]
        self.random.shuffle(delivered)
        try:
            outcome = function.invoke({"Records": [record(message) for message in delivered]})
        except FunctionFailed as error:
            outcome = Outcome("ended", str(error), 0.0, 0.0)
        failed = reported(outcome, {message["id"] for message in delivered})
        with self.lock:
            self.waiting += [message for message in batch if message["id"] in failed]
            self.deleted += [message for message in batch if message["id"] not in failed]
        return outcome


def record(message):
    """A message in the event of its batch."""
    digest = hashlib.md5(message["body"].encode()).hexdigest()
    return {
        "messageId": message["id"], "receiptHandle": "AQEB" + "x" * 400, "body": message["body"],
        "attributes": {"ApproximateReceiveCount": str(message["receives"]), "SentTimestamp": "1795176000000", "SenderId": "AIDAIENQZJOLO23YVJ4VO",
                       "ApproximateFirstReceiveTimestamp": "1795176000001"},
        "messageAttributes": {}, "md5OfBody": digest, "eventSource": "aws:sqs", "eventSourceARN": ARN, "awsRegion": "us-east-1"}


def reported(outcome, ids):
    """The ids that come again after an invocation."""
    try:
        failures = [it["itemIdentifier"] for it in json.loads(outcome.payload)["batchItemFailures"]] if outcome.kind == "response" else None
    except (ValueError, TypeError, KeyError):
        failures = None
    # An id that was not in the batch makes it fail as a whole.
    return ids if failures is None or not set(failures) <= ids else set(failures)
