"""Tests of scripts/check_routes.py: the matcher against API Gateway's documented precedence, the checks with constructed faults."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from check_routes import READINGS, Route, check, check_watch, choose, gateway_of, is_of_sdks, requests, watch_routes  # noqa: E402

TRIMMED, KEPT, WIDER = READINGS


def route(path, group="g", method="ANY"):
    return Route(method, path, group)


class Order(unittest.TestCase):
    """The example of API Gateway's developer guide, and its rule: full match, then catch-all, for route and method."""

    ROUTES = [
        route("/pets/dog/1", method="GET"),
        route("/pets/dog/{id}", method="GET"),
        route("/pets/{proxy+}", method="GET"),
        route("/{proxy+}"),
    ]

    def chosen(self, method, path):
        found = choose(self.ROUTES, method, path)
        return found and found.path

    def test_literal_beats_name_beats_net(self):
        self.assertEqual(self.chosen("GET", "/pets/dog/1"), "/pets/dog/1")
        self.assertEqual(self.chosen("GET", "/pets/dog/2"), "/pets/dog/{id}")
        self.assertEqual(self.chosen("GET", "/pets/cat/1"), "/pets/{proxy+}")

    def test_method_is_part_of_the_match(self):
        self.assertEqual(self.chosen("POST", "/test/5"), "/{proxy+}")
        self.assertEqual(self.chosen("POST", "/pets/dog/1"), "/{proxy+}")

    def test_method_itself_beats_any_on_one_path(self):
        both = [route("/a", "any"), route("/a", "get", "GET")]
        self.assertEqual(choose(both, "GET", "/a").group, "get")
        self.assertEqual(choose(both, "PUT", "/a").group, "any")

    def test_longer_net_beats_shorter(self):
        nets = [route("/a/{proxy+}"), route("/a/{id}/b/{proxy+}")]
        self.assertEqual(choose(nets, "GET", "/a/1/b/c").path, "/a/{id}/b/{proxy+}")
        self.assertEqual(choose(nets, "GET", "/a/1/c").path, "/a/{proxy+}")

    def test_a_net_does_not_cover_its_own_root(self):
        self.assertIsNone(choose([route("/a/{proxy+}")], "GET", "/a"))


class Slash(unittest.TestCase):
    ROUTES = [route("/x", "root"), route("/x/{proxy+}", "below"), route("/x/{id}/y", "y"), route("/x/{id}/y/{proxy+}", "y below")]

    def test_trimmed(self):
        self.assertEqual(choose(self.ROUTES, "GET", "/x/", TRIMMED).group, "root")
        self.assertEqual(choose(self.ROUTES, "GET", "/x/1/y/", TRIMMED).group, "y")

    def test_kept(self):
        self.assertEqual(choose(self.ROUTES, "GET", "/x/", KEPT).group, "below")
        self.assertEqual(choose(self.ROUTES, "GET", "/x/1/y/", KEPT).group, "y below")

    def test_kept_where_a_net_wants_something(self):
        self.assertIsNone(choose(self.ROUTES, "GET", "/x/", WIDER))
        self.assertEqual(choose(self.ROUTES, "GET", "/x/1/y/", WIDER).group, "below")

    def test_a_name_is_never_empty(self):
        for reading in READINGS[1:]:
            self.assertIsNone(choose([route("/x/{id}")], "GET", "/x/", reading))


class Checks(unittest.TestCase):
    P = "/api/projects/{project_id}"
    E = "/api/environments/{project_id}"

    def template(self):
        return [
            route(root + tail, group)
            for root in (self.P, self.E)
            for tail, group in [
                ("/flags", "flags"),
                ("/flags/{proxy+}", "flags"),
                ("/flags/{id}/roles", "roles"),
                ("/flags/{id}/roles/{proxy+}", "roles"),
            ]
        ]

    def product(self):
        rows = [
            ("flags", "GET", "/flags"),
            ("flags", "GET", "/flags/{id}"),
            ("roles", "POST", "/flags/{flag_id}/roles"),
            ("flags", "POST", "/flags/{flag_id}/roles"),
        ]
        return [{"group": g, "method": m, "path": self.P + p} for g, m, p in rows]

    def test_a_sound_template_has_no_findings(self):
        self.assertEqual(check(self.template(), self.product()), [])

    def test_slash_in_the_template(self):
        findings = check(self.template() + [route(self.P + "/flags/")], self.product())
        self.assertTrue(any("ends in a slash" in f for f in findings), findings)

    def test_the_root_is_the_only_path_with_a_slash_at_its_end(self):
        product = self.product() + [{"group": "pages", "method": "GET", "path": "/"}]
        self.assertEqual(check(self.template() + [route("/", "pages")], product), [])
        self.assertEqual(check(self.template(), product), ["GET / (trimmed): no route, expected pages"])

    def test_a_spelling_left_out(self):
        findings = check([r for r in self.template() if not r.path.startswith(self.E)], self.product())
        self.assertTrue(any("/api/environments/7/flags" in f and "no route" in f for f in findings), findings)

    def test_the_wider_group_must_mount_the_narrower_routes(self):
        product = [p for p in self.product() if (p["group"], p["method"]) != ("flags", "POST")]
        findings = check(self.template(), product)
        self.assertEqual(len(findings), 2, findings)
        self.assertTrue(all("next wider net" in f and "leads to flags, expected roles" in f for f in findings), findings)

    def test_the_wider_group_may_redirect_a_slash(self):
        mounts = lambda p: (p["group"], p["method"]) == ("flags", "POST")
        product = [{**p, "is_redirect": mounts(p)} for p in self.product()]
        self.assertEqual(check(self.template(), product), [])
        # Without an exact route the redirect would lead to the same function again.
        findings = check([r for r in self.template() if r.group != "roles"], product)
        self.assertTrue(any("POST /api/projects/7/flags/7/roles (trimmed)" in f for f in findings), findings)
        self.assertFalse(any("roles/ (next wider net)" in f or "roles/ (kept" in f for f in findings), findings)

    def test_missing_net_below_a_group(self):
        findings = check([r for r in self.template() if not r.path.endswith("/flags/{proxy+}")], self.product())
        self.assertTrue(any("GET /api/projects/7/flags/ (kept): no route" in f for f in findings), findings)

    def test_route_that_leads_nowhere(self):
        findings = check(self.template() + [route("/left/over")], self.product())
        self.assertEqual(findings, ["template route leads to no product route: ANY /left/over"])

    def test_local_routes_need_no_gateway(self):
        product = self.product() + [{"group": "local", "method": "GET", "path": "/_health"}]
        self.assertEqual(check(self.template(), product), [])

    def test_no_product_routes_is_a_finding(self):
        self.assertIn("the product prints no routes", check(self.template(), []))

    def test_one_path_under_two_names(self):
        findings = check(self.template() + [route(self.P + "/flags/{other}/roles", "roles")], self.product())
        self.assertTrue(any("declared twice" in f for f in findings), findings)


class TwoGateways(unittest.TestCase):
    BEHAVIOURS = [("/flags/definitions", "http"), ("/flags/definitions/*", "http"), ("/flags", "rest"), ("/flags/*", "rest"), ("*", "http")]
    ROUTES = [Route("ANY", path, "flags", gateway) for path, gateway in (
        ("/flags", "rest"), ("/flags/{proxy+}", "rest"), ("/flags/definitions", "http"), ("/flags/definitions/{proxy+}", "http"))]
    PRODUCT = [{"group": "flags", "method": method, "path": path} for method, path in (("POST", "/flags"), ("GET", "/flags/definitions"))]

    def findings(self, routes=None, behaviours=None):
        return check(routes or self.ROUTES, self.PRODUCT, behaviours or self.BEHAVIOURS)

    def test_the_first_pattern_that_matches_decides(self):
        for path, gateway in (("/flags", "rest"), ("/flags/", "rest"), ("/flags/definitions/", "http"), ("/flagship", "http"), ("/api/projects/1", "http")):
            self.assertEqual(gateway_of(self.BEHAVIOURS, path), gateway, path)

    def test_what_sdks_post_to(self):
        for path, of_sdks in (("/e", True), ("/i/v0/e", True), ("/events", False), ("/flags", True), ("/flags/definitions", False),
                              ("/api/feature_flag/local_evaluation", False), ("/api/surveys", True)):
            self.assertEqual(is_of_sdks(path), of_sdks, path)

    def test_a_sound_template_has_no_findings(self):
        self.assertEqual(self.findings(), [])

    def test_a_route_of_sdks_on_the_http_api(self):
        routes = [Route(it.method, it.path, it.group, "http") for it in self.ROUTES]
        findings = self.findings(routes, [("*", "http")])
        self.assertTrue(any("POST /flags: the distribution sends it to the wrong gateway, http" in it for it in findings), findings)

    def test_a_polled_route_on_the_rest_api(self):
        findings = self.findings(behaviours=self.BEHAVIOURS[2:])
        self.assertTrue(any("GET /flags/definitions: the distribution sends it to the wrong gateway, rest" in it for it in findings), findings)

    def test_behaviours_are_the_routes_of_the_rest_api(self):
        findings = self.findings(behaviours=[*self.BEHAVIOURS[:4], ("/decide", "rest"), self.BEHAVIOURS[4]])
        self.assertEqual(findings, ["the distribution sends a path to the REST API that has no such route: /decide"])
        findings = self.findings([*self.ROUTES, Route("ANY", "/decide", "flags", "rest")])
        self.assertIn("the distribution lacks a path of the REST API: /decide", findings)
        findings = self.findings(behaviours=[("/docs", "http"), *self.BEHAVIOURS])
        self.assertEqual(findings, ["the distribution has a path of its own for what the default does: /docs"])


class Watch(unittest.TestCase):
    MANIFEST = """
    [workspace.metadata.lambda.watch.router]
    "/x" = "x"
    "/x/" = "x"
    "/x/{id}" = "x"
    "/x/{id}/{*rest}" = "x"
    "/x/{id}/roles" = "roles"
    """

    def findings(self, *rows):
        product = [{"group": g, "method": "GET", "path": p} for g, p in rows]
        return check_watch(watch_routes(self.MANIFEST), requests(product))

    def test_each_spelling_needs_its_own_route(self):
        self.assertEqual(self.findings(("x", "/x")), [])
        self.assertEqual(self.findings(("x", "/x/{id}")), ["GET /x/7/ (cargo lambda watch): None, expected x"])

    def test_literals_beat_the_catch_all(self):
        self.assertEqual(self.findings(("x", "/x/{id}/other")), [])
        self.assertEqual(self.findings(("roles", "/x/{id}/roles")), ["GET /x/7/roles/ (cargo lambda watch): x, expected roles"])


if __name__ == "__main__":
    unittest.main()
