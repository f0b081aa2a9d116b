#!/usr/bin/env python3
"""Writes `1/items.json`: rows of every shape of format 1, from their specification in `shared/core/src/store/item.rs`
and `parts.rs`, with Python's own compression. `shared/core` reads them in its tests.

    items.py > tests/formats/1/items.json
"""

import base64
import json
import sys
import zlib


def packed(text):
    """Raw deflate, as a body above 4 KB is stored."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflate.compress(text.encode()) + deflate.flush()


def blob(data):
    return {"B": base64.b64encode(data).decode()}


def row(pk, sk, **attributes):
    return {"pk": {"S": pk}, "sk": {"S": sk}, **attributes}


def number(value):
    return {"N": str(value)}


def main():
    form, tag = {"f": number(1)}, "0b8a1b6a-0000-4000-8000-000000000001"
    long = json.dumps([f"line {line} ü" for line in range(400)], ensure_ascii=False)
    halves = packed(long)
    half = len(halves) // 2
    part = {**form, "v": number(0), "d": {"S": tag}}
    cases = [
        {"what": "plain", "text": '{"b": 50, "a": 50.0, "none": []}', "version": 7, "expires_at": 99, "rows": [
            row("P", "S", **form, v=number(7), d={"S": '{"b": 50, "a": 50.0, "none": []}'}, expires_at=number(99))]},
        {"what": "deflated", "text": long, "version": 1, "rows": [row("P", "S", **form, v=number(1), z=blob(packed(long)))]},
        {"what": "binary", "text": "", "bytes": [0, 1, 255], "version": 0, "rows": [
            row("P", "S", **form, v=number(0), b=blob(bytes([0, 1, 255])))]},
        {"what": "a counter, which has no format", "text": "", "count": 41, "version": 0, "rows": [
            row("COUNTER", "FLAG", n=number(41))]},
        {"what": "a project's version", "text": "", "count": 9, "sums": [-5, 6, 3], "version": 0, "rows": [
            row("PROJECT#1", "VERSION", n=number(9), s=number(-5), t=number(6), w=number(3))]},
        {"what": "in parts", "text": long, "version": 3, "rows": [
            row("P", "S", **form, v=number(3), p=number(2), g={"S": tag}),
            row("P#S#PART", "000", **part, b=blob(halves[:half])),
            row("P#S#PART", "001", **part, b=blob(halves[half:]))]},
    ]
    json.dump(cases, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
