#!/usr/bin/env bash
# Events per second that `pennon serve` stores durably over HTTP, in batches of a hundred; CPU time per event.
#
#   benchmarks/events/capture.sh [BINARY] [SECONDS] [CONNECTIONS]
#
# Needs wrk, curl and python3. Starts the server on an empty directory, sends for some seconds, and then queries the number of
# events: it must be the acknowledged number, or up to one batch per connection more.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-target/dist/pennon}
seconds=${2:-20}
connections=${3:-16}
data=$(mktemp -d "${TMPDIR:-/tmp}/pennon-capture.XXXXXX")
cat > "$data/workspace.yaml" <<'YAML'
organizations: [{id: 00000000-0000-0000-0000-000000000001, name: Bench}]
users: [{id: 1, email: bench@example.com, memberships: [{organization: 00000000-0000-0000-0000-000000000001, level: owner}]}]
projects: [{id: 1, organization: 00000000-0000-0000-0000-000000000001, name: Bench, token: phc_bench}]
keys: [{user: bench@example.com, label: bench, value: phx_bench, scopes: ["*"]}]
YAML
"$binary" serve --data "$data/data" --workspace "$data/workspace.yaml" --port 0 --dynamodb-port 0 > "$data/log" 2>&1 &
server=$!
stop() { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$data"; }
trap stop EXIT
for _ in $(seq 600); do [ -s "$data/data/server.json" ] && break; kill -0 "$server" || { cat "$data/log"; exit 1; }; sleep 0.1; done
url=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["http"])' "$data/data/server.json")
cpu() { python3 -c 'import sys,os; f=open("/proc/%s/stat"%sys.argv[1]).read().rsplit(")",1)[1].split(); print((int(f[11])+int(f[12]))/os.sysconf("SC_CLK_TCK"))' "$server"; }
before=$(cpu)
TOKEN=phc_bench wrk -t 1 -c "$connections" -d "${seconds}s" --timeout 30s -s "$here/capture.lua" "$url" | tee "$data/wrk" | tail -1
after=$(cpu)
events=$(sed -n 's/^events \([0-9]*\),.*/\1/p' "$data/wrk")
query='{"query":{"kind":"TrendsQuery","series":[{"kind":"EventsNode","event":null}],"dateRange":{"date_from":"-1d"}}}'
curl -sS -H 'Authorization: Bearer phx_bench' -H 'Content-Type: application/json' -d "$query" "$url/api/projects/1/query/" > "$data/result"
python3 - "$events" "$before" "$after" "$data/result" "$connections" /proc/$server/status <<'PY'
import json, sys
events, before, after = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
result = json.load(open(sys.argv[4]))
counted = int(sum(result["results"][0]["data"])) if "results" in result else result
peak = next(line.split()[1] for line in open(sys.argv[6]) if line.startswith("VmHWM"))
print(f"server CPU {after - before:.1f} s, {(after - before) / max(events, 1) * 1e6:.1f} us an event, peak memory {int(peak) / 1024:.0f} MiB")
print(f"acknowledged {events}, counted {counted}")
if not isinstance(counted, int) or not events <= counted <= events + 100 * int(sys.argv[5]):
    sys.exit("what is counted is not what was acknowledged")
PY
