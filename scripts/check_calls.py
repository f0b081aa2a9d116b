#!/usr/bin/env python3
"""Compares the calls of a test run with the list that policies are compared with.

    PENNON_CALLS_FILE=$PWD/noted cargo test --locked -p pennon-tests --test http
    check_calls.py noted            a call that is not listed is an error
    check_calls.py noted --add      adds calls that are not listed yet
    check_calls.py noted --replace  lists exactly these; after a full run, to remove calls that are no longer made

Random tests do not make every call in every run, so a listed call that was not made is printed and is no error.
"""

import sys

from calls import LIST, ROOT, listed, noted, written


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    made = noted(sys.argv[1])
    if not made:
        raise SystemExit(f"{sys.argv[1]}: no call was noted")
    known, besides = listed()
    if "--add" in sys.argv or "--replace" in sys.argv:
        known = made if "--replace" in sys.argv else known | made
        written(known - set(besides))
        known, besides = listed()
    new = sorted(made - known - set(besides))
    for call in new:
        print("not listed: " + " ".join(call))
    missed = sorted(known - made)
    print(f"{len(made)} kinds of calls made, {len(new)} of them new; {len(missed)} listed ones not made")
    for call in missed:
        print("  not made: " + " ".join(call))
    if new:
        name = LIST.relative_to(ROOT)
        raise SystemExit(f"{name} lacks calls. Add them with scripts/check_calls.py FILE --add, and allow them in template.yaml.")


if __name__ == "__main__":
    main()
