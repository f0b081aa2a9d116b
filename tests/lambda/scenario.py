"""The requests to the functions: every group of routes, creates, changes and deletes, invalid input, unauthorized callers, binary bodies.

`steps(tag)` can be repeated with another tag on the same installation: every unique name contains the tag. `sdk_steps(tag)` are
those that SDKs send, with bodies that a gateway may alter.
`{name}` in a path, a parameter or a body is a value that an earlier step saved, or one of the installation's.
"""

import base64
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

JSON = ("Content-Type", "application/json")
DATES = {"date_from": "2024-01-01", "date_to": "2024-06-30"}
FUNNEL = {"events": [{"id": "product_view", "order": 0}, {"id": "add_to_cart", "order": 1}, {"id": "purchase", "order": 2}], **DATES}
TREND = {"events": [{"id": "purchase", "math": "total"}], "interval": "month", **DATES}
RETENTION = {"target_entity": {"id": "product_view"}, "returning_entity": {"id": "purchase"}, "period": "Month", **DATES}
SERIES = [{"kind": "EventsNode", "event": "purchase", "name": "purchase"}]
NODE = {"kind": "TrendsQuery", "series": SERIES, "interval": "month", "dateRange": DATES}
EVERYONE = {"groups": [{"properties": [], "rollout_percentage": 100}]}
P = "/api/projects/1"
CONSOLE = sorted(file.name for file in (Path(__file__).resolve().parents[2] / "web/dist/assets").iterdir())


@dataclass
class Step:
    """A request to a function and its expected response; `save` extracts values from the response by path."""
    function: str
    method: str
    path: str
    status: int
    body: object = None
    query: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    key: str | None = "{key}"
    save: dict = field(default_factory=dict)

    def request(self, values, make):
        """The request with `values` filled in, constructed by `make(method, path, query, headers, body)`."""
        def fill(text):
            for name, value in values.items():
                text = text.replace("{" + name + "}", str(value))
            return text

        headers = [(name, fill(value)) for name, value in self.headers]
        if self.key:
            headers.append(("Authorization", f"Bearer {fill(self.key)}"))
        body = self.body
        if body is not None and not isinstance(body, bytes):
            body = fill(json.dumps(body, ensure_ascii=False)).encode()
            headers.append(JSON)
        query = [(name, fill(value)) for name, value in self.query]
        return make(self.method, fill(self.path), query, headers, body)


def steps(tag):
    return [*projects(), *flags(tag), *role_access(tag), *sdk_steps(tag), *insights(tag), *others(tag), *calculation(), *people(), *reference()]


def sdk_steps(tag):
    return [*capture(tag), *evaluation()]


def projects():
    def step(path, status=200, **more):
        return Step("projects", "GET", path, status, **more)

    return [
        step("/api/projects/"), step("/api/projects"), step(P), step(f"{P}/"), step("/api/projects/@current/"),
        step("/api/organizations/"), step("/api/organizations/{organization}/projects/", query=[("limit", "1")]),
        step("/api/users/@me/"), step("/api/personal_api_keys/@current/"), step("/api/projects/77/", 404),
        step(f"{P}/nothing/here/", 404), step("/api/projects/", 401, key=None), step("/api/projects/", 401, key="phx_unknown_0123456789"),
        step("/api/projects/", key=None, query=[("personal_api_key", "{key}")]),
        Step("projects", "POST", "/api/projects/", 405, {}),
    ]


def reference():
    def step(path, status=200, headers=(), **more):
        return Step("reference", "GET", path, status, headers=list(headers), key=None, **more)

    return [
        step("/api/schema/"), step("/api/schema", query=[("format", "yaml")]), step("/api/schema/", query=[("format", "xml")], status=404),
        step("/api/schema/", headers=[("Accept", "application/vnd.oai.openapi")]), step("/api/schema/", 304, [("If-None-Match", "*")]),
        step("/docs"), step("/docs/"), step("/docs/", 304, [("If-None-Match", "*")]),
        step("/"), step("/", 304, [("If-None-Match", "*")]), *(step(f"/assets/{name}", headers=[("Accept-Encoding", "gzip")]) for name in CONSOLE),
        step("/assets/nothing.js", 404), step("/docs/nothing", 404), Step("reference", "POST", "/api/schema/", 405, {}, key=None),
    ]


def flags(tag):
    path = f"{P}/feature_flags"

    def step(method, below, status, body=None, **more):
        return Step("flags", method, path + below, status, body, **more)

    one = f"/{{flag_{tag}}}"
    return [
        step("GET", "/", 200, query=[("limit", "2"), ("offset", "1")]), step("GET", "", 200, query=[("active", "true")]),
        step("GET", "/", 200, query=[("search", "new checkout & more ä+%")]),
        step("POST", "/", 201, {"key": f"loop-{tag}", "name": "Grüße, 你好", "filters": EVERYONE, "tags": ["b", "a"]}, save={f"flag_{tag}": "id"}),
        step("POST", "/", 400, {"key": f"loop-{tag}", "filters": EVERYONE}), step("POST", "/", 400, {"key": "not a key!"}),
        step("POST", "/", 400, b'{"key": ', headers=[JSON]), step("POST", "/", 401, {"key": "x"}, key=None),
        step("GET", f"{one}/", 200), step("GET", one, 200), step("GET", "/999999/", 404), step("GET", "/x/", 404),
        step("PATCH", f"{one}/", 200, {"active": False, "name": "changed"}), step("PATCH", one, 400, {"filters": 7}),
        step("PUT", f"{one}/", 200, {"key": f"loop-{tag}", "name": "put", "filters": EVERYONE, "active": True}),
        step("GET", "/activity/", 200, query=[("limit", "2")]), step("GET", f"{one}/activity/", 200), step("GET", f"{one}/status/", 200),
        step("GET", "/my_flags/", 200), step("GET", "/evaluation_reasons/", 200, query=[("distinct_id", "ada")]),
        step("POST", "/user_blast_radius/", 200, {"condition": {"properties": [], "rollout_percentage": 50}}),
        step("POST", "/", 201, {"key": f"secret-{tag}", "filters": {**EVERYONE, "payloads": {"true": "\"hush\""}},
                                "has_encrypted_payloads": True, "is_remote_configuration": True}, save={f"secret_{tag}": "id"}),
        step("GET", f"/{{secret_{tag}}}/", 200), step("GET", f"/secret-{tag}/remote_config/", 200),
        step("POST", f"{one}/dashboard/", 200), step("GET", "/local_evaluation/", 200),
        Step("calculation", "POST", f"{path}/{{secret_{tag}}}/impact", 200, {"query": NODE}),
        Step("calculation", "POST", f"{path}/999999/impact/", 404, {"query": NODE}),
        Step("flags", "GET", "/api/feature_flag/local_evaluation/", 200, query=[("token", "{token}")]),
        Step("flags", "GET", "/flags/definitions", 200, query=[("token", "{token}")]),
        Step("flags", "GET", "/flags/definitions", 200, query=[("token", "{token}")], headers=[("Accept-Encoding", "gzip")]),
        Step("flags", "GET", "/flags/definitions/", 401, query=[("token", "{token}")], key=None),
        Step("flags", "POST", "/flags/", 401, {"token": "phc_of_no_project", "distinct_id": "ada"}, key=None),
        Step("flags", "GET", "/array/{token}/config", 200, key=None),
        step("DELETE", f"{one}/", 405), step("PATCH", f"{one}/", 200, {"deleted": True}), step("GET", f"{one}/", 200),
        step("OPTIONS", "/", 204, key=None, headers=[("Origin", "https://shop.example")]),
        Step("flags", "GET", f"/api/environments/1/feature_flags/{{secret_{tag}}}/", 200),
    ]


def role_access(tag):
    path = f"{P}/feature_flags/{{secret_{tag}}}/role_access"

    def step(method, below, status, body=None, function="role_access", **more):
        return Step(function, method, path + below, status, body, **more)

    one = f"/{{access_{tag}}}"
    return [
        step("GET", "/", 200), step("POST", "/", 201, {"role_id": "{role}"}, save={f"access_{tag}": "id"}),
        step("POST", "/", 400, {"role_id": "{role}"}), step("POST", "", 400, {"role_id": "unknown"}),
        step("GET", f"{one}/", 200), step("GET", "", 200, query=[("limit", "1")]), step("GET", "/", 200, function="flags"),
        step("GET", "/", 401, key=None), step("GET", "/999999/", 404), step("DELETE", f"{one}/", 204), step("DELETE", one, 404),
    ]


def capture(tag):
    def event(name, time="2024-02-03T10:00:00Z"):
        return {"event": f"{name} {tag}", "distinct_id": "ada", "timestamp": time, "properties": {"plan": "größer", "n": 1.5}}

    def text(value):
        return json.dumps(value).encode()

    def step(path, status, body=None, headers=(), method="POST", query=()):
        return Step("capture", method, path, status, body, list(query), list(headers), None)

    batch = {"api_key": "{token}", "batch": [event("plain"), event("plain")]}
    packed = gzip.compress(text([event("packed")]), mtime=0)
    token = [("token", "{token}")]
    form = b"data=" + base64.b64encode(text(event("form"))).replace(b"=", b"%3D").replace(b"+", b"%2B")
    v1 = {"created_at": "2024-02-03T10:00:00Z", "batch": [{**event("first"), "uuid": "01890000-0000-7000-8000-0000000000" + tag.encode().hex()[:2]}]}
    return [
        step("/batch/", 200, batch), step("/batch", 200, batch),
        step("/batch/", 200, packed, [JSON, ("Content-Encoding", "gzip")], query=token),
        step("/e/", 200, packed, [("Content-Type", "application/octet-stream")], query=token),
        # posthog-js, until its configuration is loaded.
        step("/e/", 200, packed, [("Content-Type", "text/plain")], query=[*token, ("compression", "gzip-js")]),
        step("/i/v0/e/", 200, packed, [("Content-Type", "text/plain"), ("Content-Encoding", "gzip")], query=token),
        step("/e/", 200, form, [("Content-Type", "application/x-www-form-urlencoded")], query=token),
        step("/capture/", 200, {"api_key": "{token}", **event("single")}), step("/i/v0/e/", 200, {"api_key": "{token}", **event("single")}),
        step("/i/v1/analytics/events", 200, v1, [("Authorization", "Bearer {token}")]),
        step("/batch/", 401, {"api_key": "phc_of_no_project", "batch": [event("lost")]}), step("/batch/", 400, b"{", [JSON], query=token),
        step("/batch/", 400, b"\x1f\x8b\x00broken", [JSON, ("Content-Encoding", "gzip")], query=token),
        step("/e/", 204, None, [("Origin", "https://shop.example"), ("Access-Control-Request-Method", "POST")], "OPTIONS"),
    ]


def evaluation():
    body = json.dumps({"token": "phc_of_no_project", "distinct_id": "ada"}).encode()
    packed = gzip.compress(body, mtime=0)

    def step(path, body, headers, query=(("v", "2"),)):
        return Step("flags", "POST", path, 401, body, list(query), headers, None)

    return [
        step("/flags/", body, [JSON]), step("/flags/", packed, [JSON, ("Content-Encoding", "gzip")]),
        step("/flags/", packed, [("Content-Type", "text/plain")], [("v", "2"), ("compression", "gzip-js")]),
        step("/decide/", packed, [("Content-Type", "text/plain")], [("v", "3"), ("compression", "gzip-js")]),
        step("/decide/", b"data=" + base64.b64encode(body).replace(b"=", b"%3D"), [("Content-Type", "application/x-www-form-urlencoded")]),
        step("/ofrep/v1/evaluate/flags", b'{"context": {"targetingKey": "ada"}}', [JSON, ("Authorization", "Bearer phc_of_no_project")], []),
        Step("flags", "GET", "/api/surveys/", 200, query=[("token", "{token}")], key=None),
        Step("flags", "GET", "/api/early_access_features/", 200, query=[("token", "{token}")], key=None),
    ]


def insights(tag):
    path = f"{P}/insights"

    def step(method, below, status, body=None, **more):
        return Step("insights", method, path + below, status, body, **more)

    one = f"/{{insight_{tag}}}"
    new = {"name": f"Purchases {tag} ä", "saved": True, "query": {"kind": "InsightVizNode", "source": NODE}}
    link = [("sharing_access_token", f"{{link_{tag}}}")]
    return [
        step("POST", "/", 201, new, save={f"insight_{tag}": "id", f"short_{tag}": "short_id"}), step("GET", f"{one}/", 200),
        step("GET", one, 200, query=[("refresh", "blocking")]), step("GET", f"{one}/", 200, query=[("refresh", "force_cache")]),
        step("GET", "/", 200, query=[("limit", "1"), ("offset", "1"), ("order", "id")]), step("GET", "", 200, query=[("basic", "true")]),
        step("GET", "/", 200, query=[("short_id", f"{{short_{tag}}}")]), Step("insights", "GET", f"{path}.csv", 200, query=[("order", "id"), ("limit", "2")]),
        step("PATCH", f"{one}/", 200, {"description": "d", "favorited": True}), step("PATCH", f"{one}/", 400, {"query": {"kind": "Nothing"}}),
        step("POST", "/", 400, {"name": [7]}), step("POST", "/", 401, new, key=None), step("GET", "/999999/", 404),
        step("POST", f"{one}/viewed/", 200, {}), step("GET", "/my_last_viewed/", 200), step("GET", f"{one}/activity/", 200),
        step("GET", f"{one}/sharing/", 200), step("PATCH", f"{one}/sharing/", 200, {"enabled": True}, save={f"link_{tag}": "access_token"}),
        step("GET", f"{one}/", 200, key=None, query=link), step("GET", f"{one}/", 401, key=None, query=[("sharing_access_token", "no")]),
        step("POST", f"{one}/sharing/refresh/", 200, {}), step("GET", f"{one}/", 401, key=None, query=link),
        step("POST", "/trend/", 200, TREND), step("POST", "/funnel/", 200, FUNNEL), step("DELETE", f"{one}/", 405),
        step("PATCH", f"{one}/", 200, {"deleted": True}), step("GET", f"{one}/", 404),
    ]


def others(tag):
    def kind(name, body, change, bad, gone=200):
        path, one = f"{P}/{name}/", f"{P}/{name}/{{{name}_{tag}}}"
        return [
            Step("insights", "POST", path, 201, body, save={f"{name}_{tag}": "id"}), Step("insights", "GET", path, 200, query=[("limit", "1")]),
            Step("insights", "GET", one, 200), Step("insights", "PATCH", f"{one}/", 200, change), Step("insights", "POST", path, 400, bad),
            Step("insights", "GET", f"{one}/activity/", 200), Step("insights", "PATCH", f"{one}/", 200, {"deleted": True}),
            Step("insights", "GET", f"{one}/", gone), Step("insights", "GET", path, 401, key=None),
        ]

    def multipart(text):
        lines = ["--edge", 'Content-Disposition: form-data; name="name"', "", f"list {tag}", "--edge",
                 'Content-Disposition: form-data; name="is_static"', "", "true", "--edge",
                 'Content-Disposition: form-data; name="csv"; filename="people.csv"', "Content-Type: text/csv", "", text, "--edge--", ""]
        return "\r\n".join(lines).encode()

    mail = {"type": "AND", "values": [{"type": "AND", "values": [{"key": "acquisition_channel", "value": ["email"], "type": "person", "operator": "exact"}]}]}
    return [
        *kind("dashboards", {"name": f"Board {tag}"}, {"name": "changed", "pinned": True}, {"name": [7]}, 404),
        *kind("cohorts", {"name": f"Mail {tag}", "filters": {"properties": mail}}, {"name": "changed"}, {"name": "x", "filters": 7}),
        *kind("actions", {"name": f"Buys {tag}", "steps": [{"event": "purchase"}]}, {"description": "changed"}, {"steps": 7}),
        Step("insights", "POST", f"{P}/cohorts/", 201, multipart("distinct_id\r\nada\r\nzoë\r\n"),
             headers=[("Content-Type", "multipart/form-data; boundary=edge")]),
    ]


def calculation():
    def step(method, below, status, body=None, **more):
        return Step("calculation", method, P + below, status, body, **more)

    compact = json.dumps(FUNNEL["events"])
    return [
        step("POST", "/insights/funnel/", 200, FUNNEL), step("POST", "/insights/funnel", 200, FUNNEL), step("POST", "/insights/trend/", 200, TREND),
        step("GET", "/insights/funnel/", 200, query=[("events", compact), *DATES.items()]),
        step("POST", "/insights/trend.csv", 200, TREND), step("POST", "/insights/funnel/correlation/", 200, FUNNEL),
        step("POST", "/insights/trend/", 400, {"events": [{"id": "x"}], "interval": "century"}), step("POST", "/insights/funnel/", 400, b"[1", headers=[JSON]),
        step("POST", "/insights/retention/", 200, RETENTION), step("POST", "/insights/retention", 400, {"period": "Century"}),
        step("POST", "/insights/trend/", 401, TREND, key=None),
        Step("calculation", "POST", "/api/projects/77/insights/trend/", 404, TREND),
        step("POST", "/query/", 200, {"query": NODE}), step("POST", "/query/", 400, {"query": {"kind": "HogQLQuery", "query": "select 1"}}),
        step("GET", "/query/nothing/", 404), Step("calculation", "GET", "/api/environments/1/insights/trend/", 200, query=[("events", json.dumps(TREND["events"])), *DATES.items()]),
    ]


def people():
    def step(method, below, status, body=None, **more):
        return Step("calculation", method, P + below, status, body, **more)

    return [
        step("GET", "/persons/", 200, query=[("limit", "2")], save={"person": "results.0.id"}), step("GET", "/persons/{person}/", 200),
        step("GET", "/persons/00000000-0000-0000-0000-000000000000/", 404), step("POST", "/persons/funnel/", 200, {**FUNNEL, "funnel_step": 3, "limit": 3}),
        step("POST", "/persons/trends/", 200, {**TREND, "date_from": "2024-03-01", "date_to": "2024-03-31", "limit": 2}), step("GET", "/persons/", 401, key=None),
        step("POST", "/persons/retention/", 200, {**RETENTION, "selected_interval": 2}, query=[("limit", "2")]),
    ]
