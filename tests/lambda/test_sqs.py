"""The emulated queue: what SQS refuses, and which messages Lambda delivers again."""

import http.client
import json
import unittest
from urllib.parse import urlsplit

from runtime import FunctionFailed, Outcome
from sqs import Queue

SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=00",
          "X-Amz-Security-Token": "session", "X-Amz-Target": "AmazonSQS.SendMessage"}


class Consumer:
    """A function whose outcome is the next of `outcomes`, made from the ids of the batch."""

    def __init__(self, *outcomes):
        self.outcomes, self.batches, self.sizes = list(outcomes), [], []

    def invoke(self, event):
        ids = [it["messageId"] for it in event["Records"]]
        self.batches.append(ids)
        self.sizes.append(len(json.dumps(event)))
        return self.outcomes.pop(0)(ids)


def failures(ids):
    return Outcome("response", json.dumps({"batchItemFailures": [{"itemIdentifier": it} for it in ids]}).encode(), 0.0, 0.0)


def ends(ids):
    raise FunctionFailed("the function has ended")


class Sending(unittest.TestCase):
    def setUp(self):
        self.queue = Queue(100, 3)
        self.addCleanup(self.queue.close)

    def send(self, body, headers=SIGNED, **more):
        connection = http.client.HTTPConnection(urlsplit(self.queue.endpoint).netloc, timeout=10)
        connection.request("POST", "/", json.dumps({"QueueUrl": self.queue.url, "MessageBody": body, **more}), headers)
        response = connection.getresponse()
        status, body = response.status, json.loads(response.read())
        connection.close()
        return status, body.get("__type", "").rsplit("#", 1)[-1] or body["MessageId"]

    def test_a_message_is_stored_once_its_id_is_returned(self):
        status, name = self.send("x" * 100)
        self.assertEqual((status, [it["id"] for it in self.queue.waiting]), (200, [name]))

    def test_what_sqs_refuses(self):
        self.assertEqual(self.send("x" * 101), (400, "InvalidParameterValue"))
        self.assertEqual(self.send("\u00fc" * 51), (400, "InvalidParameterValue"), "bytes, not characters")
        self.assertEqual(self.send("\u0000"), (400, "InvalidParameterValue"))
        self.assertEqual(self.send("x", QueueUrl="http://other/"), (400, "QueueDoesNotExist"))
        unsigned = {name: value for name, value in SIGNED.items() if name != "Authorization"}
        self.assertEqual(self.send("x", unsigned), (403, "AccessDenied"))
        self.queue.failing = "throttled"
        self.assertEqual(self.send("x"), (400, "RequestThrottled"))
        self.assertEqual((self.queue.waiting, len(self.queue.refusals)), ([], 6))

    def test_a_lost_response_has_stored_the_message(self):
        self.queue.failing = "lost"
        with self.assertRaises((http.client.HTTPException, OSError)):
            self.send("x")
        self.assertEqual(len(self.queue.waiting), 1)


class Delivering(unittest.TestCase):
    def setUp(self):
        self.queue = Queue(100, 3)
        self.addCleanup(self.queue.close)
        self.ids = {self.queue.put(str(number))["id"] for number in range(9)}

    def waiting(self):
        return {it["id"] for it in self.queue.waiting}

    def test_a_batch_repeats_and_reorders_messages(self):
        consumer = Consumer(lambda ids: failures([]), lambda ids: failures([]))
        self.queue.deliver(consumer)
        (batch,) = consumer.batches
        self.assertEqual((set(batch), len(batch), self.waiting()), (self.ids, 12, set()))
        self.assertIsNone(self.queue.deliver(consumer))

    def test_only_reported_messages_come_again(self):
        some = sorted(self.ids)[:2]
        self.queue.deliver(Consumer(lambda ids: failures(some)))
        self.assertEqual(self.waiting(), set(some))

    def test_all_come_again_after_any_other_outcome(self):
        outcomes = [lambda ids: Outcome("error", b"{}", 0.0, 0.0), lambda ids: Outcome("response", b"null", 0.0, 0.0), lambda ids: failures(["unknown"])]
        for outcome in outcomes:
            self.queue.deliver(Consumer(outcome))
            self.assertEqual(self.waiting(), self.ids)

    def test_a_message_that_failed_too_often_is_a_dead_letter(self):
        consumer = Consumer(*[lambda ids: failures(set(ids)), ends] * 2)
        for _ in range(3):
            self.queue.deliver(consumer)
        self.assertEqual((len(self.queue.dead_letters), self.waiting()), (0, self.ids))
        self.assertIsNone(self.queue.deliver(consumer))
        self.assertEqual({it["id"] for it in self.queue.dead_letters}, self.ids)

    def test_a_batch_has_at_most_six_megabytes(self):
        queue = Queue(65_536, 3)
        self.addCleanup(queue.close)
        for _ in range(100):
            queue.put("x" * 65_000)
        consumer = Consumer(*[lambda ids: failures([])] * 3)
        while queue.waiting:
            queue.deliver(consumer)
        self.assertGreater(len(consumer.batches), 1)
        self.assertLessEqual(max(consumer.sizes), 6_000_000)


if __name__ == "__main__":
    unittest.main()
