#!/usr/bin/env bash
# Fuzzes the parsers with libFuzzer: scripts/fuzz.sh [SECONDS [TARGET...]], by default 600 seconds for each target of tests/src/fuzz.rs.
#
# One process for each core, a line for each target. Fails if an input panics, takes 10 seconds, or 2 GiB of memory, and shows the command
# that repeats it. Inputs with new coverage are kept in the target directory for the next run; nothing in the repository is changed.
#
# Without an address sanitizer: only shared/allocator has unsafe code, which parses nothing. PENNON_FUZZ_SANITIZER=address looks for
# errors in the C code below (zstd, SQLite) and in the unsafe code of dependencies, at half the speed; it needs the nightly toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
shift || true
sanitizer=${PENNON_FUZZ_SANITIZER:-none}
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
work=$CARGO_TARGET_DIR/fuzz
tools=$CARGO_TARGET_DIR/tools
export CARGO_INCREMENTAL=0
# The driver of clippy is that of another toolchain.
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS

# Coverage counters are an unstable option of the compiler. Without a nightly one, the pinned compiler takes it as well.
toolchain=()
if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    toolchain=(+nightly)
else
    export RUSTC_BOOTSTRAP=1
fi

if [[ ! -x $tools/bin/cargo-fuzz ]]; then
    cargo install cargo-fuzz --locked --quiet --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi
export PATH=$tools/bin:$PATH

if (($# == 0)); then
    mapfile -t targets < <(basename -s .rs -a tests/fuzz/fuzz_targets/*.rs)
    built=()
else
    targets=("$@")
    built=()
    # cargo fuzz builds one target or all.
    (($# > 1)) || built=("$1")
fi

# With assertions: overflows and broken assumptions are findings. Unused code is left out, or each program had all of the product.
cargo "${toolchain[@]}" fuzz build --fuzz-dir tests/fuzz --release --debug-assertions --strip-dead-code \
    --sanitizer "$sanitizer" --target-dir "$work/build-$sanitizer" "${built[@]}"
programs=$(dirname "$(find "$work/build-$sanitizer" -path "*/release/${targets[0]}" -type f | head -1)")

# Runs a target. Its line has executions, inputs that were added to those of earlier runs, and covered places.
run_target() {
    local name=$1 corpus=$work/corpus/$1 artifacts=$work/artifacts/$1 log=$work/logs/$1.log
    local before status=0 executions coverage
    mkdir -p "$corpus" "$artifacts"
    before=$(find "$corpus" -type f | wc -l)
    # Imports and backups write files, which belong into memory.
    TMPDIR=${PENNON_FUZZ_TMPDIR:-/dev/shm} "$programs/$name" "$corpus" "tests/fuzz/corpus/$name" -max_total_time="$seconds" \
        -rss_limit_mb=2048 -timeout=10 -max_len=65536 -print_final_stats=1 -artifact_prefix="$artifacts/" >"$log" 2>&1 || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
    printf '%-20s %10s executions %6d new inputs %7s places covered\n' \
        "$name" "${executions:-0}" "$(($(find "$corpus" -type f | wc -l) - before))" "${coverage:-0}"
    if ((status != 0)); then
        local input
        input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
        grep -m 3 -E "panicked at|ERROR: libFuzzer|SUMMARY" -A 2 "$log" || tail -5 "$log"
        echo "FAILED: $name; repeat it with: $programs/$name ${input:-(see $log)}"
        return 1
    fi
}

mkdir -p "$work/logs"
failed=0 running=0
for name in "${targets[@]}"; do
    if ((running == $(nproc))); then
        wait -n || failed=1
        running=$((running - 1))
    fi
    run_target "$name" &
    running=$((running + 1))
done
while ((running > 0)); do
    wait -n || failed=1
    running=$((running - 1))
done
((failed == 0)) || { echo "copy the input to tests/fuzz/corpus/TARGET, mend the parser, and run cargo test --workspace --test fuzz"; exit 1; }
