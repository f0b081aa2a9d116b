"""The import graphs of a crate: which of the modules in a folder use which, and the cycles between them.

Each folder has a graph, whose nodes are the modules directly below: folders, and files with no folder. In a crate that is compared by folders only, the
nodes in a folder are the folders directly below, and the files beside them belong to the folder itself. Parents and children may import each other: a
folder and the modules in it, the root and all nodes. Names that a parent re-exports (`pub use store::Table`) count as imports of the module they come from.
Tests (files of tests, items under `#[cfg(test)]`) may import anything. Standard library only; relies on rustfmt's layout.
"""

import functools
import re
from pathlib import PurePosixPath

CHAR = re.compile(r"'(?:\\.[^']*|[^\\'])'")
STRING = re.compile(r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.DOTALL)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
TOKEN = re.compile(f"{COMMENT.pattern}|{STRING.pattern}|{CHAR.pattern}", re.DOTALL)
USE = re.compile(r"^[ \t]*(?:pub(?:\([\w: ]+\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:])(crate|super|self)((?:::\w+)+)")
TEST_MODULE = re.compile(r"^[ \t]*#\[cfg\((?:test|all\(test\b[^\n]*|any\(test\b[^\n]*)\)\]\s*(?:pub(?:\([\w: ]+\))? )?mod (\w+);", re.MULTILINE)
TEST_ITEM = re.compile(r"^([ \t]*)#\[cfg\((?:test|all\(test\b[^\n]*|any\(test\b[^\n]*)\)\]\n", re.MULTILINE)


@functools.cache
def code(text):
    """The text without comments and contents of literals; line numbers stay."""
    return TOKEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


@functools.cache
def product_code(text):
    """The code without items for tests; line numbers stay."""
    text = code(text)
    while match := TEST_ITEM.search(text):
        end = item_end(text, match.end(), match.group(1))
        text = text[: match.start()] + re.sub(r"[^\n]", " ", text[match.start() : end]) + text[end:]
    return text


def item_end(text, start, indent):
    """End of the item that begins at `start`: its semicolon, its closing brace at `indent`, or the end of its only line."""
    position = start
    for number, line in enumerate(text[start:].splitlines(keepends=True)):
        position += len(line)
        code = line.rstrip()
        if code in (indent + "}", indent + "};") or "{" not in text[start:position] and code.endswith((";", ",")):
            return position
        if number == 0 and code.endswith(("}", "};", "},")):
            return position
    return len(text)


def leaves(tree, prefix=()):
    """Paths that a use tree names: `a::{b, c::D as E}` gives (a, b) and (a, c, D), each with the name it gets."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if brace:
        path = prefix + tuple(part for part in re.split(r"::", head.strip()) if part.strip())
        for part in split_commas(rest.rstrip().removesuffix("}")):
            yield from leaves(part, path)
    elif tree:
        path, _, alias = re.sub(r"\s+", " ", tree).partition(" as ")
        path = prefix + tuple(path.split("::"))
        if len(path) > 1 and path[-1] == "self":
            path = path[:-1]
        yield path, alias or path[-1]


def split_commas(text):
    depth, part = 0, ""
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield part
            part = ""
        else:
            part += character
    yield part


def module(path):
    """The module path of a file: `store/keys.rs` is (store, keys), `store/mod.rs` is (store,), `lib.rs` is ()."""
    parts = PurePosixPath(path).with_suffix("").parts
    if parts in (("lib",), ("main",)):
        return ()
    return parts[:-1] if parts[-1] == "mod" else parts


def test_modules(files):
    """The modules of `files` that are declared under `#[cfg(test)]`."""
    return {(*module(path), name) for path, text in files.items() for name in TEST_MODULE.findall(text)}


class Crate:
    """The product files of one crate, by path relative to its `src`. `only_folders`: files in a folder belong to the folder."""

    def __init__(self, files, only_folders=False):
        self.only_folders = only_folders
        tests = test_modules(files)
        is_test = lambda own: any(own[:end] in tests for end in range(1, len(own) + 1))  # noqa: E731
        self.code = {path: product_code(text) for path, text in files.items() if not is_test(module(path))}
        self.children = {}
        for own in map(module, self.code):
            for end in range(len(own)):
                self.children.setdefault(own[:end], set()).add(own[end])
        self.exports = {}
        for path in self.code:
            if module(path) in self.children:
                self.exports.setdefault(module(path), {}).update(self.exported(path))

    def exported(self, path):
        """`{name: child}` of what the parent of a folder re-exports or imports from its children."""
        own = module(path)
        for match in USE.finditer(self.code[path]):
            for parts, name in leaves(match.group(1)):
                target = absolute(own, parts) if parts[0] in ("crate", "super", "self") else (*own, *parts)
                if target and len(target) > len(own) + 1 and target[: len(own)] == own and name != "*":
                    if target[len(own)] in self.children[own]:
                        yield name, target[len(own)]

    def references(self, path):
        """`(line, absolute path)` of everything in the file that names a path from `crate`, `super` or `self`."""
        code, own = self.code[path], module(path)
        for match in USE.finditer(code):
            line = code.count("\n", 0, match.start(1)) + 1
            for parts, _ in leaves(match.group(1)):
                yield line, absolute(own, parts)
        for match in PATH.finditer(USE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), code)):
            yield code.count("\n", 0, match.start()) + 1, absolute(own, (match.group(1), *match.group(2).split("::")[1:]))

    def resolve(self, target):
        """The module of `target` and of what parents re-export on the way: `crate::Table` is `store::Table`, if the root exports it."""
        for end in range(len(target)):
            parent, name = target[:end], target[end]
            if name in self.children.get(parent, ()):
                continue
            child = self.exports.get(parent, {}).get(name)
            return self.resolve((*parent, child, *target[end:])) if child else target
        return target

    def is_node(self, path):
        """A module that may not be in a circle: all but the root, or folders and the modules at the root."""
        is_module = path[-1] in self.children.get(path[:-1], ())
        return path in self.children or is_module and (len(path) == 1 or not self.only_folders)

    def edges(self):
        """`{(from, to): [(path, line, name)]}` between the modules of each folder; modules are named by their path, as in `store::keys`."""
        edges = {}
        for path in sorted(self.code):
            own = module(path)
            for line, target in self.references(path):
                resolved = self.resolve(tuple(target)) if target else ()
                common = next((end for end, (a, b) in enumerate(zip(own, resolved)) if a != b), None)
                if common is not None and self.is_node(own[: common + 1]) and self.is_node(resolved[: common + 1]):
                    edge = ("::".join(own[: common + 1]), "::".join(resolved[: common + 1]))
                    edges.setdefault(edge, []).append((path, line, "::".join(("crate", *target))))
        return edges


def absolute(own, parts):
    """The path below the crate's root, or None for a path of another crate. Inline modules count as part of their file."""
    if parts[0] == "crate":
        return parts[1:]
    base, parts = list(own), list(parts)
    if parts[0] not in ("super", "self"):
        return None
    while parts and parts[0] in ("super", "self"):
        if parts.pop(0) == "super" and base:
            base.pop()
    return (*base, *parts)


def circles(edges):
    """Cycles of modules, shortest first: for each edge inside a component the shortest way back. Each is a tuple of nodes, the smallest first."""
    after = {}
    for a, b in sorted(edges):
        after.setdefault(a, []).append(b)
    found = set()
    for a, b in edges:
        ways, seen = [(b,)], {b}
        while ways:
            way = ways.pop(0)
            if way[-1] == a:
                cycle = (a, *way[:-1])
                first = cycle.index(min(cycle))
                found.add(cycle[first:] + cycle[:first])
                break
            for node in after.get(way[-1], ()):
                if node not in seen:
                    seen.add(node)
                    ways.append((*way, node))
    return sorted(found, key=lambda cycle: (len(cycle), cycle))


def report(crate, edges):
    """One line for each circle of `crate`, a folder, with the shortest example of each of its imports."""
    for circle in circles(edges):
        examples = []
        for edge in zip(circle, circle[1:] + circle[:1]):
            path, line, name = min(edges[edge], key=lambda example: len(example[2]))
            examples.append(f"src/{path}:{line} {name}")
        yield f"{crate}: modules import in a circle, {' -> '.join(circle + circle[:1])}: {'; '.join(examples)}"
