"""Plain requests: cross-origin requests of browsers, and events in the query string."""

import base64
import http.client
import json
import urllib.parse

from product import wait_for

ORIGIN = "https://shop.example"
SUMMARY = "CORS of 12 routes and of errors, 20 events by GET /e/?data="


def read_routes(token):
    """(method, path, body, status): responses that a page must be able to read, including errors."""
    event = {"event": "plain request", "distinct_id": "plain"}
    flags = {"token": token, "distinct_id": "plain"}
    return [
        ("POST", "/e/?_=1", {**event, "properties": {"token": token}}, 200),
        ("POST", "/i/v0/e/", {**event, "api_key": token}, 200),
        ("POST", "/capture/", {**event, "api_key": token}, 200),
        ("POST", "/batch/", {"api_key": token, "batch": [event]}, 200),
        ("POST", "/flags/?v=2", flags, 200),
        ("POST", "/flags/?v=2", {"token": token}, 400),
        ("POST", "/decide/?v=3", flags, 200),
        ("POST", "/decide/?v=3", {**flags, "token": "phc_other"}, 401),
        ("GET", f"/array/{token}/config", None, 200),
        ("GET", f"/array/{token}/config.js", None, 200),
        ("GET", "/array/phc_other/config", None, 404),
        ("GET", f"/api/surveys/?token={token}", None, 200),
        ("GET", f"/api/early_access_features/?token={token}", None, 200),
        ("GET", "/api/surveys/", None, 401),
        ("POST", "/ofrep/v1/evaluate/flags", {"context": {"targetingKey": "plain"}}, 200),
        ("POST", "/ofrep/v1/evaluate/flags/half", {"context": {"targetingKey": "plain"}}, 200),
    ]


def request(product, method, path, headers, body=None):
    address = urllib.parse.urlsplit(product.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


def check_headers(what, headers, expected):
    for name, value in expected.items():
        given = headers.get(name, "")
        is_right = value in given.split(", ") if name == "vary" else given == value
        if not is_right:
            yield f"{what}: {name} is {given!r}, expected {value!r}"


def check_routes(product, token):
    for_origin = {"access-control-allow-origin": ORIGIN, "access-control-allow-credentials": "true", "vary": "Origin"}
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, x-own"}
    checked = set()
    for method, path, body, status in read_routes(token):
        what = f"{method} {path}"
        headers = {"Origin": ORIGIN, "Content-Type": "application/json", "X-API-Key": token}
        given, response_headers = request(product, method, path, headers, None if body is None else json.dumps(body))
        if given != status:
            yield f"{what}: {given}, expected {status}"
        yield from check_headers(what, response_headers, for_origin)
        if path in checked:
            continue
        checked.add(path)
        given, response_headers = request(product, "OPTIONS", path, preflight)
        if given != 204:
            yield f"OPTIONS {path}: {given}, expected 204"
        yield from check_headers(f"OPTIONS {path}", response_headers, {
            **for_origin, "access-control-allow-methods": "GET, POST, OPTIONS", "access-control-max-age": "86400"})
        allowed = {name.strip().lower() for name in response_headers.get("access-control-allow-headers", "").split(",")}
        if not {"content-type", "x-own"} <= allowed:
            yield f"OPTIONS {path}: {allowed} allowed, content-type and x-own requested"
    yield from check_query_string(product, token)


def check_query_string(product, token, count=20):
    """Events sent by an image request: GET with base64 in `data`, each with a uuid, one of them sent twice."""
    name = "in the query string"
    for number in [*range(count), 0]:
        event = {"event": name, "distinct_id": "image", "uuid": f"01900000-0000-7000-8000-{number:012}",
                 "properties": {"token": token, "number": number}}
        data = base64.b64encode(json.dumps(event).encode()).decode()
        query = urllib.parse.urlencode({"data": data, "compression": "base64", "ip": 0, "_": number})
        status, headers = request(product, "GET", f"/e/?{query}", {"Origin": ORIGIN})
        if status != 200:
            yield f"GET /e/?data=: {status}, expected 200"
        yield from check_headers("GET /e/?data=", headers, {"access-control-allow-origin": ORIGIN})
    wait_for(lambda: product.count_events(name) >= count, 10, pause=0.5)
    counted = product.count_events(name)
    if counted != count:
        yield f"GET /e/?data=: {counted} events counted, {count} expected"
