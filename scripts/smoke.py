#!/usr/bin/env python3
"""Checks an installation over HTTP: every documented route, and each part once. Prints a table; exit status 1 if a check fails.

    smoke.py URL KEY TOKEN [COMMAND...]

KEY is a personal API key with all scopes, TOKEN the token of the project to use, COMMAND how a person is erased, for example
`target/release/pennon delete --cloud`. Everything that is created has `smoke` in its name; flags and insights are deleted at
the end, and events only by COMMAND. Standard library only.
"""

import base64
import gzip
import http.client
import json
import re
import subprocess
import sys
import time
import urllib.parse
import uuid

PATIENCE = 60  # seconds until captured events are counted
JOB_PATIENCE = 120  # seconds until a background calculation has ended
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ALTERED = gzip.compress(b"{}").decode("utf-8", errors="replace").encode()


class Failed(Exception):
    """Why a check failed."""


class Skipped(Exception):
    """Why a check was not made."""


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {name.lower(): value for name, value in headers}, body
        if self.headers.get("content-encoding") == "gzip":
            self.body = gzip.decompress(body)

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failed(f"{self.status}, and no JSON: {self.body[:200]!r}") from None

    def is_of_a_route(self):
        """Whether a route sent it: not a gateway, {"message": "Not Found"}, and not a function that has no such route."""
        if self.status < 400 or self.headers.get("x-robots-tag"):  # errors of shared pages are pages
            return True
        try:
            error = json.loads(self.body)
        except ValueError:
            return False
        return isinstance(error, dict) and set(error) != {"message"} and error.get("detail") != "Endpoint not found."


class Client:
    def __init__(self, url, key, token):
        self.url, self.key, self.token = urllib.parse.urlsplit(url.rstrip("/")), key, token
        self.tag = uuid.uuid4().hex[:8]
        self.requests = 0

    def send(self, method, path, body=None, headers=(), key=False):
        """The response to one request. A body that is not bytes is sent as JSON."""
        headers = {"User-Agent": "pennon-smoke/1", **dict(headers)}
        if key:
            headers["Authorization"] = f"Bearer {self.key}"
        if body is not None and not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), {**JSON, **headers}
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.netloc, timeout=60)
        try:
            connection.request(method, self.url.path + path, body, headers)
            response = connection.getresponse()
            return Response(response.status, response.getheaders(), response.read())
        except OSError as error:
            raise Failed(f"{method} {path}: {error}") from None
        finally:
            self.requests += 1
            connection.close()

    def get(self, method, path, body=None, headers=(), key=False, status=200):
        response = self.send(method, path, body, headers, key)
        if response.status != status:
            raise Failed(f"{method} {path}: {response.status}, expected {status}: {response.body[:300].decode(errors='replace')}")
        return response

    def api(self, method, path, body=None, status=200):
        """The JSON of a response to a request with the key, below the project."""
        response = self.get(method, f"/api/projects/{self.project}{path}", body, key=True, status=status)
        return response.json() if response.body else None


def wait_for(condition, seconds, pause=1.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            return None
        time.sleep(pause)
    return found


def count(client, event, distinct_id=None):
    """How many events of this name a trend counts: today and the day before."""
    series = {"kind": "EventsNode", "event": event, "math": "total"}
    if distinct_id:
        series["properties"] = [{"key": "who", "value": [distinct_id], "operator": "exact", "type": "event"}]
    query = {"kind": "TrendsQuery", "series": [series], "dateRange": {"date_from": "-1d"}, "interval": "day"}
    results = client.api("POST", "/query/", {"query": query, "refresh": "force_blocking"})["results"]
    return sum(sum(line["data"]) for line in results)


# Each check returns a remark.


def check_project(client):
    """Finds the project of the token, which the other checks use."""
    for project in client.get("GET", "/api/projects/", key=True).json()["results"]:
        if project["api_token"] == client.token:
            client.project = project["id"]
            return f"project {client.project}, {project['name']}"
    raise Failed("the key sees no project with this token")


def check_document(client):
    client.document = client.get("GET", "/api/schema/").json()
    client.get("GET", "/")
    client.get("GET", "/docs/")
    return f"{len(client.document['paths'])} paths"


def check_routes(client):
    """Each documented operation reaches its route, with and without a slash. Without a key nothing is changed."""
    lost, count = [], 0
    for path, item in client.document["paths"].items():
        path = re.sub(r"\{project_id\}", str(client.project), path.rstrip("/"))
        path = re.sub(r"\{[^}]*\}", "0", path)
        for method in item:
            if method in ("parameters", "summary", "description", "servers"):
                continue
            for spelling in (path, path + "/"):
                body = {} if method in ("post", "put", "patch") else None
                response = client.send(method.upper(), spelling, body)
                count += 1
                if not response.is_of_a_route():
                    lost.append(f"{method.upper()} {spelling}: {response.status} {response.body[:80].decode(errors='replace')}")
    if lost:
        raise Failed(f"{len(lost)} of {count} do not reach a route: " + "; ".join(lost[:5]))
    return f"{count} requests"


def check_reads(client):
    """Each documented list, with the key, with and without a slash."""
    count = 0
    for path, item in client.document["paths"].items():
        short = path.rstrip("/")
        if "get" not in item or not short.startswith("/api/") or "{" in short.replace("{project_id}", ""):
            continue
        if any(it.get("required") and it.get("in") == "query" for it in item["get"].get("parameters", [])):
            continue
        short = short.replace("{project_id}", str(client.project))
        for spelling in (short, short + "/"):
            response = client.send("GET", spelling, key=True)
            count += 1
            # A list that needs parameters returns 400.
            if response.status not in (200, 400) or not response.is_of_a_route():
                raise Failed(f"GET {spelling}: {response.status} {response.body[:200].decode(errors='replace')}")
    return f"{count} requests"


def check_links(client):
    """Links name the host that the client requested; long lists are compressed."""
    flags = [client.api("POST", "/feature_flags/", {"key": f"smoke-{client.tag}-{n}", "filters": {"groups": [{"rollout_percentage": 100}]}}, 201) for n in (1, 2)]
    client.cleanup += [f"/feature_flags/{flag['id']}/" for flag in flags]
    page = client.api("GET", "/feature_flags/?limit=1")
    if not page["next"].startswith(f"{client.url.scheme}://{client.url.netloc}{client.url.path}/api/"):
        raise Failed(f"a link leads to {page['next']}")
    return page["next"].split("?")[0]


def check_capture(client):
    """Events in every form that SDKs send, compressed in three of them; all are counted, once each."""
    who, names = f"smoke-{client.tag}", {}

    def event(form):
        name = f"smoke {client.tag} {form}"
        names[form] = name
        return {"event": name, "distinct_id": who, "uuid": str(uuid.uuid4()), "properties": {"token": client.token, "who": who}}

    def batch(form):
        return json.dumps({"api_key": client.token, "batch": [event(form)]}).encode()

    encoded = urllib.parse.urlencode({"data": base64.b64encode(json.dumps(event("form")).encode()).decode()}).encode()
    for path, body, headers in (
        ("/batch/", batch("plain"), JSON),
        ("/batch", batch("without slash"), JSON),
        ("/batch/", gzip.compress(batch("gzip")), {**JSON, "Content-Encoding": "gzip"}),
        ("/e/?compression=gzip-js", gzip.compress(json.dumps([event("gzip as text")]).encode()), TEXT),
        ("/i/v0/e/", gzip.compress(json.dumps(event("gzip as bytes")).encode()), {"Content-Type": "application/octet-stream"}),
        ("/e/?compression=base64", encoded, FORM),
        ("/capture/", json.dumps({"api_key": client.token, **event("capture")}).encode(), JSON),
    ):
        client.get("POST", path, body, headers)
    data = base64.b64encode(json.dumps(event("query string")).encode()).decode()
    client.get("GET", "/e/?" + urllib.parse.urlencode({"data": data, "compression": "base64"}))
    began = time.monotonic()
    client.names, client.who = names, who
    if not wait_for(lambda: all(count(client, name) == 1 for name in names.values()), PATIENCE):
        raise Failed("; ".join(f"{form}: counted {found} times" for form, name in names.items() if (found := count(client, name)) != 1))
    return f"{len(names)} forms, counted after {time.monotonic() - began:.0f} s"


def check_altered(client):
    response = client.get("POST", "/e/?compression=gzip-js", ALTERED, TEXT, status=400)
    if b"disable_compression" not in response.body:
        raise Failed(f"the response does not name the setting: {response.body[:200]!r}")
    return "400, with what to set"


def check_evaluation(client):
    """The flags of a person, in every form in which SDKs request them."""
    key = f"smoke-{client.tag}-1"
    body = {"token": client.token, "distinct_id": f"smoke-{client.tag}"}
    packed = gzip.compress(json.dumps(body).encode())

    def shown():
        return key in client.get("POST", "/flags/?v=2", body).json()["flags"]

    if not wait_for(shown, 15):
        raise Failed(f"the flag {key} is not in the response of /flags/")
    for path, sent, headers in (
        ("/flags/?v=2&compression=gzip-js", packed, TEXT), ("/flags/?v=2", packed, {**JSON, "Content-Encoding": "gzip"}), ("/flags?v=2", body, {}),
    ):
        if not client.get("POST", path, sent, headers).json()["flags"][key]["enabled"]:
            raise Failed(f"{path} with {headers}: the flag is off")
    if client.get("POST", "/decide/?v=3", body).json()["featureFlags"].get(key) is not True:
        raise Failed("/decide/ does not have the flag")
    context = {"context": {"targetingKey": f"smoke-{client.tag}"}}
    bearer = {"Authorization": f"Bearer {client.token}"}
    if client.get("POST", f"/ofrep/v1/evaluate/flags/{key}", context, bearer).json()["value"] is not True:
        raise Failed("OFREP does not have the flag")
    client.get("GET", f"/array/{client.token}/config")
    client.get("GET", f"/array/{client.token}/config.js")
    client.get("GET", f"/api/surveys/?token={client.token}")
    return "/flags, /decide, OFREP, configuration"


def check_definitions(client):
    path = f"/flags/definitions?token={urllib.parse.quote(client.token)}"
    response = client.get("GET", path, key=True, headers={"Accept-Encoding": "gzip"})
    if f"smoke-{client.tag}-1" not in {flag["key"] for flag in response.json()["flags"]}:
        raise Failed("the flag is not in the definitions")
    if "etag" in response.headers:
        client.get("GET", path, key=True, headers={"If-None-Match": response.headers["etag"]}, status=304)
    client.get("GET", path.replace("definitions?", "definitions/?"), key=True)
    client.get("GET", f"/api/feature_flag/local_evaluation/?token={urllib.parse.quote(client.token)}", key=True)
    return f"{len(response.body)} bytes"


def check_cors(client):
    origin = "https://smoke.example"
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for path in ("/e/", "/flags/", "/batch/"):
        response = client.get("OPTIONS", path, headers=preflight, status=204)
        if response.headers.get("access-control-allow-origin") != origin:
            raise Failed(f"OPTIONS {path}: {response.headers}")
    return "preflight of 3 routes"


def check_encrypted(client):
    new = {"key": f"smoke-{client.tag}-secret", "has_encrypted_payloads": True, "is_remote_configuration": True,
           "filters": {"groups": [{"rollout_percentage": 100}], "payloads": {"true": json.dumps("hush")}}}
    response = client.send("POST", f"/api/projects/{client.project}/feature_flags/", new, key=True)
    if response.status == 400 and b"PENNON_PAYLOAD_KEY" in response.body:
        raise Skipped("no payload key is set (PayloadKey or PayloadKeyFrom)")
    if response.status != 201:
        raise Failed(f"{response.status} {response.body[:300].decode(errors='replace')}")
    client.cleanup.append(f"/feature_flags/{response.json()['id']}/")
    found = client.get("GET", f"/api/projects/{client.project}/feature_flags/{new['key']}/remote_config/", key=True)
    if b"hush" not in found.body:
        raise Failed(f"the payload is {found.body[:100]!r}")
    return "stored encrypted, read with a key"


def check_sharing(client):
    query = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "smoke", "math": "total"}]}
    made = client.api("POST", "/insights/", {"name": f"smoke {client.tag}", "saved": True, "query": {"kind": "InsightVizNode", "source": query}}, 201)
    client.cleanup.append(f"/insights/{made['id']}/")
    path = f"/insights/{made['id']}/"
    shared = client.api("PATCH", path + "sharing/", {"enabled": True})
    public = f"/api/projects/{client.project}{path}?" + urllib.parse.urlencode({"sharing_access_token": shared["access_token"]})
    client.get("GET", public)
    page = client.get("GET", f"/shared/{shared['access_token']}")
    if made["name"].encode() not in page.body or b"<table" not in page.body:
        raise Failed("the shared page has no table of the insight")
    client.api("PATCH", path + "sharing/", {"enabled": False})
    if not wait_for(lambda: client.send("GET", public).status == 401, 15):
        raise Failed("the link is read after sharing was disabled")
    if client.send("GET", f"/shared/{shared['access_token']}").status != 404:
        raise Failed("the shared page is served after sharing was disabled")
    return "read by link, as JSON and as a page, and not after that"


def check_background(client):
    query = {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": next(iter(client.names.values())), "math": "total"}],
             "dateRange": {"date_from": "-2d"}, "interval": "hour"}
    name, began = f"smoke-{client.tag}", time.monotonic()
    calculation = {"query": query, "refresh": "force_async", "client_query_id": name}
    begun = client.send("POST", f"/api/projects/{client.project}/query/", calculation, key=True)
    if begun.status not in (200, 202):
        raise Failed(f"{begun.status} {begun.body[:300].decode(errors='replace')}")

    def ended():
        status = client.send("GET", f"/api/projects/{client.project}/query/{name}/", key=True).json()["query_status"]
        return status if status["complete"] else None

    status = wait_for(ended, JOB_PATIENCE)
    if not status or status["error"]:
        raise Failed(f"not calculated within {JOB_PATIENCE} s: {status}")
    return f"after {time.monotonic() - began:.0f} s"


def check_erasure(client):
    if not client.command:
        raise Skipped("no command was given; see --help of `pennon delete`")
    command = [*client.command, "--project", str(client.project), "--person", client.who, "--yes"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")
    name = next(iter(client.names.values()))
    if not wait_for(lambda: count(client, name) == 0, PATIENCE):
        raise Failed("the events of the erased person are counted")
    return "the person's events are gone"


CHECKS = (
    ("project", check_project), ("API document", check_document), ("documented routes", check_routes), ("reads with the key", check_reads),
    ("links", check_links), ("capture to query", check_capture), ("altered body", check_altered), ("flag evaluation", check_evaluation),
    ("flag definitions", check_definitions), ("cross-origin requests", check_cors), ("encrypted payload", check_encrypted),
    ("sharing", check_sharing), ("background calculation", check_background), ("erasure", check_erasure),
)


def run(client):
    failed = 0
    for name, check in CHECKS:
        began = time.monotonic()
        try:
            result, remark = "ok", check(client)
        except Skipped as reason:
            result, remark = "skipped", str(reason)
        except Failed as reason:
            result, remark, failed = "FAILED", str(reason), failed + 1
        except (KeyError, TypeError, AttributeError) as error:  # an earlier check failed, or the response has another form
            result, remark, failed = "FAILED", f"{type(error).__name__}: {error}", failed + 1
        print(f"{name:24}{result:9}{time.monotonic() - began:7.1f} s  {remark}", flush=True)
        if name == "project" and failed:
            break
    return failed


def clean_up(client):
    for path in reversed(client.cleanup):
        client.send("PATCH", f"/api/projects/{client.project}{path}", {"deleted": True}, key=True)


def main():
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    client = Client(*sys.argv[1:4])
    client.command, client.cleanup = sys.argv[4:], []
    try:
        failed = run(client)
    finally:
        clean_up(client)
    print(f"{client.requests} requests, {failed} checks failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
