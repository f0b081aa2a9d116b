"""The distribution, the two APIs behind it, and the quotas of AWS that they come near.

Which route is on which API is checked by scripts/check_routes.py.
"""

import json
import re
import shutil
import subprocess
import unittest
from collections import Counter

from test_template import RESOURCES, ROOT, TEMPLATE, of_type, transform_template

DISTRIBUTION = RESOURCES["Distribution"]["Properties"]["DistributionConfig"]
# Names that AWS appends and prepends make physical names this long; the stack's name may have 30 characters.
STACK, SUFFIX = "s" * 30, "-" + "X" * 12
EMULATOR = ROOT / "tests/lambda/gateways.py"


def routes(gateway):
    return [it for it in transform_template.routes(TEMPLATE, RESOURCES) if it["gateway"] == gateway]


class Distribution(unittest.TestCase):
    BEHAVIOURS = [*DISTRIBUTION["CacheBehaviors"], DISTRIBUTION["DefaultCacheBehavior"]]

    def test_nothing_is_cached_and_everything_is_passed_on(self):
        for it in self.BEHAVIOURS:
            # Managed-CachingDisabled and Managed-AllViewerExceptHostHeader.
            self.assertEqual(it["CachePolicyId"], "4135ea2d-6df8-44a3-9df3-4b5a84be39ad")
            self.assertEqual(it["OriginRequestPolicyId"], "b689b0a8-53d0-40ab-baf2-68738e2966ac")
            self.assertEqual(set(it["AllowedMethods"]), {"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "POST", "DELETE"})
            self.assertEqual(it["ViewerProtocolPolicy"], "https-only")
        # These are kept for ten seconds by default, and would be given to others: the key is the path alone.
        kept = {it["ErrorCode"]: it["ErrorCachingMinTTL"] for it in DISTRIBUTION["CustomErrorResponses"]}
        self.assertEqual(kept, dict.fromkeys([400, 403, 404, 405, 414, 500, 501, 502, 503, 504], 0))
        self.assertFalse([it for it in DISTRIBUTION["CustomErrorResponses"] if "ResponsePagePath" in it])

    def test_origins_wait_for_the_slowest_function(self):
        origins = {it["Id"]: it for it in DISTRIBUTION["Origins"]}
        self.assertEqual(set(origins), {"api", "public"})
        for it in origins.values():
            self.assertEqual(it["CustomOriginConfig"]["OriginProtocolPolicy"], "https-only")
            self.assertTrue(30 <= it["CustomOriginConfig"]["OriginReadTimeout"] <= 60)
        (stage,) = of_type("AWS::ApiGateway::Stage")
        self.assertEqual(origins["public"]["OriginPath"], {"Fn::Sub": f"/${{{stage}}}"})
        self.assertNotIn("OriginPath", origins["api"])

    def test_paths_of_sdks_lose_their_slash_and_links_of_others_keep_it(self):
        for it in self.BEHAVIOURS:
            (function,) = it["FunctionAssociations"]
            expected = "WithoutSlash" if "PathPattern" in it else "ViewerHost"
            self.assertEqual(function, {"EventType": "viewer-request", "FunctionARN": {"Fn::GetAtt": [expected, "FunctionARN"]}})

    def test_own_host_name_and_firewall_are_optional(self):
        nothing = {"Ref": "AWS::NoValue"}
        self.assertEqual(DISTRIBUTION["WebACLId"], {"Fn::If": ["WithWebAcl", {"Ref": "WebAclArn"}, nothing]})
        self.assertEqual(DISTRIBUTION["Aliases"], {"Fn::If": ["WithDomain", [{"Ref": "DomainName"}], nothing]})
        self.assertEqual(DISTRIBUTION["ViewerCertificate"]["Fn::If"][2], {"CloudFrontDefaultCertificate": True})
        for name in ("WebAclArn", "DomainName", "CertificateArn"):
            self.assertEqual(TEMPLATE["Parameters"][name]["Default"], "")

    @unittest.skipUnless(shutil.which("node"), "needs Node.js")
    def test_functions_of_the_distribution(self):
        def run(name, uri):
            code = RESOURCES[name]["Properties"]["FunctionCode"]
            event = {"request": {"uri": uri, "headers": {"host": {"value": "d1.cloudfront.net"}}, "querystring": {}}}
            script = f"{code}\nconsole.log(JSON.stringify(handler({json.dumps(event)})))"
            return json.loads(subprocess.run(["node", "-e", script], check=True, capture_output=True, text=True).stdout)

        for uri, expected in (("/e/", "/e"), ("/batch", "/batch"), ("/i/v0/e/", "/i/v0/e"), ("/", "/"), ("/flags//", "/flags/")):
            request = run("WithoutSlash", uri)
            self.assertEqual((request["uri"], list(request["headers"])), (expected, ["host"]))
        request = run("ViewerHost", "/api/projects/")
        self.assertEqual((request["uri"], request["headers"]["x-forwarded-host"]), ("/api/projects/", {"value": "d1.cloudfront.net"}))

    def test_the_emulator_sends_the_same_paths_to_the_same_gateway(self):
        text = EMULATOR.read_text(encoding="utf-8")
        listed = re.search(r"^BEHAVIOURS = (\(.*?^\))", text, re.MULTILINE | re.DOTALL)
        emulated = [tuple(it) for it in eval(listed[1], {})]  # noqa: S307 a literal of this repository
        self.assertEqual(emulated, [(it["path"], it["gateway"]) for it in transform_template.behaviours(RESOURCES)])


class Apis(unittest.TestCase):
    def test_every_body_of_sdks_is_passed_on_as_bytes(self):
        (api,) = of_type("AWS::ApiGateway::RestApi").values()
        self.assertEqual(api["Properties"]["BinaryMediaTypes"], ["*~1*"])  # */*, whose slash CloudFormation escapes
        self.assertNotIn("MinimumCompressionSize", api["Properties"])
        self.assertEqual(api["Properties"]["EndpointConfiguration"], {"Types": ["REGIONAL"]})

    def test_pages_can_read_responses_of_the_gateway_itself(self):
        responses = RESOURCES["PublicApi"]["Properties"]["Body"]["x-amazon-apigateway-gateway-responses"]
        for kind in ("DEFAULT_4XX", "DEFAULT_5XX", "THROTTLED"):
            self.assertEqual(responses[kind]["responseParameters"]["gatewayresponse.header.Access-Control-Allow-Origin"], "'*'", kind)
        self.assertEqual(responses["THROTTLED"]["responseParameters"]["gatewayresponse.header.Retry-After"], "'1'")
        self.assertEqual(int(responses["THROTTLED"]["statusCode"]), 503, "posthog-js drops the events of a 429")

    def test_a_warning_at_the_import_fails_no_stack(self):
        for kind in ("AWS::ApiGatewayV2::Api", "AWS::ApiGateway::RestApi"):
            for api in of_type(kind).values():
                self.assertFalse(api["Properties"].get("FailOnWarnings", False), kind)

    def test_each_route_has_limits_of_its_own(self):
        (stage,) = of_type("AWS::ApiGatewayV2::Stage").values()
        self.assertEqual(set(stage["Properties"]["DefaultRouteSettings"]), {"ThrottlingRateLimit", "ThrottlingBurstLimit"})
        (stage,) = of_type("AWS::ApiGateway::Stage").values()
        (settings,) = stage["Properties"]["MethodSettings"]
        self.assertEqual((settings["ResourcePath"], settings["HttpMethod"]), ("/*", "*"))
        # A flood of events on one route leaves more than half of what an account has.
        self.assertLess(TEMPLATE["Parameters"]["PublicRequestsPerSecond"]["Default"], 10_000 / 2)
        self.assertLess(TEMPLATE["Parameters"]["PublicRequestsBurst"]["Default"], 5_000 / 2)

    def test_concurrency_is_reserved_only_on_request(self):
        reserved = {name: it["Properties"].get("ReservedConcurrentExecutions") for name, it in of_type("AWS::Lambda::Function").items()}
        for name, it in reserved.items():
            if it is not None:
                condition, parameter, otherwise = it["Fn::If"]
                self.assertEqual((TEMPLATE["Parameters"][parameter["Ref"]]["Default"], otherwise), ("", {"Ref": "AWS::NoValue"}), name)
                self.assertEqual(TEMPLATE["Conditions"][condition], {"Fn::Not": [{"Fn::Equals": [parameter, ""]}]})
        self.assertEqual({name for name, it in reserved.items() if it}, {f"{it}Function" for it in ("Flags", "Capture", "Insights", "Calculation")})

    def test_access_logs_are_optional_and_have_no_token(self):
        (http,) = of_type("AWS::ApiGatewayV2::Stage").values()
        (rest,) = of_type("AWS::ApiGateway::Stage").values()
        for settings in (http["Properties"]["AccessLogSettings"], rest["Properties"]["AccessLogSetting"]):
            condition, enabled, otherwise = settings["Fn::If"]
            self.assertEqual((condition, otherwise), ("WithAccessLogs", {"Ref": "AWS::NoValue"}))
            self.assertEqual(enabled["DestinationArn"], {"Fn::GetAtt": ["AccessLogGroup", "Arn"]})
            self.assertNotIn("\n", enabled["Format"])
            logged = set(re.findall(r"\$context\.([\w.]+)", enabled["Format"]))
            self.assertFalse(logged & {"path", "rawQueryString", "customDomain.basePathMatched"}, "paths contain tokens")
            self.assertTrue(json.loads(re.sub(r"\$context[\w.]+", "1", enabled["Format"])))
        self.assertEqual(TEMPLATE["Parameters"]["AccessLogs"]["Default"], "off")


class Quotas(unittest.TestCase):
    def test_routes_and_behaviours(self):
        self.assertLessEqual(len(routes("http")), 300)
        resources = {"/".join(it["path"].split("/")[:end]) for it in routes("rest") for end in range(2, it["path"].count("/") + 2)}
        self.assertLessEqual(len(resources), 300)
        # 75 by default, 25 in accounts of before.
        self.assertLessEqual(len(DISTRIBUTION["CacheBehaviors"]) + 1, 25)

    def test_sizes_of_the_functions_permissions(self):
        """The policy of a function may have 20 KB. Each permission of the template is one statement."""
        size = Counter()
        for name, it in of_type("AWS::Lambda::Permission").items():
            function = it["Properties"]["FunctionName"]["Ref"]
            source = json.dumps(it["Properties"]["SourceArn"])
            path = re.search(r"\$\{__Stage__\}/([^\"]*)\"", source)
            statement = {
                "Sid": f"{STACK}-{name}{SUFFIX}", "Effect": "Allow", "Principal": {"Service": it["Properties"]["Principal"]},
                "Action": "lambda:InvokeFunction", "Resource": f"arn:aws:lambda:ap-southeast-1:123456789012:function:{(STACK + '-' + function)[:51]}{SUFFIX}",
                "Condition": {"ArnLike": {"AWS:SourceArn": f"arn:aws:execute-api:ap-southeast-1:123456789012:abcdefghij/*/{path[1] if path else ''}"}},
            }
            size[function] += len(json.dumps(statement, separators=(",", ":"))) + 1
        # Functions invoke it, by policies of their own.
        with_callers = {name for name, it in RESOURCES.items() if it["Type"] == "AWS::Lambda::Function"} - {"PartsFunction"}
        self.assertEqual(set(size), with_callers)
        self.assertLess(max(size.values()) + 100, 20_480, size)

    def test_the_template(self):
        expanded = transform_template.transform(TEMPLATE)
        self.assertLess(len(json.dumps(expanded)), 1_000_000)
        self.assertLess(len(RESOURCES), 500)
        self.assertLess(len(TEMPLATE["Parameters"]), 200)
        self.assertLess(len(TEMPLATE["Outputs"]), 200)


class Dashboard(unittest.TestCase):
    def test_it_is_valid_and_one_of_the_free_ones(self):
        dashboard = RESOURCES["OperationsDashboard"]
        self.assertEqual(dashboard["Condition"], "WithDashboard")
        pattern, variables = dashboard["Properties"]["DashboardBody"]["Fn::Sub"]
        condition, with_buffer, without = variables["CaptureMetrics"]["Fn::If"]
        self.assertEqual((list(variables), condition), (["CaptureMetrics"], "WithCaptureQueue"))
        # Names of conditional resources, only where their condition is true.
        self.assertNotIn("Capture", pattern.replace("${CaptureMetrics}", "").replace("${CaptureFunction}", "").replace('"Capture"', ""))
        for more in (without, with_buffer["Fn::Sub"]):
            text = pattern.replace("${CaptureMetrics}", more)
            widgets = json.loads(text)["widgets"]
            metrics = [metric for it in widgets for metric in it["properties"]["metrics"]]
            self.assertLessEqual(len(metrics), 50, "more than a free dashboard shows")
            for name in re.findall(r"\$\{(\w+)(?:\.\w+)?\}", text):
                self.assertIn(name, RESOURCES)
        shown = {metric[3] for metric in metrics if metric[0] == "AWS/Lambda"}
        self.assertEqual(shown, {f"${{{name}}}" for name in of_type("AWS::Lambda::Function")})

    def test_alarms_and_dashboard_use_one_namespace_of_their_own(self):
        namespaces = {json.dumps(it["Properties"]["MetricTransformations"][0]["MetricNamespace"]) for it in of_type("AWS::Logs::MetricFilter").values()}
        self.assertEqual(namespaces, {'{"Fn::Sub": "Pennon/${AWS::StackName}"}'})
        for it in of_type("AWS::Logs::MetricFilter").values():
            self.assertNotIn("DefaultValue", it["Properties"]["MetricTransformations"][0], "would be charged every hour")


if __name__ == "__main__":
    unittest.main()
