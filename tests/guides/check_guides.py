#!/usr/bin/env python3
"""Runs the commands and programs of README.md and docs/guides as a reader does, and compares what they print with the pages.

    check_guides.py PENNON                   every page
    check_guides.py PENNON --only start,...  some of them, by the names of their files

A page is run in a directory of its own, over a data directory of its own and on free ports. One line per page; exit status 1 if one
fails. blocks.py describes how a page marks its blocks, README.md what is checked.
"""

import argparse
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blocks import PageError, read_blocks
from packaging_files import check_packaging
from page_run import FIRST_START, ROOT, PageRun, free_port
from syntax import install_programs

from check_clients import CLIENTS  # tests/clients, whose path page_run adds

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
# Pages whose commands are not run.
LINKED = [ROOT / "packaging/README.md", ROOT / "tests/guides/README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
TEST = re.compile(r"`((?:tests|scripts|shared|functions|cli)/[\w./-]+?)(?:::(\w+))?`")
MOST_README_LINES = 120


def headings(text):
    """The anchors of a page, as GitHub forms them."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for line in without_code.split("\n"):
        if line.startswith("#"):
            yield re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


def check_links(path):
    """Every link leads to a file and a heading, and every test that a page names exists."""
    text = path.read_text(encoding="utf-8")
    if path.name == "README.md" and (lines := text.count("\n")) > MOST_README_LINES:
        raise PageError(f"{lines} lines, at most {MOST_README_LINES}")
    for target, anchor in LINK.findall(text):
        file = path if not target else path.parent / target
        if not file.exists():
            raise PageError(f"the link {target} leads to nothing")
        if anchor and file.suffix == ".md" and anchor not in headings(file.read_text(encoding="utf-8")):
            raise PageError(f"no heading {target}#{anchor}")
    for target, name in TEST.findall(text):
        file = ROOT / target
        if not file.exists():
            raise PageError(f"{target} does not exist")
        keyword = "def" if file.suffix == ".py" else "fn"
        if name and f"{keyword} {name}(" not in file.read_text(encoding="utf-8"):
            raise PageError(f"no test {name} in {target}")


def check_clients_table():
    """README.md lists every client of tests/clients with its version and whether it sends events."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Which SDKs work")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|")]
    by_name = {row[0].replace("`", ""): row for row in rows[2:]}
    for client in CLIENTS:
        words = client.name.split()
        version = next((word for word in words if word[0].isdigit()), None)
        name = " ".join(word for word in words if word != version)
        row = by_name.get(name)
        if row is None or (version and version not in row[1].split(", ")) or (row[5] == "yes") != (client.events > 0):
            raise PageError(f"README.md: {client.name}, {client.events} events: the table has {row}")
    if unknown := by_name.keys() - {" ".join(word for word in it.name.split() if not word[0].isdigit()) for it in CLIENTS}:
        raise PageError(f"README.md: tests/clients does not run {', '.join(sorted(unknown))}")


def first_start(binary, work):
    """A data directory with the demo, and the key and the token that its first start printed. The files of packaging/ are checked meanwhile."""
    run = PageRun(ROOT / "README.md", binary, work)
    try:
        run.note_secrets(run.start("pennon serve", lambda printed: FIRST_START in printed))
        check_packaging(ROOT, binary, run.port("8080"), str(free_port()))
        check_clients_table()
        for path in LINKED:
            try:
                check_links(path)
            except PageError as error:
                raise PageError(f"{path.relative_to(ROOT)}: {error}") from None
    finally:
        run.stop()
    return run.directory / "pennon-data", run.secrets


def run_page(path, binary, work, demo):
    """(whether it passed, a line for the report)."""
    began = time.monotonic()
    directory = work / path.stem
    directory.mkdir()
    try:
        run = PageRun(path, binary, directory, demo)
        run.run()
        check_links(path)
        problem = None
        result = f"{run.run_blocks} blocks run, {run.checked_blocks} checked for syntax"
    except PageError as error:
        problem = result = str(error)
    name = path.relative_to(ROOT)
    return problem is None, f"{'FAILED' if problem else 'ok':6} {str(name):32} {time.monotonic() - began:5.1f} s  {result}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--only", type=lambda text: text.split(","), help="pages by their names, separated by commas")
    options = parser.parse_args()
    if not Path(options.binary).is_file():
        parser.error(f"{options.binary} does not exist")
    names = {path.stem for path in PAGES}
    if unknown := set(options.only or ()) - names:
        parser.error(f"no page {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")
    selected = [path for path in PAGES if not options.only or path.stem in options.only]
    for path in selected:
        try:
            read_blocks(path.read_text(encoding="utf-8"))
        except PageError as error:
            raise SystemExit(f"{path.relative_to(ROOT)}: {error}") from None
    install_programs()
    with tempfile.TemporaryDirectory(prefix="guides-") as directory:
        work = Path(directory)
        (work / "demo").mkdir()
        try:
            demo = first_start(options.binary, work / "demo")
        except PageError as error:
            raise SystemExit(f"FAILED packaging and the first start: {error}") from None
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda path: run_page(path, options.binary, work, demo), selected))
    for _, line in results:
        print(line)
    passed = sum(1 for is_passed, _ in results if is_passed)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
