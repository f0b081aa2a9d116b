"""Tests of scripts/tidy.py: each rule finds its fault and accepts correct code."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import tidy  # noqa: E402

DOC = "//! A module.\n"


def found(path, text):
    return tidy.findings(path, text)


class Rules(unittest.TestCase):
    def test_good_code(self):
        text = DOC + "\npub fn two() -> u8 {\n    2\n}\n"
        self.assertEqual(found("shared/engine/src/two.rs", text), [])

    def test_file_size(self):
        self.assertEqual(found("a/src/a.rs", DOC + "\n" * 499), [])
        self.assertIn("501 lines", found("a/src/a.rs", DOC + "\n" * 500)[0])

    def test_function_size_counts_its_own_lines_only(self):
        body = "    x();\n" * 78
        exact = DOC + "fn a() {\n" + body + "}\n"
        self.assertEqual(found("a/src/a.rs", exact), [])
        self.assertIn("function a has 81 lines", found("a/src/a.rs", exact.replace("    x();\n", "    x();\n    x();\n", 1))[0])
        inner = DOC + "impl A {\n    pub(crate) async fn b(\n        x: u8,\n    ) {\n" + "        x();\n" * 80 + "    }\n}\n"
        self.assertIn("a.rs:3: function b has 84 lines", found("a/src/a.rs", inner)[0])

    def test_declarations_and_one_liners_end_at_once(self):
        text = DOC + "trait A {\n    fn a(&self);\n    fn b(&self) {}\n}\n" + "\n" * 100 + "fn c() {\n}\n"
        self.assertEqual(found("a/src/a.rs", text), [])

    def test_module_doc(self):
        self.assertIn("no //! doc", found("a/src/a.rs", "fn a() {}\n")[0])
        self.assertEqual(found("a/src/a.rs", "#![allow(dead_code)]\n//! Doc.\n"), [])
        for exempt in ("a/build.rs", "a/src/tests.rs", "a/tests/common/mod.rs"):
            self.assertEqual(found(exempt, "fn a() {}\n"), [])

    def test_sdk_and_environment_have_homes(self):
        sdk, env = DOC + "use aws_sdk_dynamodb::Client;\n", DOC + 'let a = std::env::var("A");\n'
        self.assertIn("AWS SDK", found("functions/flags/src/lib.rs", sdk)[0])
        self.assertEqual(found("shared/core/src/store/table.rs", sdk), [])
        self.assertIn("environment", found("functions/flags/src/lib.rs", env)[0])
        self.assertEqual(found("shared/core/src/config.rs", env), [])
        self.assertEqual(found("functions/flags/src/lib.rs", DOC + "// not aws_sdk_dynamodb\n"), [])

    def test_unfinished(self):
        for bad in ("to" + "do!()", "un" + 'implemented!("x")', "#[ig" + "nore]"):
            self.assertIn("unfinished", found("a/src/a.rs", DOC + bad + "\n")[0])

    def test_sleeping_tests(self):
        self.assertIn("sleeps", found("a/tests/b.rs", "tokio::time::sleep(x).await;\n")[0])
        self.assertEqual(found("a/src/retry.rs", DOC + "tokio::time::sleep(x).await;\n"), [])

    def test_words(self):
        for bad in ("see /wo" + "rk/notes", "fixes iss" + "ue #12", "https://py" + "pi.example.com/simple", "from ../sha" + "red/x"):
            self.assertEqual(len(found("README.md", bad + "\n")), 1, bad)
        for good in ("https://example.com/work/7", "network/work/x", "an issue with 3 parts"):
            self.assertEqual(found("README.md", good + "\n"), [], good)
        self.assertEqual(found("functions/flags/Cargo.md", "../../shared/core\n"), [])

    def test_crates_take_the_workspace_lints(self):
        self.assertEqual(len(found("a/Cargo.toml", '[package]\nname = "a"\n')), 1)
        self.assertEqual(found("a/Cargo.toml", '[package]\nname = "a"\n[lints]\nworkspace = true\n'), [])


class Profiles(unittest.TestCase):
    ROOT = {"panic": "unwind", "lto": "off", "codegen-units": 16}
    DEPLOY = {"lto": "thin", "codegen-units": 1, "opt-level": "s", "strip": "symbols"}

    def findings(self, root, deploy):
        return list(tidy.profiles({"profile": {"release": root}}, {"profile": {"release": deploy}}))

    def test_complete(self):
        self.assertEqual(self.findings(self.ROOT, self.DEPLOY), [])

    def test_panic_must_be_said(self):
        root = {k: v for k, v in self.ROOT.items() if k != "panic"}
        self.assertEqual(len(self.findings(root, self.DEPLOY)), 1)
        self.assertEqual(len(self.findings({**self.ROOT, "panic": "abort"}, self.DEPLOY)), 1)

    def test_package_settings_are_answered(self):
        root = {**self.ROOT, "package": {"aws-sdk-dynamodb": {"opt-level": 0}}}
        self.assertEqual(len(self.findings(root, self.DEPLOY)), 1)
        deploy = {**self.DEPLOY, "package": {"aws-sdk-dynamodb": {"opt-level": "s"}}}
        self.assertEqual(self.findings(root, deploy), [])

    def test_the_levels_of_release_are_not_those_of_dist(self):
        package = {"parquet": {"opt-level": 1}}
        deploy = {"profile": {"release": {**self.DEPLOY, "package": package}}}
        dist = {"inherits": "release", "opt-level": 3}
        root = {"profile": {"release": {**self.ROOT, "package": package}, "dist": dist}}
        self.assertEqual(len(list(tidy.profiles(root, deploy))), 1)
        dist["package"] = {"parquet": {"opt-level": 3}}
        self.assertEqual(list(tidy.profiles(root, deploy)), [])


if __name__ == "__main__":
    unittest.main()
