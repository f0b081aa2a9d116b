#!/usr/bin/env bash
# Runs functions as Lambda does and compares their responses with the local server's: check_cargo_lambda.sh PATH/TO/pennon
#
# Starts `pennon serve` on free ports over an empty directory (it loads the demo, on the day on which its events keep their
# published dates; then it starts again with the machine's clock), then `cargo lambda watch` against its
# embedded DynamoDB and event directory, with the environment that `pennon env` prints. Lists flags and runs a funnel through the
# emulated gateway and through `cargo lambda invoke`, sends a batch, shares an insight, and compares the responses with the
# local server's.
# Functions are built with the features of the whole workspace, as the tests are, so that no dependency is recompiled.
# Every process is terminated by its own id. The directory with the logs is kept on failure.
set -euo pipefail
cd "$(dirname "$0")/.."

pennon=$(realpath "${1:?usage: check_cargo_lambda.sh PATH/TO/pennon}")
cargo_lambda=$(realpath "${CARGO_LAMBDA:-.venv/bin/cargo-lambda}")
work=$(mktemp -d)
pids=()

stop() {
    local status=$? pid
    trap - EXIT
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    if ((status)); then
        tail -n 40 "$work"/*.log >&2 || true
        echo "failed; logs are in $work" >&2
    else
        rm -rf "$work"
    fi
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

fail() { echo "$*" >&2; exit 1; }
# field FILE EXPRESSION: a value of the JSON document `d` in FILE.
field() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }
free_ports() { # all bound at the same time, so that they differ
    python3 -c 'import socket, sys
s = [socket.socket() for _ in range(int(sys.argv[1]))]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])' "$1"
}
# wait_for PID SECONDS COMMAND...: until COMMAND succeeds; fails when the process ends or the time is up.
wait_for() {
    local pid=$1 end=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        kill -0 "$pid" 2>/dev/null || fail "process $pid ended while waiting for: $*"
        ((SECONDS < end)) || fail "timed out waiting for: $*"
        sleep 0.1
    done
}
# fetch NAME URL CURL-ARGUMENTS...: writes the body to NAME.json; any status but 200 is a failure.
fetch() {
    local name=$1 url=$2 status
    shift 2
    status=$(curl -sS -m 300 -o "$work/$name.json" -w '%{http_code}' "$@" "$url")
    [[ $status == 200 ]] || fail "$name: $url returned $status: $(head -c 400 "$work/$name.json")"
}
# invoke NAME FUNCTION EVENT: through `cargo lambda invoke`; writes the response's body to NAME.json.
invoke() {
    local name=$1 function=$2
    sed -e "s/@KEY@/$key/g" -e "s/@PROJECT@/$project/g" -e "s/@TOKEN@/$token/g" "tests/events/$3" >"$work/$name.event.json"
    "$cargo_lambda" lambda invoke --invoke-address 127.0.0.1 -P "$watch_port" "$function" \
        --data-file "$work/$name.event.json" >"$work/$name.response.json"
    [[ $(field "$work/$name.response.json" 'd["statusCode"]') == 200 ]] ||
        fail "$name: $(head -c 400 "$work/$name.response.json")"
    field "$work/$name.response.json" 'd["body"]' >"$work/$name.json"
}
same() { # whether two responses to one request are equal up to times and addresses
    python3 - "$work/$1.json" "$work/$2.json" <<'PY' || fail "$1 and $2 differ"
import json, sys
def read(path):
    body = json.load(open(path))
    return {k: v for k, v in body.items() if k not in ("last_refresh", "is_cached", "next", "previous")}
first, second = (read(path) for path in sys.argv[1:])
sys.exit(0 if first == second else f"{json.dumps(first)[:800]}\n{json.dumps(second)[:800]}")
PY
}
counts() { [[ $(field "$work/$1.json" '[s["count"] for s in d["result"]]') == "$2" ]] || fail "$1: $(head -c 600 "$work/$1.json")"; }

read -r http_port watch_port < <(free_ports 2)
"$pennon" serve --data "$work/data" --port "$http_port" --now 2024-06-30T12:00:00Z >"$work/load.log" 2>&1 &
pids+=($!)
wait_for $! 120 curl -sf "http://127.0.0.1:$http_port/_health"
kill -TERM $! && wait $!
pids=()
"$pennon" serve --data "$work/data" --port "$http_port" >"$work/serve.log" 2>&1 &
pids+=($!)
wait_for $! 120 curl -sf "http://127.0.0.1:$http_port/_health"
server=$(field "$work/data/server.json" 'd["http"]')
key=$("$pennon" keys create --data "$work/data" --label packaging-check \
    --scope feature_flag:read --scope insight:write --scope project:read --scope sharing_configuration:write 2>>"$work/keys.log" | grep -oE 'phx_[A-Za-z0-9_]+' | head -n 1)
[[ -n $key ]] || fail "pennon keys create printed no key"
bearer="Authorization: Bearer $key"
fetch projects "$server/api/projects/" -H "$bearer"
project=$(field "$work/projects.json" 'd["results"][0]["id"]')
token=$(field "$work/projects.json" 'd["results"][0]["api_token"]')

# The endpoint of the embedded DynamoDB, its credentials, the tables, the events and the payload key.
environment=$("$pennon" env --data "$work/data")
(
    eval "$environment"
    exec "$cargo_lambda" lambda watch -A 127.0.0.1 -P "$watch_port" --ignore-changes >"$work/watch.log" 2>&1
) &
pids+=($!)
gateway="http://127.0.0.1:$watch_port"
# Any response will do: a path without a route is a 404 of the emulator.
wait_for $! 60 curl -s "$gateway/"

field tests/events/funnel.json 'd["body"]' >"$work/funnel_body.json"
flags="/api/projects/$project/feature_flags"
funnel="/api/projects/$project/insights/funnel"
post=(-H "$bearer" -H 'Content-Type: application/json' --data-binary "@$work/funnel_body.json")
people='[279, 183, 58]' # of the demo's 600, counted independently of Pennon

fetch flags_local "$server$flags/?limit=5" -H "$bearer"
fetch flags_slash "$gateway$flags/?limit=5" -H "$bearer"
fetch flags_plain "$gateway$flags?limit=5" -H "$bearer"
invoke flags_invoked flags list_flags.json
[[ $(field "$work/flags_local.json" 'd["count"] > 0') == True ]] || fail "the demo has no flags"
for name in flags_slash flags_plain flags_invoked; do same flags_local "$name"; done

fetch funnel_local "$server$funnel/" "${post[@]}"
fetch funnel_slash "$gateway$funnel/" "${post[@]}"
fetch funnel_plain "$gateway$funnel" "${post[@]}"
invoke funnel_invoked calculation funnel.json
for name in funnel_local funnel_slash funnel_plain funnel_invoked; do counts "$name" "$people"; done

# The captured event is visible to the local server immediately.
invoke capture_invoked capture capture.json
trend='{"events": [{"id": "packaging checked", "math": "total"}], "date_from": "2024-02-01", "date_to": "2024-02-05"}'
fetch trend "$server/api/projects/$project/insights/trend/" -H "$bearer" -H 'Content-Type: application/json' -d "$trend"
[[ $(field "$work/trend.json" 'd["result"][0]["data"]') == '[0, 0, 1, 0, 0]' ]] || fail "trend: $(head -c 600 "$work/trend.json")"
# Links are made and read with the server's payload key: the server reads a link that a function made.
insights="/api/projects/$project/insights"
fetch insight "$server$insights/" -H "$bearer"
insight=$(field "$work/insight.json" 'd["results"][0]["id"]')
fetch sharing "$gateway$insights/$insight/sharing/" -X PATCH -H "$bearer" -H 'Content-Type: application/json' -d '{"enabled": true}'
link="?sharing_access_token=$(field "$work/sharing.json" 'd["access_token"]')"
fetch shared_watch "$gateway$insights/$insight/$link"
fetch shared_local "$server$insights/$insight/$link"
echo "cargo lambda watch and invoke: flags, funnel, capture and sharing return what the local server does"
