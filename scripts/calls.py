"""The calls of each function: as recorded by a run of the tests, as listed in tests/template/calls.json, as policies allow them.

A call is (function, place, action, kind): `place` is records, blocks or objects; a kind is the text of a partition key, or of
an object's name, with `*` for numbers and names.
"""

import json
import re
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/template/calls.json"
# Reads are permitted together: whether one item, several or a page is read depends on their number.
READS = {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}


def noted(path):
    """The calls in the file that PENNON_CALLS_FILE named."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {tuple(line.split("\t")) for line in lines}


def listed(path=LIST):
    """The calls of the list, and those that are permitted although no test makes them, each with its reason."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    calls = {
        (function, place, action, kind)
        for function, places in document["calls"].items()
        for place, actions in places.items()
        for action, kinds in actions.items()
        for kind in kinds
    }
    besides = {(it["function"], it["place"], it["action"], kind): it["why"] for it in document["besides"] for kind in it["kinds"]}
    return calls, besides


def written(calls, path=LIST):
    """Replaces the calls of the list, in order."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    document["calls"] = {}
    for function, place, action, kind in sorted(calls):
        places = document["calls"].setdefault(function, {})
        places.setdefault(place, {}).setdefault(action, []).append(kind)
    Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@lru_cache(maxsize=None)
def like(pattern, text):
    """Whether a string matches a pattern of a policy: `*` is any characters, `?` is one."""
    # No other character of a pattern is special in a policy.
    return re.fullmatch(translate(pattern.replace("[", "[[]")), text) is not None


def sample(kind, part="7"):
    """An example key of a kind."""
    return kind.replace("*", part)


def word(action):
    """The compared form: reads as one action, every other action separately."""
    return "read" if action in READS else action
