"""Tests of template.yaml as the SAM transform expands it: retention, encryption, permissions.

Needs aws-sam-translator, so it runs with the interpreter of .venv.
"""

import json
import os
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
import transform_template  # noqa: E402

TEMPLATE = transform_template.load(ROOT / "template.yaml")
RESOURCES = transform_template.transform(TEMPLATE)["Resources"]


def of_type(kind):
    return {name: r for name, r in RESOURCES.items() if r["Type"] == kind}


def allowed(group):
    """{(action, resource)} of a group's role; a resource is the logical id with its suffix."""
    function = next(n for n, g in transform_template.groups(TEMPLATE).items() if g == group)
    found = set()
    for policy in RESOURCES[function + "Role"]["Properties"].get("Policies", []):
        for statement in policy["PolicyDocument"]["Statement"]:
            resources = statement["Resource"]
            for resource in resources if isinstance(resources, list) else [resources]:
                target = resource if isinstance(resource, str) else next(iter(resource.values()))
                target = ".".join(target) if isinstance(target, list) else target
                found |= {(action, target) for action in statement["Action"]}
    return found


class Data(unittest.TestCase):
    def test_tables(self):
        tables = of_type("AWS::DynamoDB::Table")
        self.assertEqual(set(tables), {"RecordsTable", "BlocksTable"})
        for name, table in tables.items():
            with self.subTest(name):
                properties = table["Properties"]
                self.assertEqual((table["DeletionPolicy"], table["UpdateReplacePolicy"]), ("RetainExceptOnCreate", "Retain"))
                self.assertEqual(properties["BillingMode"], "PAY_PER_REQUEST")
                self.assertEqual([k["AttributeName"] for k in properties["KeySchema"]], ["pk", "sk"])
                self.assertEqual(properties["TimeToLiveSpecification"], {"AttributeName": "expires_at", "Enabled": True})
                self.assertTrue(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"])
                # Encrypted with DynamoDB's own key. `SSEEnabled: true` would choose a KMS key whose use is charged.
                self.assertNotIn("SSESpecification", properties)
        self.assertEqual(tables["RecordsTable"]["Properties"]["StreamSpecification"], {"StreamViewType": "KEYS_ONLY"})
        self.assertNotIn("StreamSpecification", tables["BlocksTable"]["Properties"])

    def test_bucket(self):
        bucket = RESOURCES["Bucket"]
        self.assertEqual((bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]), ("RetainExceptOnCreate", "Retain"))
        (encryption,) = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        self.assertEqual(encryption, {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}, "a KMS key would be charged")
        self.assertTrue(all(bucket["Properties"]["PublicAccessBlockConfiguration"].values()))
        self.assertEqual(len(bucket["Properties"]["PublicAccessBlockConfiguration"]), 4)
        self.assertEqual(bucket["Properties"]["VersioningConfiguration"], {"Status": "Enabled"})
        rules = {rule["Id"]: rule for rule in bucket["Properties"]["LifecycleConfiguration"]["Rules"]}
        self.assertEqual((rules["results"]["Prefix"], rules["results"]["ExpirationInDays"]), ("events/results/", 8))
        self.assertEqual([r for r in rules.values() if "ExpirationInDays" in r], [rules["results"]], "events stay")
        self.assertEqual((rules["tables"]["Prefix"], rules["tables"]["NoncurrentVersionExpiration"]), ("events/iceberg/", {"NoncurrentDays": 1}))
        (rule,) = RESOURCES["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
        self.assertEqual((rule["Effect"], rule["Condition"]), ("Deny", {"Bool": {"aws:SecureTransport": "false"}}))


class Costs(unittest.TestCase):
    """Figures of `pennon cost` that come from the template."""

    UNITS = json.loads((ROOT / "cli/src/cost/units.json").read_text(encoding="utf-8"))

    def test_memory_of_functions(self):
        functions = {g: RESOURCES[name]["Properties"]["MemorySize"] for name, g in transform_template.groups(TEMPLATE).items()}
        default = TEMPLATE["Parameters"]["CalculationMemory"]["Default"]
        memory = {g: default if it == {"Ref": "CalculationMemory"} else it for g, it in functions.items()}
        of = {"batch": "capture", "compaction": "worker", "tick": "worker", "wake": "worker", "poll": "flags", "evaluation": "flags", "change": "flags"}
        of |= {"query": "calculation", "view": "insights", "buffered": "capture", "consumed": "capture"}
        for name, unit in self.UNITS.items():
            if name not in ("assumed", "large_query"):
                self.assertEqual(unit["memory_mb"], memory[of[name.split("_")[0]]], name)

    def test_clock_and_alarms(self):
        self.assertEqual(TEMPLATE["Parameters"]["CompactionSchedule"]["Default"], "rate(1 hour)")
        self.assertEqual(self.UNITS["assumed"]["ticks_a_month"], 730)
        metrics = {"WithAlarms": 0, "WithCaptureAlarms": 0}
        for alarm in of_type("AWS::CloudWatch::Alarm").values():
            metrics[alarm["Condition"]] += len([it for it in alarm["Properties"].get("Metrics", [{"MetricStat": {}}]) if "MetricStat" in it])
        assumed = self.UNITS["assumed"]
        self.assertEqual((assumed["alarm_metrics"], assumed["buffer_alarm_metrics"]), (metrics["WithAlarms"], metrics["WithCaptureAlarms"]))
        total = sum(metrics.values())
        self.assertIn(f"watch {metrics['WithAlarms']} metrics, {total} with a capture buffer", TEMPLATE["Parameters"]["Alarms"]["Description"])


class Functions(unittest.TestCase):
    def test_one_for_each_folder(self):
        folders = {p.parent.name for p in ROOT.glob("functions/*/Cargo.toml")}
        self.assertEqual(set(transform_template.groups(TEMPLATE).values()), folders)

    def test_each_has_its_log_and_the_architecture_parameter(self):
        groups = set()
        for name, function in of_type("AWS::Lambda::Function").items():
            properties = function["Properties"]
            self.assertEqual(properties["Runtime"], "provided.al2023", name)
            self.assertEqual(TEMPLATE["Globals"]["Function"]["Architectures"], [{"Ref": "Architecture"}])
            groups.add(properties["LoggingConfig"]["LogGroup"]["Ref"])
        self.assertEqual(groups | {"AccessLogGroup"}, set(of_type("AWS::Logs::LogGroup")))
        for name, group in of_type("AWS::Logs::LogGroup").items():
            self.assertIn("RetentionInDays", group["Properties"], name)

    def test_no_line_of_a_request_is_filtered(self):
        """Lambda drops lines below its own level, INFO by default; PENNON_LOG decides here, and always includes requests."""
        for name, function in of_type("AWS::Lambda::Function").items():
            logging = function["Properties"]["LoggingConfig"]
            self.assertEqual((logging["LogFormat"], logging["ApplicationLogLevel"], logging["SystemLogLevel"]), ("JSON", "TRACE", "INFO"), name)
            log = function["Properties"]["Environment"]["Variables"]["PENNON_LOG"]
            self.assertEqual(log, {"Fn::Sub": "pennon::request=info,${LogLevel}"}, name)

    def test_saved_queries_are_those_of_the_documentation(self):
        described = " ".join((ROOT / "docs/operations.md").read_text().split())
        fields = {"message"} | set(re.findall(r"`(\w+)`", described.split("## Log queries")[0]))
        queries = of_type("AWS::Logs::QueryDefinition")
        self.assertEqual(len(queries), 4)
        for name, query in queries.items():
            properties = query["Properties"]
            self.assertIn(" ".join(properties["QueryString"].split()), described, name)
            for group in properties["LogGroupNames"]:
                self.assertIn(group["Ref"], of_type("AWS::Logs::LogGroup"))
            used = re.findall(r"(?:by|pct\(|sum\(|avg\(|max\(|filter) ?([a-z_]+)\b(?![.(])", properties["QueryString"])
            known = fields | {"type", "requests", "starts", "ispresent"}
            self.assertLessEqual({word for word in used if word != "ispresent"}, known, name)

    def test_functions_without_access_to_events(self):
        for group in ("role_access", "projects"):
            self.assertEqual({t for _, t in allowed(group)}, {"RecordsTable.Arn"}, group)
        self.assertEqual(allowed("reference"), set())

    def test_projects_writes_keys_and_nothing_else(self):
        writes = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}
        on_records = {a for a, t in allowed("projects") if t == "RecordsTable.Arn"}
        # The partition keys are compared by test_policies.py: keys, and their entries in the installation's list.
        self.assertEqual(on_records & writes, {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"})

    def test_functions_that_require_keys_may_record_their_use(self):
        for group in ("flags", "role_access", "insights", "calculation", "projects"):
            self.assertIn(("dynamodb:UpdateItem", "RecordsTable.Arn"), allowed(group), group)

    def test_capture_adds_blocks_marks_and_merges_and_nothing_else(self):
        on = {table: {a for a, t in allowed("capture") if t == table} for table in ("BlocksTable.Arn", "RecordsTable.Arn")}
        self.assertEqual(on["BlocksTable.Arn"], {"dynamodb:PutItem"})
        reads = {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}
        # The batch removes committed requests from the queue of merges; test_policies.py compares its partition keys.
        self.assertEqual(on["RecordsTable.Arn"] - reads, {"dynamodb:PutItem", "dynamodb:ConditionCheckItem", "dynamodb:BatchWriteItem"})
        # Merges of imported persons with several ids need their links, which are in an object. No events are read.
        objects = {(a, t) for a, t in allowed("capture") if a.startswith("s3:")}
        self.assertEqual({a for a, _ in objects}, {"s3:GetObject", "s3:ListBucket"})
        self.assertFalse([t for _, t in objects if "project=*/events/" in t])

    def test_only_the_worker_changes_segments(self):
        for group in transform_template.groups(TEMPLATE).values():
            changes = {(a, t) for a, t in allowed(group) if a in ("s3:PutObject", "s3:DeleteObject")}
            on_segments = {change for change in changes if "/events/results/" not in change[1]}
            self.assertEqual(bool(on_segments), group == "worker", group)
            for action, target in allowed(group):
                self.assertNotIn("*", action)
                if action.startswith("s3:") and action != "s3:ListBucket":
                    self.assertTrue(target.startswith("${Bucket.Arn}/events/"), (group, action, target))

    def test_functions_that_calculate_store_large_results_and_remove_none(self):
        for group in ("insights", "calculation"):
            writes = {(a, t) for a, t in allowed(group) if a in ("s3:PutObject", "s3:DeleteObject")}
            self.assertEqual(writes, {("s3:PutObject", "${Bucket.Arn}/events/results/project=*/*")}, group)

    def test_functions_that_store_member_lists_may_write_in_batches(self):
        for group in ("flags", "insights"):
            self.assertIn("dynamodb:BatchWriteItem", {action for action, _ in allowed(group)}, group)

    def test_only_functions_that_show_flags_and_links_get_the_payload_key(self):
        self.assertTrue(TEMPLATE["Parameters"]["PayloadKey"]["NoEcho"])
        holders = set()
        for name, function in of_type("AWS::Lambda::Function").items():
            variables = function["Properties"]["Environment"]["Variables"]
            self.assertIn("PENNON_RECORDS_TABLE", variables, name)
            if "PENNON_PAYLOAD_KEY" in variables:
                by_reference = {"Fn::Sub": "{{resolve:${PayloadKeyFrom}}}"}
                self.assertEqual(variables["PENNON_PAYLOAD_KEY"], {"Fn::If": ["WithPayloadKeyFrom", by_reference, {"Ref": "PayloadKey"}]})
                holders.add(transform_template.groups(TEMPLATE)[name])
        self.assertEqual(holders, {"flags", "role_access", "insights"})

    def test_a_failed_record_is_retried_alone_and_then_kept(self):
        patterns = {
            "WorkerStream": {"pk": {"S": [{"prefix": "JOB#"}]}},
            "CompactionStream": {"pk": {"S": [{"prefix": "COMPACTION#"}]}, "sk": {"S": [{"prefix": "WAKE#"}]}},
        }
        mappings = of_type("AWS::Lambda::EventSourceMapping")
        mappings.pop("CaptureConsumer")  # of a queue; see below
        # DynamoDB allows a stream two readers.
        self.assertEqual(set(mappings), set(patterns))
        for name, mapping in mappings.items():
            properties = mapping["Properties"]
            self.assertEqual(properties["FunctionResponseTypes"], ["ReportBatchItemFailures"])
            self.assertTrue(properties["BisectBatchOnFunctionError"])
            self.assertGreater(properties["MaximumRetryAttempts"], 0)
            (filter_,) = properties["FilterCriteria"]["Filters"]
            self.assertEqual(json.loads(filter_["Pattern"]), {"eventName": ["INSERT"], "dynamodb": {"Keys": patterns[name]}})
            self.assertIn("OnFailure", properties["DestinationConfig"])


class CaptureBuffer(unittest.TestCase):
    """The queue that captured events wait in, if the parameter says so."""

    QUEUES = {name: it for name, it in of_type("AWS::SQS::Queue").items() if name != "FailureQueue"}

    def test_it_exists_only_if_the_parameter_is_set(self):
        parameter = TEMPLATE["Parameters"]["CaptureBuffer"]
        self.assertEqual((parameter["Default"], parameter["AllowedValues"]), ("none", ["none", "SQS", "drain"]))
        self.assertEqual(TEMPLATE["Conditions"]["WithCaptureQueue"], {"Fn::Not": [{"Fn::Equals": [{"Ref": "CaptureBuffer"}, "none"]}]})
        self.assertEqual(TEMPLATE["Conditions"]["WithCaptureBuffer"], {"Fn::Equals": [{"Ref": "CaptureBuffer"}, "SQS"]})
        both = {"Fn::And": [{"Condition": "WithCaptureQueue"}, {"Condition": "WithAlarms"}]}
        self.assertEqual(TEMPLATE["Conditions"]["WithCaptureAlarms"], both)
        conditions = {name: it.get("Condition") for name, it in RESOURCES.items() if name.startswith("Capture") and "Function" not in name}
        self.assertEqual(conditions.pop("CaptureLogs"), None)
        alarms = {"CaptureQueueAlarm", "CaptureFailureQueueAlarm"}
        self.assertEqual({name for name, it in conditions.items() if it == "WithCaptureAlarms"}, alarms)
        others = {"CaptureQueue", "CaptureFailureQueue", "CaptureQueuePolicy", "CaptureConsumer"}
        self.assertEqual({name for name, it in conditions.items() if it == "WithCaptureQueue"}, others)
        self.assertEqual(set(conditions), alarms | others)
        # What refers to them without their condition would fail to deploy.
        for name, it in RESOURCES.items():
            if it.get("Condition") not in ("WithCaptureQueue", "WithCaptureAlarms") and name not in ("CaptureFunction", "OperationsDashboard"):
                self.assertNotRegex(json.dumps(it), r"Capture(Failure)?Queue\b", name)

    def test_capture_sends_only_with_the_value_sqs(self):
        variables = RESOURCES["CaptureFunction"]["Properties"]["Environment"]["Variables"]
        url = {"Fn::If": ["WithCaptureBuffer", {"Ref": "CaptureQueue"}, {"Ref": "AWS::NoValue"}]}
        self.assertEqual(variables["PENNON_CAPTURE_QUEUE_URL"], url)
        for name, function in of_type("AWS::Lambda::Function").items():
            if name != "CaptureFunction":
                self.assertNotIn("PENNON_CAPTURE_QUEUE_URL", function["Properties"]["Environment"]["Variables"], name)

    def test_queues_keep_events(self):
        self.assertEqual(set(self.QUEUES), {"CaptureQueue", "CaptureFailureQueue"})
        for name, queue in self.QUEUES.items():
            properties = queue["Properties"]
            self.assertEqual((queue["DeletionPolicy"], queue["UpdateReplacePolicy"]), ("RetainExceptOnCreate", "Retain"), name)
            self.assertEqual((properties["MessageRetentionPeriod"], properties["SqsManagedSseEnabled"]), (14 * 24 * 3600, True), name)
            self.assertNotIn("KmsMasterKeyId", properties, "a KMS key would be charged")
            self.assertNotIn("QueueName", properties, "a kept queue would be in the way of a new one")
        properties = self.QUEUES["CaptureQueue"]["Properties"]
        dead_letters = properties["RedrivePolicy"]
        self.assertEqual(dead_letters["deadLetterTargetArn"], {"Fn::GetAtt": ["CaptureFailureQueue", "Arn"]})
        self.assertGreaterEqual(dead_letters["maxReceiveCount"], 5)
        window = RESOURCES["CaptureConsumer"]["Properties"]["MaximumBatchingWindowInSeconds"]
        self.assertGreaterEqual(properties["VisibilityTimeout"], 6 * RESOURCES["CaptureFunction"]["Properties"]["Timeout"] + window)
        # The largest message that capture sends.
        source = (ROOT / "shared/eventstore/src/blocks/queued_block.rs").read_text(encoding="utf-8")
        (most,) = re.findall(r"pub const MESSAGE_BYTES_MAX: usize = ([\d_]+);", source)
        self.assertEqual(properties["MaximumMessageSize"], int(most))

    def test_the_function_consumes_in_batches_and_reports_single_messages(self):
        consumer = RESOURCES["CaptureConsumer"]
        properties = consumer["Properties"]
        self.assertEqual(properties["EventSourceArn"], {"Fn::GetAtt": ["CaptureQueue", "Arn"]})
        self.assertEqual((properties["FunctionName"], consumer["DependsOn"]), ({"Ref": "CaptureFunction"}, "CaptureQueuePolicy"))
        self.assertEqual((properties["BatchSize"], properties["MaximumBatchingWindowInSeconds"]), (10_000, 5))
        self.assertEqual(properties["FunctionResponseTypes"], ["ReportBatchItemFailures"])
        self.assertEqual(properties["ScalingConfig"], {"MaximumConcurrency": 2})

    def test_only_capture_may_use_its_queue(self):
        policy = RESOURCES["CaptureQueuePolicy"]["Properties"]
        self.assertEqual(policy["Roles"], [{"Ref": "CaptureFunctionRole"}])
        (statement,) = policy["PolicyDocument"]["Statement"]
        self.assertEqual(statement["Resource"], {"Fn::GetAtt": ["CaptureQueue", "Arn"]})
        self.assertEqual(set(statement["Action"]), {"sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"})
        for group in transform_template.groups(TEMPLATE).values():
            self.assertNotIn("CaptureQueue.Arn", {target for _, target in allowed(group)}, group)

    def test_alarms_watch_both_queues(self):
        for name, queue, metric, most in (("CaptureQueueAlarm", "CaptureQueue", "ApproximateAgeOfOldestMessage", 600),
                                          ("CaptureFailureQueueAlarm", "CaptureFailureQueue", "ApproximateNumberOfMessagesVisible", 0)):
            properties = RESOURCES[name]["Properties"]
            self.assertEqual((properties["Namespace"], properties["MetricName"], properties["Threshold"]), ("AWS/SQS", metric, most))
            self.assertEqual(properties["Dimensions"], [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}])


if __name__ == "__main__":
    unittest.main()
