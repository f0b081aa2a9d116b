"""Sizes of the functions: growth by more than a fifth is reported, and so is a function without a recorded size."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "startup"))

from measure import ROOT, growth, packages_of, table  # noqa: E402


class Sizes(unittest.TestCase):
    def test_a_fifth_is_too_much(self):
        known = {"flags": [10_000_000, 4_000_000]}
        self.assertEqual(list(growth(known, {"flags": [12_000_000, 4_800_000]})), [])
        self.assertEqual(list(growth(known, {"flags": [12_000_001, 1]})), ["flags: the binary has 12.00 MB after 10.00 MB"])
        self.assertEqual(list(growth(known, {"flags": [1, 4_900_000]})), ["flags: the zip has 4.90 MB after 4.00 MB"])

    def test_functions_without_known_sizes_are_reported(self):
        self.assertEqual(len(list(growth({}, {"new": [1, 1]}))), 2)

    def test_the_table_has_medians_and_marks_what_misses_its_goal(self):
        found = {"bare": [10_000_000, 4_000_000], "projects": [11_000_000, 4_500_000]}
        times = {"projects": [[5, 1, 30, 2], [7, 2, 10, 1], [6, 3, 21, 3]]}
        self.assertEqual(table(found, times).splitlines()[2],
                         "| projects | 6.0 ms | 2.0 ms | 21.0 ms (goal 20) | 2.0 ms | 11.00 MB | 4.50 MB | 1.10 (goal 1.05) |")

    def test_the_bare_function_has_the_products_versions(self):
        bare, product = (packages_of(ROOT / path) for path in ("benchmarks/startup/bare/Cargo.lock", "Cargo.lock"))
        self.assertEqual(bare - product, {"bare"})


if __name__ == "__main__":
    unittest.main()
