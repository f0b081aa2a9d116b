"""Reads the fenced blocks of a page, with the marker in front of each.

A marker is an HTML comment in the line before the fence, which readers of the page do not see:

    <!-- file: NAME -->         save the block under this name, with the addresses and keys of the test in it
    <!-- same as: PATH -->      the block is the content of this file of the repository; it is saved under the file's name
    <!-- stays running -->      start the block, wait for the output that the page shows, and go on
    <!-- fails -->              the exit status is not 0
    <!-- shown by: URL -->      the block is what Chromium shows at this address
    <!-- not run: REASON -->    only the syntax is checked

A shell block without a marker is run. A `text` or `json` block after a block that was run is its expected output, in which `...`
stands for anything. Every other block needs a marker.
"""

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^ {0,3}```(\w*)\s*$")
MARKER = re.compile(r"^<!-- (file|same as|stays running|fails|shown by|not run)(?:: (.+))? -->$")
SHELL = ("sh", "bash")
OUTPUT = ("text", "json")


class PageError(Exception):
    """What is wrong with a page, by its line."""


@dataclass
class Block:
    line: int
    language: str
    text: str
    marker: str = ""
    value: str = ""
    # Blocks that show what this one prints.
    output: list = field(default_factory=list)

    def is_shell(self):
        return self.language in SHELL


def read_fences(text):
    """(line, language, text, line before the fence) of each block."""
    lines = text.split("\n")
    opened, language, before = None, "", ""
    for number, line in enumerate(lines):
        match = FENCE.match(line)
        if opened is None and match:
            opened, language, before = number, match.group(1), lines[number - 1] if number else ""
        elif opened is not None and line.strip() == "```":
            yield opened + 1, language, "\n".join(lines[opened + 1:number]) + "\n", before
            opened = None
    if opened is not None:
        raise PageError(f"line {opened + 1}: the block has no end")


def read_blocks(text):
    """The blocks of a page in their order; expected output is in the block that prints it."""
    blocks, printing = [], None
    for line, language, content, before in read_fences(text):
        block = Block(line, language, content)
        if before.startswith("<!--"):
            match = MARKER.match(before.strip())
            if not match:
                raise PageError(f"line {line}: unknown marker {before.strip()}")
            block.marker, block.value = match.group(1), match.group(2) or ""
        if not language:
            raise PageError(f"line {line}: the block names no language")
        if language in OUTPUT and not block.marker:
            if printing is None:
                raise PageError(f"line {line}: the output of no block")
            printing.output.append(block)
            continue
        if not block.is_shell() and not block.marker:
            raise PageError(f"line {line}: neither run nor marked")
        if block.marker == "not run" and not block.value:
            raise PageError(f"line {line}: the reason is missing")
        runs = block.is_shell() and block.marker in ("", "fails", "stays running")
        printing = block if runs else None
        blocks.append(block)
    return blocks


def missing_part(expected, printed):
    """The first part of `expected` that `printed` does not contain at its place, or None. White space counts as one blank; in JSON
    it does not count."""
    is_json = expected.language == "json"

    def normalize(text):
        return re.sub(r"\s+", "" if is_json else " ", text).strip()

    rest = normalize(printed)
    for part in re.split(r"\.\.\.", expected.text):
        part = normalize(part)
        if not is_json:
            part = part.strip()
        if part not in rest:
            return part
        rest = rest[rest.index(part) + len(part):]
    return None
