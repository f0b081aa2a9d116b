"""docs/deploy.md, docs/deploy-policy.json and samconfig.toml agree with the template."""

import json
import re
import tomllib
import unittest

from test_template import RESOURCES, ROOT, TEMPLATE, of_type

PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
# The prefix of IAM actions for each service of resource kinds.
SERVICES = {"ApiGateway": "apigateway", "ApiGatewayV2": "apigateway", "CloudFront": "cloudfront", "CloudWatch": "cloudwatch", "DynamoDB": "dynamodb",
            "Events": "events", "IAM": "iam", "Lambda": "lambda", "Logs": "logs", "S3": "s3", "SQS": "sqs"}


class Page(unittest.TestCase):
    def section(self, title):
        return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]

    def test_every_parameter_is_described(self):
        described = self.section("Parameters").replace("`...Burst`", "`PublicRequestsBurst`")
        self.assertEqual([name for name in TEMPLATE["Parameters"] if f"`{name}`" not in described], [])

    def test_every_alarm_is_described(self):
        listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in self.section("Alarms and dashboard").splitlines() if line.startswith("| `"))))
        self.assertEqual(listed, {name.removesuffix("Alarm") for name in of_type("AWS::CloudWatch::Alarm")})

    def test_outputs_exist(self):
        used = set(re.findall(r"output ([A-Z]\w+)", PAGE)) | {"ApiUrl", "HttpApiUrl", "PublicApiUrl"}
        self.assertLessEqual(used, set(TEMPLATE["Outputs"]))

    def test_files_and_links_exist(self):
        for target in re.findall(r"\]\(([\w./-]+\.\w+)(?:#[\w-]+)?\)", PAGE):
            self.assertTrue((ROOT / "docs" / target).is_file(), target)
        for target in re.findall(r"`((?:tests|scripts)/[\w./]+)[` ]", PAGE):
            self.assertTrue((ROOT / target).exists(), target)

    def test_versions_of_tools_are_those_of_ci(self):
        pinned = dict(line.split("==") for line in (ROOT / ".ci/requirements.txt").read_text().splitlines() if "==" in line)
        self.assertIn(f"`ziglang=={pinned['ziglang']}`", PAGE)
        self.assertGreaterEqual([int(it) for it in pinned["aws-sam-cli"].split(".")[:2]], [1, 165])
        self.assertIn("SAM CLI 1.165 or newer", PAGE)


class Settings(unittest.TestCase):
    def test_samconfig_names_parameters_of_the_template(self):
        text = (ROOT / "samconfig.toml").read_text(encoding="utf-8")
        settings = tomllib.loads(text)
        self.assertEqual({name for name in settings if name != "version"}, {"default", "production"})
        for name in ("default", "production"):
            parameters = settings[name]["global"]["parameters"]["parameter_overrides"]
            proposed = re.findall(r'# "(\w+)=([^"]*)"', text)
            for parameter, value in [it.split("=", 1) for it in parameters] + proposed:
                declared = TEMPLATE["Parameters"][parameter]
                if "AllowedValues" in declared:
                    self.assertIn(value, [str(it) for it in declared["AllowedValues"]], parameter)
                if "AllowedPattern" in declared:
                    self.assertRegex(value, f"^(?:{declared['AllowedPattern']})$", parameter)
            self.assertEqual(settings[name]["deploy"]["parameters"]["capabilities"], "CAPABILITY_IAM")
            # The policy of the operator names resources by this prefix.
            self.assertTrue(settings[name]["global"]["parameters"]["stack_name"].startswith("pennon"))


class OperatorPolicy(unittest.TestCase):
    POLICY = json.loads((ROOT / "docs/deploy-policy.json").read_text(encoding="utf-8"))

    def test_it_fits_into_a_managed_policy(self):
        self.assertLess(len(json.dumps(self.POLICY, separators=(",", ":"))), 6_144)
        self.assertEqual(len({it["Sid"] for it in self.POLICY["Statement"]}), len(self.POLICY["Statement"]))

    def test_it_has_every_service_of_the_template(self):
        actions = [action for it in self.POLICY["Statement"] for action in (it["Action"] if isinstance(it["Action"], list) else [it["Action"]])]
        expected = {SERVICES[it["Type"].split("::")[1]] for it in RESOURCES.values()}
        self.assertLessEqual(expected | {"cloudformation", "secretsmanager", "ssm"}, {action.split(":")[0] for action in actions})
        self.assertNotIn("*", actions)

    def test_the_policy_of_commands_names_rows_and_objects_only(self):
        policy = json.loads((ROOT / "docs/operator-policy.json").read_text(encoding="utf-8"))
        actions = {action for it in policy["Statement"] for action in ([it["Action"]] if isinstance(it["Action"], str) else it["Action"])}
        self.assertFalse([action for action in actions if "*" in action])
        # What functions may do with tables and the bucket, and what only commands do.
        roles = [policy["PolicyDocument"] for role in of_type("AWS::IAM::Role").values() for policy in role["Properties"].get("Policies", [])]
        functions = {action for document in roles for statement in document["Statement"] for action in statement["Action"]}
        stream = {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"}
        functions = {action for action in functions if action.startswith(("dynamodb:", "s3:"))} - stream
        self.assertTrue(functions)
        self.assertEqual(actions - functions, {"s3:ListBucketVersions", "s3:DeleteObjectVersion", "cloudformation:DescribeStacks"})
        self.assertEqual(functions - actions, set())


if __name__ == "__main__":
    unittest.main()
