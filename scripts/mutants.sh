#!/usr/bin/env bash
# Tests the tests of the engine with mutants, which change one place of it each (cargo-mutants): scripts/mutants.sh [COUNT [SEED]]
#
# Of all mutants of the crates for filters, flag rules and analytics, every n-th is built and tested, so that there are about COUNT of them (300 by
# default); SEED is the first one. Prints how many the tests caught, and those that they missed; fails if less than 85 % were caught. Takes hours.
set -euo pipefail
cd "$(dirname "$0")/.."

count=${1:-300}
seed=${2:-0}
least=85
packages=(--package pennon-filters --package pennon-flag-rules --package pennon-analytics)
# Without the tests themselves.
packages+=(--exclude '**/fuzzing.rs' --exclude '**/tests.rs' --exclude '**/tests/**')
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
tools=$CARGO_TARGET_DIR/tools
out=$CARGO_TARGET_DIR/mutants
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
export CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=false

if [[ ! -x $tools/bin/cargo-mutants ]]; then
    cargo install cargo-mutants --locked --quiet --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi
export PATH=$tools/bin:$PATH

all=$(cargo mutants --list "${packages[@]}" | wc -l)
shards=$((all > count ? all / count : 1))
echo "every ${shards}th of $all mutants, from the $((seed % shards))th"
mkdir -p "$out"
status=0
cargo mutants "${packages[@]}" --shard "$((seed % shards))/$shards" --sharding round-robin --output "$out" \
    --timeout 180 --minimum-test-timeout 120 --no-shuffle --colors never || status=$?
# 2: mutants were missed; 3: some took too long. Anything else is an error of the run.
((status == 0 || status == 2 || status == 3)) || exit "$status"
lines() { wc -l <"$out/mutants.out/$1.txt"; }
caught=$(($(lines caught) + $(lines timeout))) missed=$(lines missed)
echo "$caught caught, $missed missed, $(lines unviable) do not compile"
cat "$out/mutants.out/missed.txt"
((caught * 100 >= least * (caught + missed))) || { echo "below $least %"; exit 1; }
