#!/usr/bin/env bash
# Flag management against Unleash, in one command. README.md in this folder describes the measurements.
#   run.sh [--quick] [--ours-only] [--no-build] [options of bench.py]
#   run.sh --evaluate [...] [options of evaluate.py]    evaluation of flags, against Unleash Edge too
set -euo pipefail
cd "$(dirname "$0")"
unleash=8.2.0 node=24 edge=19.15.1 swagger=5.17.14
peers=$PWD/.peers
compare=1 build=1 program=bench.py options=()
for option in "$@"; do
    case $option in
        --ours-only) compare= options+=(--ours-only) ;;
        --no-build) build= ;;
        --evaluate) program=evaluate.py ;;
        *) options+=("$option") ;;
    esac
done

# Debian packages of missing programs, installed if that is possible without a prompt.
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

# Edge is on crates.io only. Its build downloads the pages of its API document from GitHub, or reads a file: here from npm's package.
if [[ $compare && $program == evaluate.py && ! -x $peers/edge/bin/unleash-edge ]]; then
    npm install --prefix "$peers/swagger" --ignore-scripts --no-audit --no-fund --loglevel=error "swagger-ui-dist@$swagger" >&2
    python3 - "$peers/swagger" "$swagger" <<'PY'
import sys, zipfile
from pathlib import Path

folder, version = Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(folder / "swagger.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for file in sorted((folder / "node_modules/swagger-ui-dist").iterdir()):
        if file.is_file():
            archive.write(file, f"swagger-ui-{version}/dist/{file.name}")
PY
    SWAGGER_UI_DOWNLOAD_URL=file://$peers/swagger/swagger.zip CARGO_TARGET_DIR=$peers/edge-target \
        cargo install --locked --no-default-features --root "$peers/edge" "unleash-edge@$edge" >&2
    rm -rf "$peers/edge-target"
fi

# The profile of a long-running server.
if [[ $build ]]; then
    (cd ../.. && cargo build --locked --profile dist --bin pennon) >&2
fi
target=${CARGO_TARGET_DIR:-../../target}
exec python3 "$program" --pennon "${PENNON:-$target/dist/pennon}" "${options[@]}"
