#!/usr/bin/env python3
"""House rules that no compiler checks: sizes, module docs, permitted uses of the SDK and the environment, names, import circles.

    tidy.py            checks every tracked or untracked, not ignored file; exit status 1 and one line for each finding

Standard library only. Each rule is a function from a file's path and text to findings `(line, text)`.
"""

import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path, PurePosixPath

import imports

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE, MAX_FUNCTION = 500, 80

# Path prefixes that may use the AWS SDK, and that may read the environment.
SDK_HOMES = (
    "shared/core/src/store/", "shared/core/src/queue.rs", "shared/core/src/invocation.rs", "cli/src/embedded/", "tests/src/faults.rs", "tests/src/calls/", "tests/src/meter.rs",
    "tests/src/partition_limits.rs", "shared/eventstore/tests/suite/simulation/table.rs",
    "benchmarks/startup/bare/",
)
ENV_HOMES = (
    "shared/core/src/config.rs", "cli/", "tests/", "shared/analytics/tests/", "shared/analytics/examples/",
    "shared/eventstore/tests/",
)

# Names of types that were replaced by terms of the field (docs/glossary.md); they do not come back, also not in tests.
RETIRED_TYPES = set("""
    Apart Bounded Choice Counted Crowd Effort Everybody Found Given Held Judged Kept Lane Looked Mentioned Nobody Numbered Owed Placed Planned
    Proven Question Raise Rests Room Said Sheet Shown Sight Somebody Sought Spent Sums Taken Tally Ticks Told Tracked Turn Turns
    Walk Wanted Wish Within
""".split())
# Words that are no part of a name: `retry`, `validate`, `return`, `expected`, `query`, `request` or `user` say what is meant.
RETIRED_WORDS = set("""
    answer answered answers ask asked asking asks everybody judge judged judges judging nobody question questions said say says
    somebody someone sought tell tells told wanted whoever
""".split())
# Words that no code contains at all, in names, comments and texts: a request is sent, a response or result returned, a person unknown.
REPLACED_WORDS = """
    answer answered answering answers anybody ask asked asking asks everybody judge judged judgement judges judging judgment nobody said
    somebody someone sought tell telling tells told whoever
""".split()
# Where these words are data with expected results, quotations of the contract, or names of the interface: texts by path prefix.
PERMITTED_TEXTS = {
    "": ("PENNON_ANSWER_SECONDS",),
    "template.yaml": ("AnswerSeconds",),
    "tests/template/": ("AnswerSeconds",),
    "samconfig.toml": ("AnswerSeconds",),
    "docs/deploy.md": ("AnswerSeconds",),
    "shared/flag_rules/src/flag/status": ("The flag is switched off, staleness is not judged",),
    "tests/tests/http/flag_status.rs": ("The flag is switched off, staleness is not judged",),
    "shared/analytics/src/refresh/mod.rs": ("when it was asked for with stale data or force_async",),
    "tests/clients/": ('"everybody"',),
    # Built from web/src; texts of the interface.
    "web/dist/": ("everybody", "Everybody"),
    # These two name the words.
    "scripts/tidy.py": ("",),
    "tests/template/test_tidy.py": ("",),
}

# Inputs of fuzzing are any bytes.
ANY_BYTES = "tests/fuzz/corpus/"

# Crates in which files of one folder still import each other in circles. Their folders do not.
ONLY_FOLDERS = ("shared/core", "shared/eventstore", "shared/flag_rules")

UNFINISHED = re.compile(r"\b(todo|unimplemented)!|#\[ignore\b")
SDK = re.compile(r"\baws_(sdk|smithy)_\w+")
ENV = re.compile(r"\bstd::env::(vars?|args|set_var)\b|\buse std::env\b")
SLEEP = re.compile(r"\bsleep\(")
# Traces of a development environment: machine paths, tracker numbers, private package hosts.
WORDS = [
    (re.compile(r"(?<![\w.}/])/(root|work|home/\w+)/"), "a machine's path"),
    (re.compile(r"\bissues? #?\d+\b|\bissue #", re.IGNORECASE), "a tracker's number"),
    (re.compile(r"https?://[\w.-]*(mirror|artifactory|nexus|index\.crates|pypi|registry\.npm)", re.IGNORECASE), "a package host"),
]
TEXT = {".rs", ".toml", ".md", ".yaml", ".yml", ".py", ".sh", ".js", ""}
FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([\w: ]+\))? )?(?:default )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"\w+\" )?fn (\w+)")


def is_test(path):
    """Tests need no module doc; sleeping is forbidden."""
    path = PurePosixPath(path)
    return "tests" in path.parts[:-1] or path.name == "tests.rs" or path.name.endswith("_tests.rs")


def file_size(path, text):
    count = text.count("\n")
    if count > MAX_FILE:
        yield 1, f"{count} lines, at most {MAX_FILE}"


def function_sizes(path, text):
    """Relies on rustfmt: a function ends at the first brace that stands alone at its own indentation."""
    lines = text.split("\n")
    for start, line in enumerate(lines):
        match = FUNCTION.match(line)
        if not match:
            continue
        end = function_end(lines, start, match.group(1) + "}")
        if end - start + 1 > MAX_FUNCTION:
            yield start + 1, f"function {match.group(2)} has {end - start + 1} lines, at most {MAX_FUNCTION}"


def function_end(lines, start, closing):
    """Index of the last line of the function that starts at `start`; a declaration or one-liner ends on its own line."""
    opened = False
    for i in range(start, len(lines)):
        opened = opened or "{" in lines[i]
        if lines[i] == closing or (not opened and lines[i].endswith(";")) or (i == start and lines[i].endswith("}")):
            return i
    return len(lines) - 1


def module_doc(path, text):
    if is_test(path) or PurePosixPath(path).name == "build.rs":
        return
    first = next((l for l in text.split("\n") if l.strip() and not l.startswith(("#![", "// @generated"))), "")
    if not first.startswith("//!"):
        yield 1, "no //! doc at the top: what is it for, what must stay true"


def homes(path, text):
    for number, line in code_lines(text):
        if SDK.search(line) and not path.startswith(SDK_HOMES):
            yield number, f"the AWS SDK is spoken to only in {', '.join(SDK_HOMES)}"
        if ENV.search(line) and not path.startswith(ENV_HOMES) and not is_test(path):
            yield number, f"the environment is read only in {', '.join(ENV_HOMES)}"
        if SLEEP.search(line) and is_test(path):
            yield number, "a test sleeps"


def unfinished(path, text):
    for number, line in code_lines(text):
        if UNFINISHED.search(line):
            yield number, "unfinished or switched off"


def names(path, text):
    """Numbered identifiers of a Rust or Python file, without comments and texts."""
    if path.endswith(".py"):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(imports.code(text).split("\n"), 1):
            for name in re.findall(r"\b[A-Za-z_]\w*", line):
                yield number, name


def retired_names(path, text):
    """Identifiers of all code, tests included."""
    for number, name in names(path, text):
        if name in RETIRED_TYPES:
            yield number, f"the name {name} is retired; docs/glossary.md has the terms"
        elif RETIRED_WORDS.intersection(name.lower().split("_")):
            yield number, f"the name {name} has a retired word; name what it holds or does"


def words(path, text):
    depth = PurePosixPath(path).parent
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in WORDS:
            if pattern.search(line):
                yield number, f"{what} does not belong in the tree: {line.strip()[:80]}"
        for match in re.finditer(r"(?:\.\./)+shared\b", line):
            if os.path.normpath(depth / match.group(0)).startswith(".."):
                yield number, f"a path that leaves the repository: {match.group(0)}"


def words_pattern(words):
    """Matches the words alone and as parts of names: `answer_of`, `FunnelAnswer`, `NO_ANSWER`."""
    lower, title, upper = ("|".join(map(case, words)) for case in (str.lower, str.title, str.upper))
    return re.compile(rf"(?<![A-Za-z])(?:{lower})(?![a-z])|(?:{title})(?![a-z])|(?<![A-Z])(?:{upper})(?![A-Za-z])")


REPLACED_PATTERN = words_pattern(REPLACED_WORDS)


def plain_words(path, text):
    permitted = [it for prefix, texts in PERMITTED_TEXTS.items() if path.startswith(prefix) for it in texts]
    if "" in permitted:
        return
    for number, line in enumerate(text.split("\n"), 1):
        for it in permitted:
            line = line.replace(it, "")
        for match in REPLACED_PATTERN.finditer(line):
            yield number, f"the word {match.group(0)!r}: send a request, return a response or result, validate, distinguish, unknown"


def unsafe_code(path, text):
    for number, line in code_lines(text):
        if "unsafe_code" in line and not path.startswith("shared/allocator/"):
            yield number, "only shared/allocator may allow unsafe code"


def crate_lints(path, text):
    manifest = tomllib.loads(text)
    # A package that is a workspace of its own has no workspace lints to inherit.
    if "package" in manifest and "workspace" not in manifest and manifest.get("lints", {}).get("workspace") is not True:
        yield 1, "no `[lints] workspace = true`"


def profiles(root, deploy):
    """The deployment profile must not inherit the settings of the root profile (functions/.cargo/config.toml has the reason), nor the
    profile `dist` the levels of single packages."""
    dist = root.get("profile", {}).get("dist", {})
    root = root.get("profile", {}).get("release", {})
    deploy = deploy.get("profile", {}).get("release", {})
    for spec in root.get("package", {}) if dist.get("inherits") == "release" else ():
        if spec not in dist.get("package", {}):
            yield f"Cargo.toml: [profile.dist.package] does not say the level of {spec}, as [profile.release.package] does"
    for name in ("panic", "lto", "codegen-units"):
        if name not in root:
            yield f"Cargo.toml: [profile.release] does not say {name}, so cargo-lambda would decide"
    if root.get("panic") == "abort" or deploy.get("panic") == "abort":
        yield "Cargo.toml: panic = abort would end a function where unwinding returns an error"
    for name in ("lto", "codegen-units", "opt-level", "strip"):
        if name not in deploy:
            yield f"functions/.cargo/config.toml: [profile.release] does not say {name}"
    for spec, settings in root.get("package", {}).items():
        for setting in settings:
            if setting not in deploy.get("package", {}).get(spec, {}):
                yield f"functions/.cargo/config.toml: [profile.release.package.{spec}] does not say {setting}, as Cargo.toml does"


def crates(files):
    """Each crate, a folder, with the texts of its files by path below `src`."""
    for manifest in files:
        if manifest.endswith("/Cargo.toml"):
            source = f"{manifest.removesuffix('Cargo.toml')}src/"
            own = {path.removeprefix(source): text for path, text in files.items() if path.startswith(source) and path.endswith(".rs")}
            yield manifest.removesuffix("/Cargo.toml"), own


def circles(files):
    """Circles of imports between the modules of each crate; `files` are the texts of all paths of the tree."""
    for crate, own in crates(files):
        product = {path: text for path, text in own.items() if not is_test(path)}
        yield from imports.report(crate, imports.Crate(product, crate in ONLY_FOLDERS).edges())


def code_lines(text):
    """Numbered lines without line comments. Text in strings counts as code, which is stricter."""
    for number, line in enumerate(text.split("\n"), 1):
        yield number, line if "//" not in line else re.sub(r"(^|\s)//.*", "", line)


RULES = {".rs": [file_size, function_sizes, module_doc, homes, unfinished, unsafe_code, retired_names], ".py": [retired_names]}


def findings(path, text):
    """All findings in one file; `path` is relative to the root, with forward slashes."""
    name = PurePosixPath(path)
    rules = RULES.get(name.suffix, [])
    if name.name == "Cargo.toml":
        rules = [crate_lints]
    if name.suffix in TEXT and not name.name.startswith("LICENSE"):
        rules = rules + [words, plain_words]
    return [f"{path}:{line}: {what}" for rule in rules for line, what in rule(path, text)]


def tree():
    """Tracked paths, and untracked ones that are not ignored."""
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True)
    return sorted(path for path in set(listed.stdout.decode().split("\0")) if path and not path.startswith(ANY_BYTES))


def main():
    found, files = [], {}
    for path in tree():
        file = ROOT / path
        if file.is_file() and (PurePosixPath(path).suffix in TEXT):
            files[path] = file.read_text(encoding="utf-8", errors="replace")
    for path, text in files.items():
        found += findings(path, text)
    found += circles(files)
    read = lambda path: tomllib.loads((ROOT / path).read_text(encoding="utf-8"))  # noqa: E731
    found += profiles(read("Cargo.toml"), read("functions/.cargo/config.toml"))
    print("\n".join(found) if found else "tidy")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
