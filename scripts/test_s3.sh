#!/usr/bin/env bash
# Tests of the event store over S3, against a local server with S3's protocol (moto), on a free port.
# Fails when there is no server. Needs the virtual environment of .ci/run, or PYTHON with moto[server] in it.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$python" tests/cloud/s3_server.py "$port" >"$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT=http://127.0.0.1:$port
# Waits for the server, up to a minute, and creates the bucket.
"$python" - "$AWS_ENDPOINT" <<'PY' || { cat "$work/log"; exit 1; }
import sys, time
import boto3
from botocore.exceptions import EndpointConnectionError

s3 = boto3.client("s3", endpoint_url=sys.argv[1])
for _ in range(240):
    try:
        s3.create_bucket(Bucket="events")
        break
    except EndpointConnectionError:
        time.sleep(0.25)
else:
    sys.exit("the S3 server does not respond")
PY
# With the features of the whole workspace, or every dependency is compiled again.
PENNON_TEST_EVENTS_URL=s3://events/installation cargo test --locked --workspace --test suite s3::
# Verifies that the tests used the bucket and not a directory.
"$python" - "$AWS_ENDPOINT" <<'PY'
import sys
import boto3

found = boto3.client("s3", endpoint_url=sys.argv[1]).list_objects_v2(Bucket="events").get("KeyCount", 0)
sys.exit(0 if found > 0 else "the tests have left nothing in the bucket")
PY
