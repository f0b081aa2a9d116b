"""Tests of compare.py: what is a difference between two responses, and what is not."""

import json
import unittest

from compare import Ids, differences

TODAY = {"2026-11-22"}
A, B, C = (f"01900000-0000-7000-8000-00000000000{n}" for n in "abc")


def found(one, two, ids=None, headers=({}, {}), status=(200, 200)):
    responses = [(code, names, json.dumps(body).encode()) for code, names, body in zip(status, headers, (one, two))]
    return differences(*responses, ids or Ids(), TODAY)


class Compared(unittest.TestCase):
    def test_the_same_is_no_difference(self):
        self.assertEqual(found({"a": [1, "x", None]}, {"a": [1, "x", None]}), [])

    def test_values_kinds_fields_and_their_order_count(self):
        for one, two in (({"a": 1}, {"a": 2}), ({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ({"a": "x"}, {"a": "y"}), ({"a": 1}, {}),
                         ([1], [1, 1]), ([1, 2], [2, 1]), ({"a": None}, {"a": ""}), ({"b": {"x": 1, "y": 2}}, {"b": {"y": 2, "x": 1}})):
            self.assertTrue(found(one, two), (one, two))

    def test_status_and_headers_count_but_not_those_of_the_connection(self):
        self.assertEqual(found(1, 1, status=(200, 201)), ["status 200 and 201"])
        self.assertEqual(len(found(1, 1, headers=({"etag": "a"}, {}))), 1)
        self.assertEqual(found(1, 1, headers=({"date": "a", "connection": "close"}, {})), [])

    def test_instants_differ_only_about_now(self):
        self.assertEqual(found("at 2026-11-22T10:00:00Z", "at 2026-11-22T10:00:01.5Z"), [])
        self.assertTrue(found("2024-02-03T10:00:00Z", "2024-02-03T10:00:01Z"))
        self.assertTrue(found("2026-11-22T10:00:00Z", "2024-02-03T10:00:01Z"))

    def test_a_key_may_have_been_read_before_its_use_was_noted(self):
        self.assertEqual(found({"last_used_at": None}, {"last_used_at": "2026-11-22T10:00:00Z"}), [])
        self.assertTrue(found({"last_used_at": None}, {"last_used_at": "2024-11-22T10:00:00Z"}))
        self.assertTrue(found({"created_at": None}, {"created_at": "2026-11-22T10:00:00Z"}))

    def test_an_id_stands_for_one_other_throughout(self):
        ids = Ids()
        self.assertEqual(found([A, f"/x/{A}/"], [B, f"/x/{B}/"], ids), [])
        self.assertTrue(found(A, C, ids))
        self.assertTrue(found(C, B, ids))

    def test_bytes_that_are_no_json_are_compared_as_they_are(self):
        self.assertEqual(differences((200, {}, b"a,b\r\n"), (200, {}, b"a,b\r\n"), Ids(), TODAY), [])
        self.assertTrue(differences((200, {}, b"a,b\xff"), (200, {}, b"a,b\xfe"), Ids(), TODAY))


if __name__ == "__main__":
    unittest.main()
