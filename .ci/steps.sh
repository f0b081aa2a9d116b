# Sourced by .ci/run and .ci/full: timed steps, the virtual environment of the tools, the environment of all steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One target directory and one package set for all steps; otherwise each step recompiles the SDK.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
# Clean builds do not profit from incremental compilation.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
# Messages of a failed test name its line without the debug information of backtraces, which takes time to compile and to link.
export CARGO_PROFILE_DEV_DEBUG=false
# Clippy's driver compiles the workspace's crates for all steps, with the arguments of `cargo clippy -- -D warnings`: one pass lints and
# compiles. A separate `cargo clippy` would check every dependency once more, a sixth of the CPU time of a run.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# No step calls AWS; the tools only require a region and credentials.
export SAM_CLI_TELEMETRY=0 AWS_EC2_METADATA_DISABLED=true
export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local

summary=()
step_name=""

# step NAME COMMAND...: runs it and records its duration.
step() {
    step_name=$1
    local begin=$SECONDS
    shift
    echo "== $step_name"
    "$@"
    summary+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$step_name")")
    step_name=""
}

background_names=() background_pids=() background_outputs=()

# background NAME COMMAND...: starts a step beside those that follow; `join` waits for all, prints their output and records their durations.
background() {
    local output
    output=$(mktemp)
    # One index for all three lists: `join` removes process ids, and `+=` would then give the next one the index of an earlier step.
    local index=${#background_names[@]}
    background_names[index]=$1 background_outputs[index]=$output
    shift
    echo "== ${background_names[index]}, in the background"
    # Measured here, because `join` may wait for another step first.
    # In a process group of its own, so that `report` also ends what it has started.
    set -m
    (SECONDS=0; "$@" >"$output" 2>&1; status=$?; echo "$SECONDS" >"$output.seconds"; exit "$status") &
    background_pids[index]=$!
    set +m
}

join() {
    local index status
    for index in "${!background_pids[@]}"; do
        status=0
        step_name=${background_names[index]}
        wait "${background_pids[index]}" || status=$?
        unset "background_pids[index]"
        echo "== $step_name"
        cat "${background_outputs[index]}"
        ((status == 0)) || return "$status"
        summary+=("$(printf '%5d s  %s' "$(<"${background_outputs[index]}.seconds")" "$step_name, in the background")")
        rm -f "${background_outputs[index]}" "${background_outputs[index]}.seconds"
        step_name=""
    done
}

report() {
    local status=$?
    if ((${#background_pids[@]})); then
        kill -- "${background_pids[@]/#/-}" 2>/dev/null || true
    fi
    ((${#background_outputs[@]} == 0)) || rm -f "${background_outputs[@]}" "${background_outputs[@]/%/.seconds}"
    echo
    ((${#summary[@]})) && printf '%s\n' "${summary[@]}"
    printf '%5d s  in all\n' "$SECONDS"
    ((status == 0)) || echo "FAILED: ${step_name:-$0}"
    exit "$status"
}
trap report EXIT

# room GIB: fails if less disk space is free. A linker on a full disk dies with a bus error, which names no cause.
room() {
    local free
    mkdir -p "$CARGO_TARGET_DIR"
    free=$(($(df --output=avail -k "$CARGO_TARGET_DIR" | tail -1) / 1024 / 1024))
    ((free >= $1)) || { echo "$free GiB free at $CARGO_TARGET_DIR, $1 needed: make room, or set CARGO_TARGET_DIR"; return 1; }
}

# Creates the virtual environment, or recreates it if the requirements have changed.
prepare_venv() {
    local checksum python
    checksum=$(sha256sum .ci/requirements.txt)
    if [[ ! -x .venv/bin/python || $(cat .venv/requirements.sha256 2>/dev/null) != "$checksum" ]]; then
        python=$(command -v python3.11 || command -v python3)
        "$python" -m venv --clear .venv
        .venv/bin/pip install --quiet --disable-pip-version-check -r .ci/requirements.txt
        echo "$checksum" >.venv/requirements.sha256
    fi
    export PATH=$PWD/.venv/bin:$PATH
}
