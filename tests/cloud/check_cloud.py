#!/usr/bin/env python3
"""Commands with `--cloud`, with the credentials and the region of an AWS profile, on tables and on a bucket that keeps versions.

    check_cloud.py PENNON

The tables are those of an embedded DynamoDB, the bucket is a local server with S3's protocol (moto). An import is killed while it
uploads and imported again: it continues where it stopped, and every event counts once. Then a person is erased: the bucket
still has the old versions, and has none of them after `pennon delete --versions`. Needs moto (.ci/requirements.txt) and a
C compiler, for the wall clock.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lambda"))
from store import Database  # noqa: E402
from thaw import WallClock  # noqa: E402

REGION, BUCKET = "eu-central-1", "pennon-events"
PROJECT = "events/project=1/"
RECORDS, BLOCKS = "cloud-records", "cloud-blocks"
WORKSPACE = {
    "organizations": [{"id": "01900000-0000-7000-8000-000000000001", "name": "Acme"}],
    "users": [{"id": 1, "email": "ada@example.com", "memberships": [{"organization": "01900000-0000-7000-8000-000000000001", "level": "owner"}]}],
    "projects": [{"id": "1", "organization": "01900000-0000-7000-8000-000000000001", "token": "phc_cloud"}],
}
# Enough text for two chunks of an import, and for segments that are uploaded in parts.
EVENTS, TEXT_BYTES = 50, 3 << 20
ERASED = "erased-person-7"
# What deletes replaced objects waits for ten minutes.
GRACE_SECONDS = 700


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Bucket:
    """A server with S3's protocol and one bucket with versions, until `stop`."""

    def __init__(self, directory):
        self.log = Path(directory) / "moto.log"
        port, log = free_port(), open(self.log, "wb")
        command = [sys.executable, Path(__file__).with_name("s3_server.py"), str(port)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.url = f"http://127.0.0.1:{port}"
        self.s3 = boto3.client("s3", endpoint_url=self.url, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x",
                               config=Config(retries={"max_attempts": 0}))
        end = time.monotonic() + 60
        while True:
            try:
                self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
                break
            except EndpointConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def errors(self):
        """What the server logged last, without its successful requests."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if '" 20' not in line]
        return "\n".join(["the S3 server:", *lines[-60:]])

    def versions(self):
        """All versions of all objects."""
        pages = self.s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET)
        return [version for page in pages for version in page.get("Versions", [])]

    def old_versions(self, folder="events/"):
        return [version for version in self.versions() if not version["IsLatest"] and version["Key"].startswith(folder)]

    def uploads(self):
        """Uploads in parts that were neither completed nor aborted."""
        return self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


class Cloud:
    """Tables and a bucket, and commands on them with the profile `work`."""

    def __init__(self, pennon, directory):
        self.pennon, self.home = pennon, Path(directory) / "home"
        self.bucket = Bucket(directory)
        data, log = Path(directory) / "data", open(Path(directory) / "serve.log", "wb")
        command = [pennon, "serve", "--data", str(data), "--port", "0", "--no-demo"]
        self.server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        log.close()
        info = announced(data, self.server)
        self.database = Database(info["dynamodb"], info["access_key_id"])
        for table in (RECORDS, BLOCKS):
            names = [("pk", "HASH"), ("sk", "RANGE")]
            self.database.call("CreateTable", TableName=table, BillingMode="PAY_PER_REQUEST",
                               AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in names],
                               KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names])
        self.clock = WallClock(directory)
        credentials = json.dumps({"Version": 1, "AccessKeyId": info["access_key_id"], "SecretAccessKey": "of-a-process"})
        (self.home / ".aws").mkdir(parents=True)
        (self.home / "credentials.json").write_text(credentials)
        (self.home / ".aws/config").write_text(
            f"[profile work]\nregion = {REGION}\ncredential_process = /bin/cat {self.home}/credentials.json\n")
        self.environment = {
            "HOME": str(self.home), "PATH": os.environ["PATH"], "AWS_PROFILE": "work", "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_DYNAMODB": info["dynamodb"], "AWS_ENDPOINT_URL_S3": self.bucket.url,
            "PENNON_RECORDS_TABLE": RECORDS, "PENNON_BLOCKS_TABLE": BLOCKS, "PENNON_EVENTS_URL": f"s3://{BUCKET}/events",
            **self.clock.environment}

    def stop(self):
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()
        self.bucket.stop()

    def start(self, *arguments):
        return subprocess.Popen([self.pennon, *map(str, arguments), "--cloud"], env=self.environment, cwd=self.home,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments):
        process = self.start(*arguments)
        output, errors = process.communicate()
        if process.returncode:
            raise AssertionError(f"{arguments}: {errors.decode()}")
        return output.decode()

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def checkpoints(self):
        return [item for item in self.database.items(RECORDS) if item["pk"]["S"].startswith("IMPORT#")]


def announced(data, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            return json.loads((data / "server.json").read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
    raise RuntimeError("pennon serve did not start")


def write_events(file):
    """Events with texts that hardly compress, those of one person among them."""
    chance = random.Random(7)
    with open(file, "w", encoding="ascii") as lines:
        for n in range(EVENTS):
            person = ERASED if n % 10 == 0 else f"person-{n % 10}"
            lines.write(json.dumps({
                "project": "1", "event": "seen", "distinct_id": person, "timestamp": f"2024-01-{1 + n % 28:02}T00:00:00Z",
                "properties": {"n": n, "text": chance.randbytes(TEXT_BYTES // 2).hex()}}) + "\n")


def events_of(cloud):
    """The number of events by a query, and by the bucket's segments."""
    query = cloud.home / "query.json"
    query.write_text(json.dumps({"events": [{"id": "seen", "math": "total"}], "insight": "TRENDS", "display": "ActionsTable",
                                 "date_from": "2024-01-01", "date_to": "2024-01-31"}))
    result = cloud.json("query", query, "--project", "1")
    rows = result["result"] if isinstance(result, dict) else result
    return rows[0]["aggregated_value"]


def check_import(cloud, directory):
    file = Path(directory) / "events.jsonl"
    write_events(file)
    process = cloud.start("import", file, "--json")
    end = time.monotonic() + 300
    # The first chunk is stored and noted, the second one is being encoded or uploaded.
    while not cloud.checkpoints():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    stored = events_of(cloud)
    assert 0 < stored < EVENTS, f"{stored} events were stored when the import was killed"
    before = {version["Key"] for version in cloud.bucket.versions()}
    summary = cloud.json("import", file)
    assert summary["continued_after"] == stored, (summary, stored)
    assert (summary["events"], summary["events_there_already"]) == (EVENTS, stored), summary
    assert events_of(cloud) == EVENTS
    assert not cloud.checkpoints(), "a complete import leaves no checkpoint"
    again = cloud.json("import", file)
    assert (again["continued_after"], again["events_there_already"]) == (0, EVENTS), again
    assert events_of(cloud) == EVENTS
    large = [it for it in cloud.bucket.versions() if it["Size"] >= 16 << 20]
    assert large and all("-" in it["ETag"] for it in large), "objects from 16 MiB on are uploaded in parts"
    assert not cloud.bucket.old_versions(PROJECT), "no object is written twice"
    print(f"an import was killed after {stored} of {EVENTS} events and continued; {len(before)} objects were stored before, "
          f"{len(cloud.bucket.versions())} after; {len(large)} were uploaded in parts")


def check_versions(cloud):
    expected = EVENTS - EVENTS // 10
    erased = cloud.json("delete", "--person", ERASED, "--project", "1", "--yes")
    assert erased["erased"]["events"] == EVENTS // 10, erased
    assert events_of(cloud) == expected
    found = cloud.json("delete", "--versions", "--project", "1", "--dry-run")["found"]
    assert found["versions"] == 0, "replaced objects are the latest versions of their names for ten minutes"
    cloud.clock.forward(GRACE_SECONDS)
    cloud.run("compact")
    old = cloud.bucket.old_versions(PROJECT)
    assert holders(cloud, old), "the bucket keeps the erased events as old versions"
    found = cloud.json("delete", "--versions", "--project", "1", "--dry-run")["found"]
    assert found["versions"] == len(old), (found, len(old))
    assert cloud.bucket.old_versions(PROJECT) == old, "a dry run deletes nothing"
    assert cloud.json("delete", "--versions", "--project", "2", "--yes")["deleted"]["versions"] == 0
    deleted = cloud.json("delete", "--versions", "--project", "1", "--yes")["deleted"]
    assert deleted["versions"] == len(old) and deleted["bytes"] == sum(it["Size"] for it in old), deleted
    assert not cloud.bucket.old_versions(PROJECT)
    # Those of the marks of versions, which are of no project's folder.
    others = cloud.bucket.old_versions()
    assert others and cloud.json("delete", "--versions", "--yes")["deleted"]["versions"] == len(others)
    assert not cloud.bucket.old_versions()
    assert not holders(cloud, cloud.bucket.versions()), "an object names the erased person"
    assert events_of(cloud) == expected
    assert "have the checksums" in cloud.run("check")
    print(f"{len(old)} old versions were deleted, and with them the erased person")


def holders(cloud, versions):
    """Those of the versions that name the erased person in clear: sidecar files, and dictionaries of segments."""
    def body(version):
        return cloud.bucket.s3.get_object(Bucket=BUCKET, Key=version["Key"], VersionId=version["VersionId"])["Body"].read()
    return [version for version in versions if ERASED.encode() in body(version)]


def main():
    pennon = os.path.realpath(sys.argv[1])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        cloud = Cloud(pennon, directory)
        try:
            workspace = Path(directory) / "workspace.json"
            workspace.write_text(json.dumps(WORKSPACE))
            cloud.run("apply", workspace)
            key = cloud.json("keys", "create", "--label", "first")
            assert "first" in cloud.run("keys", "list"), key
            check_import(cloud, directory)
            check_versions(cloud)
        except BaseException:
            print(cloud.bucket.errors(), file=sys.stderr)
            raise
        finally:
            cloud.stop()
    print(f"commands with --cloud work with a profile ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
