#!/usr/bin/env bash
# Checks an installation from outside, with a few requests to each part, and prints a table: smoke.py has the details.
#
#   scripts/smoke.sh URL KEY TOKEN [COMMAND...]
#
# KEY is a personal API key with all scopes, TOKEN the token of the project to use. COMMAND is how persons are erased here, such as
# `target/release/pennon delete --cloud`; without it erasure is not checked. Needs Python 3.11 only.
exec python3 "$(dirname "$0")/smoke.py" "$@"
