#!/usr/bin/env bash
# Event queries against ClickHouse, DuckDB and Polars, in one command. README.md in this folder describes the
# measurements.
#   run.sh EVENTS [--no-build] [options of bench.py]
set -euo pipefail
cd "$(dirname "$0")"
build=1 options=()
for option in "$@"; do
    case $option in
        --no-build) build= ;;
        *) options+=("$option") ;;
    esac
done
[[ ${#options[@]} -gt 0 ]] || options=(10000000)

# The peers and the generator of the events, in a virtual environment of their own.
python=${PYTHON:-$PWD/.peers/bin/python}
if [[ ! -x $python ]]; then
    python3 -m venv .peers
    .peers/bin/pip install --quiet chdb==4.4.0 duckdb==2.0.0 polars==2.1.0 pyarrow numpy >&2
fi

# The profile of a long-running server.
if [[ $build ]]; then
    (cd ../.. && cargo build --locked --profile dist --bin pennon) >&2
fi
target=${CARGO_TARGET_DIR:-$PWD/../../target}
exec "$python" bench.py "${options[@]}" --pennon "${PENNON:-$target/dist/pennon}"
