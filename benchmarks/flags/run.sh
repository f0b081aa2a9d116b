#!/usr/bin/env bash
# Flag management against Unleash, in one command. README.md beside this file says what is measured and how.
#   run.sh [--quick] [--ours-only] [--no-build] [options of bench.py]
set -euo pipefail
cd "$(dirname "$0")"
unleash=8.2.0 node=24
peers=$PWD/.peers
compare=1 build=1 options=()
for option in "$@"; do
    case $option in
        --ours-only) compare= options+=(--ours-only) ;;
        --no-build) build= ;;
        *) options+=("$option") ;;
    esac
done

# Debian's names of what is missing, installed where that is possible without asking.
missing=()
command -v wrk >/dev/null || missing+=(wrk)
if [[ $compare ]]; then
    command -v npm >/dev/null || missing+=(npm)
    postgres=${PG_BIN:-$(pg_config --bindir 2>/dev/null || true)}
    [[ -x $postgres/initdb ]] || postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
    [[ -x $postgres/initdb ]] || missing+=(postgresql)
fi
if [[ ${#missing[@]} -gt 0 ]]; then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "missing: ${missing[*]}; on Debian: apt-get install ${missing[*]}" >&2
        exit 2
    fi
    apt-get install -y "${missing[@]}" >&2 || { apt-get update >&2 && apt-get install -y "${missing[@]}" >&2; }
    postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
fi

if [[ $compare ]]; then
    mkdir -p "$peers"
    if [[ ! -f $peers/installed || $(cat "$peers/installed") != "$unleash $node" ]]; then
        echo '{"private": true}' >"$peers/package.json"
        npm install --prefix "$peers" --no-audit --no-fund --loglevel=error "unleash-server@$unleash" "node@$node" >&2
        echo "$unleash $node" >"$peers/installed"
    fi
    options+=(--peers "$peers" --postgres "$postgres")
fi

# The profile of a server that is to serve for long.
if [[ $build ]]; then
    (cd ../.. && cargo build --locked --profile dist --bin pennon) >&2
fi
target=${CARGO_TARGET_DIR:-../../target}
exec python3 bench.py --pennon "${PENNON:-$target/dist/pennon}" "${options[@]}"
