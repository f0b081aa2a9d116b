#!/usr/bin/env python3
"""Runs Schemathesis against a new `pennon serve`: valid and invalid requests generated from its OpenAPI document, and links followed.

    check_schema.py PENNON [--examples 10] [--document FILE] [-- MORE ARGUMENTS OF SCHEMATHESIS]

The seed is fixed, so the same product gets the same requests. Every check is on; `schemathesis.toml` lists the exceptions.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEED = 20260105
# A server without a response for so long has not started.
PATIENCE = 120


def start(pennon, data, log):
    """The process of a server on a free port, and its JSON output at startup."""
    process = subprocess.Popen([pennon, "serve", "--data", str(data), "--port", "0"], stdout=log, stderr=log, start_new_session=True)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            return process, json.loads((data / "server.json").read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
    sys.exit("pennon serve did not start")


def key_of(pennon, data):
    made = subprocess.run([pennon, "keys", "create", "--label", "schema", "--data", str(data)], check=True, capture_output=True, text=True)
    return next(word for word in made.stdout.split() if word.startswith("phx_"))


def token_of(url, key):
    """The token of the key's project."""
    request = urllib.request.Request(f"{url}/api/projects/@current/", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["api_token"]


def saved(url, directory):
    """The document in a file: if it is loaded from a URL, Schemathesis skips the operation of that URL."""
    path = Path(directory) / "openapi.json"
    with urllib.request.urlopen(f"{url}/api/schema/") as response:
        path.write_bytes(response.read())
    return str(path)


def run_schemathesis(url, document, key, examples, more):
    """The exit status of Schemathesis."""
    command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml"), "run", document, "--url", url,
               "--checks", "all", "--max-examples", str(examples), "--seed", str(SEED), "--request-timeout", "30", "--workers", "1",
               "--continue-on-failure", "--header", f"Authorization: Bearer {key}", *more]
    # Files of one run must not affect the requests of the next one.
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run(command, cwd=empty, env={**os.environ, "PENNON_TOKEN": token_of(url, key)}).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pennon")
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--document", help="a document in place of the one that the server serves")
    arguments, more = parser.parse_known_args()
    pennon = os.path.realpath(arguments.pennon)
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        with open(Path(directory) / "serve.log", "wb") as log:
            process, server = start(pennon, data, log)
            try:
                document = arguments.document or saved(server["http"], directory)
                status = run_schemathesis(server["http"], document, key_of(pennon, data), arguments.examples, [it for it in more if it != "--"])
                if process.poll() is not None:
                    sys.exit("pennon serve has ended")
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
    sys.exit(status)


if __name__ == "__main__":
    main()
