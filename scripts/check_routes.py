#!/usr/bin/env python3
"""Verifies that the distribution and the gateways route every request of the product to a function that handles it.

    check_routes.py TEMPLATE_ROUTES.json PRODUCT_ROUTES.json

The first file is printed by transform_template.py, the second by `pennon routes --json`: [{"group", "method", "path",
"is_redirect"}], without trailing slash, one entry per function (group) that mounts the route. Rules:
 1. no template path but `/` ends in a slash, no gateway declares one twice, no product path but `/` ends in a slash;
 2. each product route, under /api/projects and /api/environments, without and with a trailing slash, reaches a function
    that mounts it, for every way API Gateway may read the slash (see READINGS), through the distribution; with a slash also
    one that redirects to the path without it;
 3. each template route is selected for at least one product route;
 4. the routes of `cargo lambda watch` in the root Cargo.toml route both spellings to a function that mounts them;
 5. the routes of SDKs (see `is_of_sdks`) reach the REST API, all others the HTTP API;
 6. the distribution sends exactly the paths of the REST API's routes there, and makes exceptions only within them.
Standard library only. Exit status 1 and one line for each finding.
"""

import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

MANIFEST = Path(__file__).resolve().parent.parent / "Cargo.toml"

PROJECTS, ENVIRONMENTS = "/api/projects/{project_id}", "/api/environments/{project_id}"

# Groups without gateway routes: they exist in the local server only.
LOCAL_GROUPS = {"local"}

# Catch-all routes. If only these match, no other declaration could match, and they return 404.
NETS = {"/api/projects/{proxy+}", "/api/environments/{proxy+}"}


@dataclass(frozen=True)
class Route:
    """One route of the gateway: a method or ANY, a path template, the group that handles it."""

    method: str
    path: str
    group: str
    gateway: str = "http"

    def kinds(self):
        """0 for a literal segment, 1 for `{name}`, 2 for `{name+}`: smaller is more specific."""
        return tuple(2 if s.endswith("+}") else 1 if s.startswith("{") else 0 for s in segments(self.path))

    def rank(self):
        """Precedence: full matches, then catch-alls; literals first; the method itself before ANY."""
        return (2 in self.kinds(), self.kinds(), self.method == "ANY")


@dataclass(frozen=True)
class Reading:
    """One way that API Gateway may read a path's trailing slash."""

    name: str
    trims: bool  # the slash is dropped before matching
    empty_rest: bool  # {proxy+} may be empty


# Reports differ on the first two. The third is the worst case: {proxy+} must not be empty, so the next wider route matches.
READINGS = [Reading("trimmed", True, True), Reading("kept", False, True), Reading("kept, next wider net", False, False)]


# Where SDKs send bodies, with a project token: below these paths, except what is polled with a personal API key.
SDK_PATHS = ("/flags", "/decide", "/array", "/ofrep", "/batch", "/capture", "/e", "/i", "/api/surveys", "/api/early_access_features")
POLLED = ("/flags/definitions",)

# cargo-lambda's router: a slash is an ordinary character, `{*rest}` must not be empty.
WATCH = Reading("cargo lambda watch", False, False)


def segments(path):
    """Parts between slashes; a trailing slash gives an empty last part."""
    return path.split("/")[1:]


def matches(route, path, empty_rest=True):
    """Whether the route's path template covers a concrete path."""
    parts, kinds = segments(path), route.kinds()
    names = segments(route.path)
    for i, kind in enumerate(kinds):
        if i >= len(parts):
            return False
        if kind == 2:
            return empty_rest or parts[i:] != [""]
        if (kind == 0 and parts[i] != names[i]) or (kind == 1 and not parts[i]):
            return False
    return len(parts) == len(kinds)


def choose(routes, method, path, reading=READINGS[1]):
    """The route that matches the request, or None."""
    if reading.trims and len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    fitting = [r for r in routes if r.method in ("ANY", method) and matches(r, path, reading.empty_rest)]
    return min(fitting, key=Route.rank, default=None)


def is_below(path, roots):
    return any(path == root or path.startswith(root + "/") for root in roots)


def is_of_sdks(path):
    return is_below(path, SDK_PATHS) and not is_below(path, POLLED)


def gateway_of(behaviours, path):
    """The gateway to which the distribution sends a path: the first pattern that matches, `*` matches slashes too."""
    for pattern, gateway in behaviours:
        if re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), path):
            return gateway
    return None


def concrete(path):
    """A request path that a product route's template covers. `{*rest}` becomes two segments."""
    return re.sub(r"\{[^}]*\}", "7", re.sub(r"\{\*[^}]*\}", "7/7", path))


def requests(product):
    """{(method, concrete slashless path): groups that mount it}, environments beside projects."""
    return requests_where(product, lambda route: not route.get("is_redirect"))


def redirects(product):
    """The same for groups that redirect a trailing slash."""
    return requests_where(product, lambda route: route.get("is_redirect"))


def requests_where(product, condition):
    found = {}
    for route in product:
        if route["group"] in LOCAL_GROUPS or not condition(route):
            continue
        spellings = [route["path"]]
        if route["path"].startswith(PROJECTS):
            spellings.append(ENVIRONMENTS + route["path"][len(PROJECTS) :])
        for path in spellings:
            found.setdefault((route["method"].upper(), concrete(path)), set()).add(route["group"])
    return found


def check_shapes(routes, product):
    """Findings of rule 1."""
    findings, seen = [], set()
    for route in routes:
        if route.path.endswith("/") and route.path != "/":
            findings.append(f"template path ends in a slash, API Gateway would drop it: {route.path}")
        key = (route.gateway, route.method, re.sub(r"\{[^}+]*", "{", route.path))
        if key in seen:
            findings.append(f"template route declared twice: {route.method} {route.path}")
        seen.add(key)
    findings += [f"product path ends in a slash: {p['path']}" for p in product if p["path"].endswith("/") and p["path"] != "/"]
    return findings


def check_arrivals(routes, expected, redirected, behaviours):
    """Findings of rules 2 and 5, and the template routes that were selected."""
    findings, chosen = [], set()
    for (method, path), groups in sorted(expected.items()):
        for requested, reading in [(path, READINGS[0])] + [(path + "/", r) for r in READINGS if path != "/"]:
            gateway = gateway_of(behaviours, requested)
            if gateway != ("rest" if is_of_sdks(path) else "http"):
                findings.append(f"{method} {requested}: the distribution sends it to the wrong gateway, {gateway}")
                continue
            # What the distribution sends to the REST API arrives without a slash; this also covers requests to the API itself.
            route = choose([it for it in routes if it.gateway == gateway], method, requested, reading)
            if route is None:
                if reading.empty_rest:
                    findings.append(f"{method} {requested} ({reading.name}): no route, expected {names(groups)}")
                continue
            chosen.add(route)
            in_net = not reading.empty_rest and route.path in NETS
            arrives = route.group in groups or (requested != path and route.group in redirected.get((method, path), ()))
            if not arrives and not in_net:
                findings.append(f"{method} {requested} ({reading.name}): {route.path} leads to {route.group}, expected {names(groups)}")
    return findings, chosen


def check_behaviours(routes, behaviours):
    """Findings of rule 6."""
    patterns = {re.sub(r"\{\w+\+\}", "*", route.path) for route in routes if route.gateway == "rest"}
    to_rest = {path for path, gateway in behaviours if gateway == "rest"}
    findings = [f"the distribution lacks a path of the REST API: {path}" for path in sorted(patterns - to_rest)]
    findings += [f"the distribution sends a path to the REST API that has no such route: {path}" for path in sorted(to_rest - patterns)]
    for index, (path, gateway) in enumerate(behaviours):
        if gateway == "http" and path != "*" and gateway_of(behaviours[index + 1 :], path.replace("*", "7")) != "rest":
            findings.append(f"the distribution has a path of its own for what the default does: {path}")
    return findings


def watch_routes(manifest):
    """Routes of the emulator from the text of the root manifest, in the gateway's notation."""
    table = tomllib.loads(manifest)["workspace"]["metadata"]["lambda"]["watch"]["router"]
    return [Route("ANY", re.sub(r"\{\*(\w+)\}", r"{\1+}", path), group) for path, group in table.items()]


def check_watch(routes, expected):
    """Findings of rule 4."""
    findings = []
    for (method, path), groups in sorted(expected.items()):
        for requested in (path, path + "/") if path != "/" else (path,):
            route = choose(routes, method, requested, WATCH)
            if route is None or route.group not in groups:
                findings.append(f"{method} {requested} ({WATCH.name}): {route and route.group}, expected {names(groups)}")
    return findings


def names(groups):
    return " or ".join(sorted(groups))


def check(routes, product, behaviours=(("*", "http"),)):
    """All findings, as lines of text."""
    expected = requests(product)
    findings = check_shapes(routes, product) + check_behaviours(routes, behaviours)
    arrivals, chosen = check_arrivals(routes, expected, redirects(product), behaviours)
    findings += arrivals
    for route in routes:
        if route not in chosen:
            findings.append(f"template route leads to no product route: {route.method} {route.path}")
    if not expected:
        findings.append("the product prints no routes")
    return findings


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        template = json.load(file)
    routes = [Route(it["method"], it["path"], it["group"], it["gateway"]) for it in template["routes"]]
    behaviours = [(it["path"], it["gateway"]) for it in template["behaviours"]]
    with open(sys.argv[2], encoding="utf-8") as file:
        product = json.load(file)
    findings = check(routes, product, behaviours)
    findings += check_watch(watch_routes(MANIFEST.read_text(encoding="utf-8")), requests(product))
    print("\n".join(findings) if findings else f"{len(requests(product))} product routes, {len(routes)} template routes: all arrive")
    raise SystemExit(1 if findings else 0)


if __name__ == "__main__":
    main()
