"""Pages of documentation that name tests: docs/security.md and docs/limits.md. Each named test exists; who opens connections."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/security.md", "docs/limits.md")
# A test as the pages write it: `path::name`.
REFERENCE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:rs|py|ts))::([^`|]+)`")
RISKS = [f"API{number}" for number in range(1, 11)]
# What opens a connection to an address, in the functions and the crates that they share; the SDK has homes of its own (scripts/tidy.py).
OUTGOING = re.compile(r"\breqwest::|\bhyper_util::client\b|\bTcpStream::connect\b|\bUdpSocket\b")
CONNECTION_HOMES = {"functions/calculation/src/clickhouse/mod.rs", "shared/core/src/traces/export.rs"}


def references(text):
    return REFERENCE.findall(text)


def is_test(path, name):
    """Whether the file has a test with this name."""
    file = ROOT / path
    if not file.is_file():
        return False
    text = file.read_text(encoding="utf-8")
    if path.endswith(".py"):
        return re.search(rf"^\s+def {re.escape(name)}\(self", text, re.MULTILINE) is not None
    if path.endswith(".ts"):
        return f'test("{name}"' in text
    # The attribute of a test is above it, possibly with others between.
    return re.search(rf"#\[(?:tokio::)?test\b[^\n]*\]\n(?:\s*#\[[^\n]*\]\n)*\s*(?:async )?fn {re.escape(name)}\(", text) is not None


class Pages(unittest.TestCase):
    def test_every_named_test_exists(self):
        for page in PAGES:
            named = references((ROOT / page).read_text(encoding="utf-8"))
            self.assertGreater(len(named), 20, page)
            missing = sorted({f"{path}::{name}" for path, name in named if not is_test(path, name)})
            self.assertEqual(missing, [], page)

    def test_every_risk_has_a_test(self):
        rows = {}
        for line in (ROOT / "docs/security.md").read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\| (API\d+) ", line):
                rows[match[1]] = references(line)
        self.assertEqual(list(rows), RISKS)
        self.assertEqual([risk for risk, tests in rows.items() if not tests], [])

    def test_other_pages_link_to_them(self):
        for page in ("README.md", "docs/operations.md"):
            text = (ROOT / page).read_text(encoding="utf-8")
            for name in ("security.md", "limits.md"):
                self.assertIn(f"{name})", text, page)

    def test_a_test_that_does_not_exist_is_found(self):
        self.assertTrue(is_test("tests/template/test_named_tests.py", "test_every_named_test_exists"))
        self.assertFalse(is_test("tests/template/test_named_tests.py", "test_every_named_tes"))
        self.assertFalse(is_test("tests/template/nowhere.py", "test_every_named_test_exists"))
        self.assertTrue(is_test("tests/tests/http/tenancy.rs", "ids_of_another_project_are_unknown_in_every_path"))
        self.assertFalse(is_test("tests/tests/http/tenancy.rs", "project_routes"), "a function that is no test")


class Connections(unittest.TestCase):
    def test_only_two_modules_open_connections(self):
        found = set()
        for folder in ("functions", "shared"):
            for file in (ROOT / folder).rglob("*.rs"):
                path = file.relative_to(ROOT).as_posix()
                # Tests connect to servers of their own; the SDK's connector has its home.
                is_exempt = "/tests" in path or path.endswith("_tests.rs") or path.startswith("shared/core/src/store/")
                if not is_exempt and OUTGOING.search(file.read_text(encoding="utf-8")):
                    found.add(path)
        self.assertEqual(found, CONNECTION_HOMES)


if __name__ == "__main__":
    unittest.main()
