"""Tests of scripts/tidy.py: each rule finds its fault and accepts correct code."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import imports  # noqa: E402
import tidy  # noqa: E402

DOC = "//! A module.\n"


def found(path, text):
    return tidy.findings(path, text)


class Rules(unittest.TestCase):
    def test_good_code(self):
        text = DOC + "\npub fn two() -> u8 {\n    2\n}\n"
        self.assertEqual(found("shared/analytics/src/two.rs", text), [])

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

    def test_unsafe_code_is_in_one_crate(self):
        text = DOC + "#![allow(unsafe_code, reason = \"a trait\")]\n"
        self.assertEqual(found("shared/allocator/src/lib.rs", text), [])
        self.assertIn("a.rs:2: only shared/allocator", found("shared/core/src/a.rs", text)[0])

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


    def test_replaced_words(self):
        for word in ("as" + "ked", "get_ans" + "wer", "To" + "ld", "no" + "body", "FunnelAns" + "wer", "TEL" + "LS"):
            for path in ("scripts/other.py", "shared/eventstore/tests/suite/a.rs", "cli/tests/a/main.rs", "x/page.js", ".ci/steps", "template.yaml", "docs/a.md"):
                found_in = [line for line in found(path, f"// x = 1  # {word}\n") if "the word" in line]
                self.assertEqual(len(found_in), 1, (path, word))
        for good in ("task = tasks  # multitasking, a bitmask", "MASK, intelligence, retell"):
            self.assertEqual(found("template.yaml", good + "\n"), [], good)

    def test_permitted_texts(self):
        variable = "PENNON_ANS" + "WER_SECONDS"
        self.assertEqual(found("template.yaml", f"{variable}: 7\n"), [])
        self.assertEqual(len(found("template.yaml", f"{variable}: ans" + "wer\n")), 1)
        data = '"every' + 'body"'
        self.assertEqual(found("tests/clients/expected.py", f"flag({data})\n"), [])
        self.assertEqual(len(found("tests/other.py", f"flag({data})\n")), 1)

    def test_retired_names(self):
        retired_type, retired_word = "Wal" + "k", "is_wan" + "ted"
        in_tests = f"#[cfg(test)]\nmod tests {{\n    struct {retired_type};\n}}\n"
        for path in ("cli/src/a.rs", "cli/src/tests.rs", "tests/src/a.rs"):
            self.assertIn("retired", found(path, DOC + f"struct {retired_type};\n")[0])
            self.assertIn("retired word", found(path, DOC + f"fn {retired_word}() {{}}\n")[0])
            self.assertIn("retired", found(path, DOC + in_tests)[0])
            for good in (f"// {retired_type} {retired_word}", f'let a = "{retired_word}";', "let essay = task;", "struct Sidewalk;"):
                self.assertEqual(found(path, DOC + good + "\n"), [], good)

    def test_retired_names_in_python(self):
        retired = "wan" + "ted"
        self.assertIn("retired word", found("scripts/a.py", f"def test_{retired}():\n    pass\n")[0])
        self.assertEqual(found("scripts/a.py", f"# {retired}\nx = '{retired}'\n"), [])


class Imports(unittest.TestCase):
    """The graph of a crate's modules, from its files below `src`."""

    def edges(self, files, only_folders=False):
        return set(imports.Crate({"lib.rs": "", **files}, only_folders).edges())

    def circles(self, files, only_folders=False):
        return imports.circles(imports.Crate({"lib.rs": "", **files}, only_folders).edges())

    def test_use_trees_and_paths(self):
        text = "use crate::b::{self, inner::{C as D, *}};\npub(crate) use crate::c::x;\nfn a() { crate::d::run(crate::e::X) }\n"
        edges = self.edges({"a.rs": text, **{f"{name}.rs": "" for name in "bcde"}})
        self.assertEqual(edges, {("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")})

    def test_super_and_self_lead_to_modules(self):
        files = {"a/mod.rs": "mod x;", "a/x.rs": "use super::y;\nuse super::super::b::B;\nuse self::z::Z;\n", "b.rs": ""}
        self.assertEqual(self.edges(files), {("a", "b")})

    def test_a_folder_and_its_file_are_one_module(self):
        files = {"a.rs": "mod x;\nuse crate::a::x::X;\n", "a/x.rs": "use crate::a::A;\n"}
        self.assertEqual(self.edges(files), set())

    def test_files_of_a_folder_have_a_graph(self):
        files = {"a/mod.rs": "pub use x::X;\n", "a/x.rs": "use super::y::{Y, z};\n", "a/y/mod.rs": "use super::X;\n", "a/y/z.rs": "use super::Y;\n"}
        self.assertEqual(self.edges(files), {("a::x", "a::y"), ("a::y", "a::x")})
        self.assertEqual(self.circles(files), [("a::x", "a::y")])
        self.assertEqual(self.circles(files, only_folders=True), [])

    def test_by_folders_only_the_files_beside_them_are_their_parent(self):
        files = {
            "a/mod.rs": "pub use x::X;\n", "a/beside.rs": "use super::x::X;\nuse super::y::Y;\n",
            "a/x/mod.rs": "use crate::a::beside::B;\nuse crate::a::y::inner::I;\n", "a/x/inner.rs": "",
            "a/y/mod.rs": "", "a/y/inner.rs": "use super::super::X;\n",
        }
        self.assertEqual(self.edges(files, only_folders=True), {("a::x", "a::y"), ("a::y", "a::x")})
        self.assertEqual(self.circles(files, only_folders=True), [("a::x", "a::y")])

    def test_the_root_is_exempt_and_its_exports_are_followed(self):
        files = {"lib.rs": "pub use b::B;\npub struct State;\n", "a.rs": "use crate::{B, State};\n", "b.rs": ""}
        self.assertEqual(self.edges(files), {("a", "b")})

    def test_tests_comments_and_texts_are_exempt(self):
        text = (
            '// use crate::b::B;\n#[cfg(test)]\nuse crate::c::C;\nfn a() -> &\'static str { "crate::b::B" }\n'
            "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n    fn x() {\n    }\n}\n#[cfg(test)]\nmod samples;\n"
        )
        files = {"a/mod.rs": text, "a/samples.rs": "use crate::b::B;\n", "b.rs": "", "c.rs": ""}
        self.assertEqual(self.edges(files), set())
        self.assertEqual(self.edges({**files, "a/mod.rs": text + "use crate::b::B;\n"}), {("a", "b")})

    def test_circles(self):
        files = {"a.rs": "use crate::b::B;\n", "b.rs": "use crate::c::C;\n", "c.rs": "use crate::a::A;\nuse crate::d::D;\n", "d.rs": ""}
        self.assertEqual(self.circles(files), [("a", "b", "c")])
        both = {**files, "b.rs": "use crate::{a::A, c::C};\n"}
        self.assertEqual(self.circles(both), [("a", "b"), ("a", "b", "c")])
        self.assertEqual(self.circles({**files, "c.rs": "use crate::d::D;\n"}), [])

    def test_report_names_the_shortest_imports(self):
        files = {"a.rs": "use crate::b::LongName;\nuse crate::b::B;\n", "b.rs": "use crate::a::A;\n"}
        lines = list(imports.report("shared/x", imports.Crate({"lib.rs": "", **files}).edges()))
        self.assertEqual(len(lines), 1)
        self.assertIn("shared/x: modules import in a circle, a -> b -> a", lines[0])
        self.assertIn("src/a.rs:2 crate::b::B; src/b.rs:1 crate::a::A", lines[0])

    def test_tests_may_import_in_circles(self):
        files = {
            "x/Cargo.toml": "", "x/src/lib.rs": "mod a;", "x/src/a.rs": "use crate::b::B;\n", "x/src/b.rs": "use crate::a::A;\n",
            "x/src/c.rs": "use crate::b::B;\n", "x/src/b/tests.rs": "use crate::c::C;\n",
        }
        self.assertEqual(len(list(tidy.circles(files))), 1)


class Profiles(unittest.TestCase):
    ROOT = {"panic": "unwind", "lto": "off", "codegen-units": 16}
    DEPLOY = {"lto": "thin", "codegen-units": 1, "opt-level": "s", "strip": "symbols"}

    def findings(self, root, deploy):
        return list(tidy.profiles({"profile": {"release": root}}, {"profile": {"release": deploy}}))

    def test_complete(self):
        self.assertEqual(self.findings(self.ROOT, self.DEPLOY), [])

    def test_panic_is_required(self):
        root = {k: v for k, v in self.ROOT.items() if k != "panic"}
        self.assertEqual(len(self.findings(root, self.DEPLOY)), 1)
        self.assertEqual(len(self.findings({**self.ROOT, "panic": "abort"}, self.DEPLOY)), 1)

    def test_package_settings_are_required_in_both(self):
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
