"""Policies compared with calls, both ways: every call of the tests is permitted, and every permission is used.

Statements are evaluated as by IAM: ForAllValues compares every partition key of a call, and is true if there is none,
so each statement also requires a key.
"""

import os
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
import calls  # noqa: E402
import transform_template  # noqa: E402

TEMPLATE = transform_template.load(ROOT / "template.yaml")
GROUPS = transform_template.groups(TEMPLATE)
TABLES = {"RecordsTable.Arn": "records", "BlocksTable.Arn": "blocks"}
KEYS = "dynamodb:LeadingKeys"
# Not for tables and objects: how Lambda reads the stream, and the destination of failures.
OTHER = {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams", "sqs:SendMessage", "lambda:InvokeFunction"}
CALLS, BESIDES = calls.listed()
# An action may have any name; policies that compare the ends of keys must handle all of them.
ODD = {"PROJECT#*#ACTIONNAME#*": "PROJECT#7#ACTIONNAME#7#FLAG", "TOKEN#*": "TOKEN#PROJECT#7#FLAG"}


def statements(group):
    """The Allow statements of a function's role, with StrictPolicies on."""
    function = next(name for name, it in GROUPS.items() if it == group)
    for policy in TEMPLATE["Resources"][function]["Properties"].get("Policies", []):
        for statement in policy["Statement"]:
            condition = statement.get("Condition")
            yield {**statement, "Condition": condition["Fn::If"][1]} if condition else statement


def resource(statement):
    """The resource of a statement, as a string."""
    declared = statement["Resource"]
    if isinstance(declared, list):
        return " ".join(next(iter(it.values())) for it in declared)
    declared = declared if isinstance(declared, str) else next(iter(declared.values()))
    return ".".join(declared) if isinstance(declared, list) else declared


def patterns(statement, operator):
    return statement["Condition"].get(f"ForAllValues:{operator}", {}).get(KEYS, [])


def allows_keys(statement, keys):
    """Whether the condition of a statement about a table is true for a call with these partition keys."""
    allowed_patterns, denied = patterns(statement, "StringLike"), patterns(statement, "StringNotLike")
    return all(
        any(calls.like(it, key) for it in allowed_patterns) and not any(calls.like(it, key) for it in denied) for key in keys
    )


def allows_object(statement, action, name):
    if action == "s3:ListBucket":
        return True
    return any(calls.like(it.removeprefix("${Bucket.Arn}/"), name) for it in resource(statement).split())


def allows(group, place, action, kind, key=None):
    key = key or calls.sample(kind)
    for statement in statements(group):
        if action not in statement["Action"]:
            continue
        if place == "objects":
            # A list request names the folder itself.
            name = "events/" + (key.removesuffix("/7") if action == "s3:ListBucket" else key)
            if action.startswith("s3:") and allows_object(statement, action, name):
                return True
        elif TABLES.get(resource(statement)) == place and allows_keys(statement, [key]):
            return True
    return False


def is_excused(kind, used):
    """Whether no pattern can distinguish a kind from those in use."""
    key, rest = calls.sample(kind), used - {"PROJECT#*"}
    if any(calls.like(it, key) or calls.like(kind, calls.sample(it)) for it in rest):
        return True
    # `PROJECT#*` is all of a project, and StringNotLike excludes unused kinds. But the name of an action, which is a
    # part of its key, may end like any other key, and a function that reads names must not be denied for that.
    return "PROJECT#*" in used and "PROJECT#*#ACTIONNAME#*" in used and kind.startswith("PROJECT#*#")


class Policies(unittest.TestCase):
    def test_what_functions_do_is_allowed(self):
        refused = []
        for function, place, action, kind in sorted(CALLS | set(BESIDES)):
            for key in [calls.sample(kind), calls.sample(kind, "x-y"), ODD.get(kind, calls.sample(kind))]:
                if not allows(function, place, action, kind, key):
                    refused.append(f"{function}: {action} on {key} of {place}")
        self.assertEqual(refused, [], "tests have functions do what no statement of template.yaml allows")

    def test_what_is_allowed_is_done(self):
        """Every kind of key and object of all functions, for every function and with every action."""
        done = {(function, place, calls.word(action), kind) for function, place, action, kind in CALLS | set(BESIDES)}
        kinds = {(place, kind) for _, place, _, kind in done}
        actions = sorted({action for group in GROUPS.values() for it in statements(group) for action in it["Action"]} - OTHER)
        needless = []
        for group in sorted(GROUPS.values()):
            for action in actions:
                of_action = {(place, kind) for function, place, word, kind in done if (function, word) == (group, calls.word(action))}
                for place, kind in sorted(kinds):
                    is_of_place = action.startswith("s3:") == (place == "objects")
                    if not is_of_place or (place, kind) in of_action or is_excused(kind, {it for its, it in of_action if its == place}):
                        continue
                    if allows(group, place, action, kind):
                        needless.append(f"{group}: {action} on {kind} of {place}")
        self.assertEqual(needless, [], "template.yaml allows what no test has a function do, and calls.json gives no reason")

    def test_every_action_is_used(self):
        used = {(function, place, action) for function, place, action, _ in CALLS | set(BESIDES)}
        for group in GROUPS.values():
            for statement in statements(group):
                place = TABLES.get(resource(statement), "objects")
                for action in set(statement["Action"]) - OTHER:
                    self.assertIn((group, place, action), used, "allowed, and done by no test")

    def test_every_pattern_is_used(self):
        for group in GROUPS.values():
            for statement in statements(group):
                place = TABLES.get(resource(statement))
                if place is None or set(statement["Action"]) <= OTHER:
                    continue
                of_statement = {
                    kind for function, its, action, kind in CALLS | set(BESIDES)
                    if (function, its) == (group, place) and action in statement["Action"]
                }
                for pattern in patterns(statement, "StringLike"):
                    found = [kind for kind in of_statement if calls.like(pattern, calls.sample(kind))]
                    self.assertTrue(found, f"{group}: {pattern} of {statement['Sid']}")

    def test_no_statement_about_a_table_is_without_its_keys(self):
        for group in GROUPS.values():
            for statement in statements(group):
                if resource(statement) not in TABLES or set(statement["Action"]) <= OTHER:
                    continue
                with self.subTest(f"{group} {statement['Sid']}"):
                    self.assertEqual(statement["Condition"]["Null"], {KEYS: "false"})
                    self.assertTrue(patterns(statement, "StringLike"))
                    self.assertNotIn("*", patterns(statement, "StringLike"))
                    self.assertFalse([it for it in statement["Action"] if "*" in it or it in ("dynamodb:Scan", "dynamodb:PartiQLSelect")])

    def test_without_strict_policies_tables_and_actions_remain(self):
        for group, function in ((group, name) for name, group in GROUPS.items()):
            for policy in TEMPLATE["Resources"][function]["Properties"].get("Policies", []):
                for statement in policy["Statement"]:
                    if "Condition" in statement:
                        strict, _, otherwise = statement["Condition"]["Fn::If"]
                        self.assertEqual((strict, otherwise), ("Strict", {"Ref": "AWS::NoValue"}), f"{group} {statement['Sid']}")
        self.assertEqual(TEMPLATE["Conditions"]["Strict"], {"Fn::Equals": [{"Ref": "StrictPolicies"}, "on"]})
        self.assertEqual(TEMPLATE["Parameters"]["StrictPolicies"]["Default"], "on")

    def test_an_action_on_a_table_is_in_one_statement(self):
        """All keys of a call are compared with one statement, so keys of two statements would be denied together."""
        for group in GROUPS.values():
            seen = set()
            for statement in statements(group):
                for action in statement["Action"]:
                    self.assertNotIn((action, resource(statement)), seen, group)
                    seen.add((action, resource(statement)))

    def test_reasons_are_given_for_what_no_test_does(self):
        for call, why in BESIDES.items():
            self.assertGreater(len(why), 20, call)
            self.assertNotIn(call, CALLS, "a test does it by now")


class Reading(unittest.TestCase):
    """Tests of the evaluation of conditions."""

    STATEMENT = {
        "Condition": {
            "ForAllValues:StringLike": {KEYS: ["KEY#*", "PROJECT#*"]},
            "ForAllValues:StringNotLike": {KEYS: ["PROJECT#*#FLAG"]},
        }
    }

    def test_every_key_of_a_call_has_to_be_like_one_pattern_and_like_no_other(self):
        self.assertTrue(allows_keys(self.STATEMENT, ["KEY#1", "PROJECT#1", "PROJECT#1#FLAGS"]))
        self.assertFalse(allows_keys(self.STATEMENT, ["KEY#1", "PROJECT#1#FLAG"]))
        self.assertFalse(allows_keys(self.STATEMENT, ["KEY#1", "TOKEN#1"]))
        self.assertFalse(allows_keys(self.STATEMENT, ["key#1"]))

    def test_a_pattern_knows_no_ranges(self):
        self.assertTrue(calls.like("A[B]?#*", "A[B]c#"))
        self.assertFalse(calls.like("A[B]", "AB"))


if __name__ == "__main__":
    unittest.main()
