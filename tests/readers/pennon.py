"""Installations for tests, created and queried with the command line."""

import json
import os
import subprocess
from pathlib import Path

ORGANIZATION = "01900000-0000-7000-8000-000000000001"
KEY = "phx_readers_0123456789012345678901234567890123"


class Installation:
    # Environment variables of every command.
    variables = None

    @classmethod
    def of(cls, binary, directory, variables=None):
        """An installation that a command is going to create."""
        installation = cls.__new__(cls)
        installation.binary, installation.directory, installation.variables = binary, Path(directory), variables
        return installation

    def __init__(self, binary, directory, timezone="UTC", week_start_day=0):
        self.binary, self.directory = binary, Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        workspace = self.directory.parent / f"{self.directory.name}.json"
        workspace.write_text(json.dumps({
            "organizations": [{"id": ORGANIZATION, "name": "Readers"}],
            "users": [{"id": 1, "email": "ada@example.com",
                       "memberships": [{"organization": ORGANIZATION, "level": "owner"}]}],
            "projects": [{"id": "1", "organization": ORGANIZATION, "token": "phc_readers", "timezone": timezone,
                          "week_start_day": week_start_day}],
            "keys": [{"label": "readers", "user": "ada@example.com", "scopes": ["*"], "projects": [], "value": KEY}],
        }))
        self.run("apply", str(workspace))

    def run(self, command, *arguments, refused=False, variables=None):
        done = subprocess.run([self.binary, command, *arguments, "--data", str(self.directory)], capture_output=True,
                              text=True, env={**os.environ, **(self.variables or {}), **(variables or {})})
        if (done.returncode != 0) != refused:
            raise AssertionError(f"pennon {command} {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stderr if refused else done.stdout

    def load(self, lines):
        """Imports events, persons or groups."""
        file = self.directory.parent / f"{self.directory.name}.jsonl"
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        self.run("import", str(file), "--project", "1")

    def query_file(self, node):
        file = self.directory.parent / f"{self.directory.name}.query.json"
        file.write_text(json.dumps(node))
        return str(file)

    def result(self, node):
        return json.loads(self.run("query", self.query_file(node), "--json"))["result"]

    def sql(self, node):
        return self.run("query", self.query_file(node), "--engine", "clickhouse", "--print")

    def refusal(self, node):
        return self.run("query", self.query_file(node), "--engine", "clickhouse", "--print", refused=True)

    def segments(self):
        """The event files. Nothing has been compacted here, so all existing files are live."""
        files = (self.directory / "events" / "project=1" / "events").glob("*.parquet")
        return sorted(str(file) for file in files if not file.name.endswith((".ids.parquet", ".groups.parquet")))
