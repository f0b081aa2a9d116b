"""template.yaml deployed into a moto server (see deployment.py), and inspected with AWS API calls."""

import ast
import json
import unittest

from deployment import KINDS, ROOT, STACK, UNKNOWN, UNKNOWN_KINDS, Deployed, Server, transform_template


class Deployment(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.deployed = Deployed(cls.server.client)
        cls.ids, cls.client = cls.deployed.ids, staticmethod(cls.server.client)
        cls.groups = transform_template.groups(transform_template.load(ROOT / "template.yaml"))

    def outputs(self):
        return {it["OutputKey"]: it["OutputValue"] for it in self.deployed.stack["Outputs"]}

    def test_everything_that_the_template_names_is_there(self):
        self.assertEqual(self.deployed.stack["StackStatus"], "CREATE_COMPLETE")
        for name, it in self.deployed.resources.items():
            if not self.deployed.is_made(it):
                self.assertIsNone(self.ids.get(name), name)
                continue
            # CloudFormation has no id of a permission; the policy of its function contains it.
            if it["Type"] in UNKNOWN_KINDS:
                self.assertIsNone(self.ids.get(name), f"{name}: moto knows it by now")
            elif it["Type"] != "AWS::Lambda::Permission":
                self.assertTrue(self.ids.get(name), f"{name} ({it['Type']})")
        made_by_hand = {name for kind in KINDS for name in self.deployed.of_kind(kind)}
        self.assertEqual(self.deployed.by_hand, made_by_hand)

    def test_tables(self):
        database = self.client("dynamodb")
        self.assertEqual(set(database.list_tables()["TableNames"]), {self.ids["RecordsTable"], self.ids["BlocksTable"]})
        for name, stream in (("RecordsTable", "KEYS_ONLY"), ("BlocksTable", None)):
            with self.subTest(name):
                table = database.describe_table(TableName=self.ids[name])["Table"]
                keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
                self.assertEqual(keys, [("pk", "HASH"), ("sk", "RANGE")])
                self.assertEqual({it["AttributeType"] for it in table["AttributeDefinitions"]}, {"S"})
                self.assertEqual(table["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST")
                self.assertEqual(table.get("StreamSpecification", {}).get("StreamViewType"), stream)
                expiry = database.describe_time_to_live(TableName=self.ids[name])["TimeToLiveDescription"]
                self.assertEqual((expiry["TimeToLiveStatus"], expiry["AttributeName"]), ("ENABLED", "expires_at"))
                backups = database.describe_continuous_backups(TableName=self.ids[name])["ContinuousBackupsDescription"]
                self.assertEqual(backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"], "ENABLED")

    def test_bucket(self):
        store, bucket = self.client("s3"), self.ids["Bucket"]
        self.assertEqual(store.get_bucket_versioning(Bucket=bucket)["Status"], "Enabled")
        blocked = store.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
        self.assertEqual(list(blocked.values()), [True] * 4)
        (rule,) = store.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        self.assertEqual(rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"], "AES256")
        (owner,) = store.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
        self.assertEqual(owner["ObjectOwnership"], "BucketOwnerEnforced")
        (statement,) = json.loads(store.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
        self.assertEqual(statement["Effect"], "Deny")
        self.assertEqual(statement["Resource"], [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"])
        self.assertEqual(statement["Condition"], {"Bool": {"aws:SecureTransport": "false"}})

    def test_bucket_forgets_old_versions_and_results(self):
        rules = self.client("s3").get_bucket_lifecycle_configuration(Bucket=self.ids["Bucket"])["Rules"]
        rules = {rule["ID"]: rule for rule in rules}
        self.assertEqual({rule["Status"] for rule in rules.values()}, {"Enabled"})
        self.assertEqual(rules["old-versions"]["NoncurrentVersionExpiration"], {"NoncurrentDays": 30})
        self.assertEqual(rules["old-versions"]["Expiration"], {"ExpiredObjectDeleteMarker": True})
        self.assertEqual(rules["aborted-uploads"]["AbortIncompleteMultipartUpload"], {"DaysAfterInitiation": 2})
        self.assertEqual(rules["results"]["Filter"], {"Prefix": "events/results/"})
        self.assertEqual(rules["results"]["Expiration"], {"Days": 8})
        self.assertEqual(rules["tables"]["Filter"], {"Prefix": "events/iceberg/"})
        self.assertEqual(rules["tables"]["NoncurrentVersionExpiration"], {"NoncurrentDays": 1})
        for name in ("old-versions", "aborted-uploads"):
            self.assertEqual((rules[name]["Filter"], rules[name].get("Expiration", {}).get("Days")), ({"Prefix": ""}, None))

    def test_every_function_has_its_settings(self):
        functions = {it["FunctionName"]: it for it in self.client("lambda").list_functions()["Functions"]}
        self.assertEqual(set(functions), {self.ids[name] for name in self.groups})
        shared = {
            "PENNON_RECORDS_TABLE": self.ids["RecordsTable"],
            "PENNON_BLOCKS_TABLE": self.ids["BlocksTable"],
            "PENNON_EVENTS_URL": f"s3://{self.ids['Bucket']}/events",
            "PENNON_LOG": "pennon::request=info,info",
            "PENNON_METRICS": "off",
            "PENNON_RATE_LIMITS": "off",
        }
        clickhouse = {f"PENNON_CLICKHOUSE_{name}" for name in ("URL", "CLUSTER", "USER", "PASSWORD")}
        own = {
            "flags": {"PENNON_PAYLOAD_KEY"},
            "role_access": {"PENNON_PAYLOAD_KEY"},
            "insights": {"PENNON_PAYLOAD_KEY", "PENNON_ANSWER_SECONDS", *clickhouse},
            "calculation": {"PENNON_ANSWER_SECONDS", *clickhouse},
            "worker": {"PENNON_ICEBERG", *clickhouse},
        }
        for name, group in self.groups.items():
            with self.subTest(group):
                function = functions[self.ids[name]]
                self.assertEqual((function["Runtime"], function["Handler"]), ("provided.al2023", "bootstrap"))
                self.assertEqual(function["Timeout"], {"worker": 600, "parts": 300, "capture": 15}.get(group, 29))
                variables = function["Environment"]["Variables"]
                self.assertLessEqual(shared.items(), variables.items())
                self.assertEqual(set(variables) - set(shared) - {"MALLOC_ARENA_MAX"}, own.get(group, set()))

    def test_every_function_has_a_role_of_its_own_that_reaches_its_own_tables(self):
        identity, seen = self.client("iam"), set()
        tables = {self.deployed.arn(name) for name in ("RecordsTable", "BlocksTable")}
        for name in self.groups:
            with self.subTest(name):
                function = self.client("lambda").get_function_configuration(FunctionName=self.ids[name])
                role = identity.get_role(RoleName=self.ids[name + "Role"])["Role"]
                self.assertEqual(function["Role"], role["Arn"])
                seen.add(role["Arn"])
                (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
                self.assertEqual(trust["Principal"], {"Service": ["lambda.amazonaws.com"]})
                names = identity.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
                documents = [identity.get_role_policy(RoleName=role["RoleName"], PolicyName=it)["PolicyDocument"] for it in names]
                # moto returns CloudFormation's value in Python's notation.
                documents = [ast.literal_eval(it) if isinstance(it, str) else it for it in documents]
                # The limit of all inline policies of a role, without white space.
                self.assertLess(sum(len(json.dumps(it, separators=(",", ":"))) for it in documents), 10_240)
                # The transform writes a policy of one statement without a list.
                statements = [it["Statement"] for it in documents]
                statements = [it for found in statements for it in (found if isinstance(found, list) else [found])]
                on_tables = [it for it in statements if str(it["Resource"]) in tables]
                self.assertTrue(all("dynamodb:LeadingKeys" in json.dumps(it.get("Condition")) for it in on_tables), "strict by default")
                resources = {it["Resource"] for it in statements if "dynamodb:GetItem" in it["Action"]}
                self.assertLessEqual(resources, tables)
                if self.groups[name] == "reference":
                    self.assertEqual(statements, [])
                else:
                    self.assertIn(self.deployed.arn("RecordsTable"), resources)
        self.assertEqual(len(seen), len(self.groups))

    def test_the_worker_is_woken_by_jobs_by_captured_events_and_by_the_clock(self):
        mappings = self.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        mapping, compaction = sorted(mappings, key=lambda it: it["BatchSize"])
        stream = self.client("dynamodb").describe_table(TableName=self.ids["RecordsTable"])["Table"]["LatestStreamArn"]
        worker, queue = self.deployed.arn("WorkerFunction"), self.deployed.arn("FailureQueue")
        self.assertEqual((mapping["EventSourceArn"], mapping["FunctionArn"], mapping["State"]), (stream, worker, "Enabled"))
        (pattern,) = mapping["FilterCriteria"]["Filters"]
        self.assertEqual(json.loads(pattern["Pattern"])["dynamodb"], {"Keys": {"pk": {"S": [{"prefix": "JOB#"}]}}})
        self.assertEqual((mapping["BatchSize"], mapping["ParallelizationFactor"]), (10, 8))
        self.assertEqual((mapping["MaximumRetryAttempts"], mapping["MaximumRecordAgeInSeconds"]), (5, 3600))
        self.assertEqual(mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
        self.assertEqual(mapping["DestinationConfig"], {"OnFailure": {"Destination": queue}})
        self.assertEqual((compaction["EventSourceArn"], compaction["FunctionArn"], compaction["State"]), (stream, worker, "Enabled"))
        (pattern,) = compaction["FilterCriteria"]["Filters"]
        keys = {"pk": {"S": [{"prefix": "COMPACTION#"}]}, "sk": {"S": [{"prefix": "WAKE#"}]}}
        self.assertEqual(json.loads(pattern["Pattern"]), {"eventName": ["INSERT"], "dynamodb": {"Keys": keys}})
        # The row that woke it is of a minute, and the run comes after that minute.
        self.assertEqual((compaction["BatchSize"], compaction["MaximumBatchingWindowInSeconds"]), (100, 60))
        clock = self.client("events")
        (rule,) = clock.list_rules()["Rules"]
        self.assertEqual((rule["ScheduleExpression"], rule["State"]), ("rate(1 hour)", "ENABLED"))
        (target,) = clock.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        self.assertEqual(target["Arn"], worker)
        self.assertNotIn("Input", target)

    def test_what_fails_goes_to_the_queue(self):
        queue = self.client("sqs").get_queue_attributes(QueueUrl=self.ids["FailureQueue"], AttributeNames=["All"])["Attributes"]
        self.assertEqual((queue["MessageRetentionPeriod"], queue["SqsManagedSseEnabled"]), ("1209600", "true"))
        invoke = self.client("lambda").get_function_event_invoke_config(FunctionName=self.ids["WorkerFunction"])
        self.assertEqual(invoke["MaximumRetryAttempts"], 0)
        self.assertEqual(invoke["DestinationConfig"]["OnFailure"], {"Destination": self.deployed.arn("FailureQueue")})

    def test_logs_are_kept_for_thirty_days(self):
        logs = self.client("logs").describe_log_groups()["logGroups"]
        self.assertEqual(len(logs), len(self.groups))
        self.assertEqual({it["retentionInDays"] for it in logs}, {30})

    def test_alarms(self):
        alarms = {it["AlarmName"]: it for it in self.client("cloudwatch").describe_alarms()["MetricAlarms"]}
        names = ("Errors", "Throttles", "IteratorAge", "FailureQueue", "Faults", "Latency", "PublicLatency", "TableThrottles", "WaitingBlocks",
                 "FailedCalculations")
        self.assertEqual(set(alarms), {f"{STACK}-{it}Alarm" for it in names})
        for name, metric in (("Errors", "Errors"), ("Throttles", "Throttles")):
            metrics = [it["MetricStat"]["Metric"] for it in alarms[f"{STACK}-{name}Alarm"]["Metrics"] if "MetricStat" in it]
            self.assertEqual({it["MetricName"] for it in metrics}, {metric})
            watched = {dimension["Value"] for it in metrics for dimension in it["Dimensions"]}
            # A part that fails is invoked again, and its query has a function of its own.
            self.assertEqual(watched, {self.ids[it] for it in self.groups if it != "PartsFunction"})
        waits = alarms[f"{STACK}-IteratorAgeAlarm"]
        self.assertEqual((waits["Threshold"], waits["Dimensions"][0]["Value"]), (600_000, self.ids["WorkerFunction"]))
        queue = alarms[f"{STACK}-FailureQueueAlarm"]["Dimensions"][0]["Value"]
        self.assertEqual(queue, self.ids["FailureQueue"].rsplit("/", 1)[-1])
        faults = [it["MetricStat"]["Metric"] for it in alarms[f"{STACK}-FaultsAlarm"]["Metrics"] if "MetricStat" in it]
        rest_name = self.client("apigateway").get_rest_apis()["items"][0]["name"]
        self.assertEqual({(it["MetricName"], it["Dimensions"][0]["Value"]) for it in faults}, {("5xx", self.ids["Api"]), ("5XXError", rest_name)})
        for name, value, most in (("Latency", self.ids["Api"], 29_000), ("PublicLatency", rest_name, 5_000)):
            alarm = alarms[f"{STACK}-{name}Alarm"]
            self.assertEqual((alarm["ExtendedStatistic"], alarm["Dimensions"][0]["Value"]), ("p99", value))
            self.assertLess(alarm["Threshold"], most)
        throttled = [it["MetricStat"]["Metric"] for it in alarms[f"{STACK}-TableThrottlesAlarm"]["Metrics"] if "MetricStat" in it]
        expected = {(kind, self.ids[table]) for kind in ("ReadThrottleEvents", "WriteThrottleEvents") for table in ("RecordsTable", "BlocksTable")}
        self.assertEqual({(it["MetricName"], it["Dimensions"][0]["Value"]) for it in throttled}, expected)
        filters = {it["metricTransformations"][0]["metricName"]: it for it in self.client("logs").describe_metric_filters()["metricFilters"]}
        for name in ("WaitingBlocks", "FailedCalculations"):
            alarm = alarms[f"{STACK}-{name}Alarm"]
            found = filters[alarm["MetricName"]]
            self.assertEqual(found["metricTransformations"][0]["metricNamespace"], alarm["Namespace"])
            self.assertEqual(found["logGroupName"], self.ids["WorkerLogs"])
        self.assertEqual({it["TreatMissingData"] for it in alarms.values()}, {"notBreaching"})
        # No topic was configured.
        self.assertEqual([it["AlarmActions"] for it in alarms.values() if it.get("AlarmActions")], [])

    def test_routes_lead_to_their_functions(self):
        gateway = self.client("apigatewayv2")
        (api,) = gateway.get_apis()["Items"]
        routes = {it["RouteKey"]: it["Target"] for it in gateway.get_routes(ApiId=api["ApiId"])["Items"]}
        targets = {"integrations/" + it["IntegrationId"]: it for it in gateway.get_integrations(ApiId=api["ApiId"])["Items"]}
        expected = [it for it in transform_template.routes(transform_template.load(ROOT / "template.yaml")) if it["gateway"] == "http"]
        self.assertEqual(set(routes), {f"{it['method']} {it['path']}" for it in expected})
        for it in expected:
            integration = targets[routes[f"{it['method']} {it['path']}"]]
            self.assertIn(f"/{self.deployed.arn(it['function'])}/invocations", integration["IntegrationUri"])
            self.assertEqual(integration["PayloadFormatVersion"], "2.0")
        (stage,) = gateway.get_stages(ApiId=api["ApiId"])["Items"]
        self.assertEqual((stage["StageName"], stage["AutoDeploy"]), ("$default", True))
        self.assertEqual(stage["DefaultRouteSettings"], {"ThrottlingRateLimit": 1000, "ThrottlingBurstLimit": 500})
        self.assertFalse(stage.get("AccessLogSettings"))

    def test_routes_of_sdks_are_on_the_rest_api(self):
        gateway = self.client("apigateway")
        (api,) = gateway.get_rest_apis()["items"]
        found = {}
        for resource in gateway.get_resources(restApiId=api["id"], limit=500)["items"]:
            for method in resource.get("resourceMethods", {}):
                integration = gateway.get_integration(restApiId=api["id"], resourceId=resource["id"], httpMethod=method)
                self.assertEqual(integration["type"].upper(), "AWS_PROXY")
                found[resource["path"]] = integration["uri"]
        expected = [it for it in transform_template.routes(transform_template.load(ROOT / "template.yaml")) if it["gateway"] == "rest"]
        self.assertEqual(set(found), {it["path"] for it in expected})
        for it in expected:
            self.assertIn(f"/{self.deployed.arn(it['function'])}/invocations", found[it["path"]])
        (stage,) = gateway.get_stages(restApiId=api["id"])["item"]
        self.assertEqual(stage["stageName"], "live")
        (settings,) = stage["methodSettings"].values()
        self.assertEqual((settings["throttlingRateLimit"], settings["throttlingBurstLimit"]), (2500, 1250))

    def test_the_gateway_and_the_clock_may_call_their_functions(self):
        expected = {name: set() for name in self.groups}
        for it in self.deployed.resources.values():
            if it["Type"] == "AWS::Lambda::Permission":
                expected[it["Properties"]["FunctionName"]["Ref"]].add(it["Properties"]["Principal"])
        # Only functions invoke it, which their own roles allow.
        self.assertEqual(expected.pop("PartsFunction"), set())
        for name, principals in expected.items():
            policy = json.loads(self.client("lambda").get_policy(FunctionName=self.ids[name])["Policy"])
            self.assertEqual({it["Principal"]["Service"] for it in policy["Statement"]}, principals)
            self.assertEqual(principals, {"events.amazonaws.com"} if name == "WorkerFunction" else {"apigateway.amazonaws.com"})

    def test_outputs_name_what_was_made(self):
        outputs = self.outputs()
        self.assertEqual(outputs["RecordsTableName"], self.ids["RecordsTable"])
        self.assertEqual(outputs["BlocksTableName"], self.ids["BlocksTable"])
        self.assertEqual(outputs["BucketName"], self.ids["Bucket"])
        self.assertEqual(outputs["EventsUrl"], f"s3://{self.ids['Bucket']}/events")
        self.assertEqual(outputs["FailureQueueUrl"], self.ids["FailureQueue"])
        # The API was created separately afterwards, so CloudFormation's value lacks the beginning of its URL.
        self.assertEqual(outputs["HttpApiUrl"], "https://${Api}.execute-api.us-east-1.amazonaws.com")
        self.assertEqual(len(outputs), 6)
        # What moto's CloudFormation could not have made.
        # The queues are made only with a capture buffer.
        others = {name: it["Value"] for name, it in self.deployed.template["Outputs"].items() if name not in outputs}
        self.assertEqual(set(others), {"ApiUrl", "DistributionDomainName", "PublicApiUrl", "CaptureQueueUrl", "CaptureFailureQueueUrl"})
        public = self.deployed.resolved(others["PublicApiUrl"])
        self.assertEqual(public, f"https://{self.ids['PublicApi']}.execute-api.us-east-1.amazonaws.com/live")
        self.assertEqual(others["ApiUrl"]["Fn::If"][0], "WithDomain")

    def test_what_moto_does_not_know_is_still_unknown(self):
        """Otherwise it must be asserted above."""
        function = self.client("lambda").get_function_configuration(FunctionName=self.ids["WorkerFunction"])
        shown = {("AWS::Lambda::Function", name) for name in ("LoggingConfig",) if name in function}
        # The template's default is arm64.
        shown |= {("AWS::Lambda::Function", "Architectures")} if function["Architectures"] == ["arm64"] else set()
        (api,) = self.client("apigateway").get_rest_apis()["items"]
        shown |= {("AWS::ApiGateway::RestApi", "BinaryMediaTypes")} if api.get("binaryMediaTypes") else set()
        self.assertEqual(shown & set(UNKNOWN), set())


class CaptureBuffer(unittest.TestCase):
    """The stack with CaptureBuffer=SQS."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.deployed = Deployed(cls.server.client, CaptureBuffer="SQS")
        cls.ids, cls.client = cls.deployed.ids, staticmethod(cls.server.client)

    def test_the_queue_is_connected_with_its_function_and_its_dead_letters(self):
        queues = self.client("sqs")
        attributes = queues.get_queue_attributes(QueueUrl=self.ids["CaptureQueue"], AttributeNames=["All"])["Attributes"]
        self.assertEqual((attributes["VisibilityTimeout"], attributes["MessageRetentionPeriod"]), ("95", "1209600"))
        self.assertEqual((attributes["MaximumMessageSize"], attributes["SqsManagedSseEnabled"]), ("65536", "true"))
        dead_letters = json.loads(attributes["RedrivePolicy"])
        self.assertEqual((dead_letters["deadLetterTargetArn"], int(dead_letters["maxReceiveCount"])), (self.deployed.arn("CaptureFailureQueue"), 20))
        mappings = self.client("lambda").list_event_source_mappings(FunctionName=self.ids["CaptureFunction"])["EventSourceMappings"]
        (mapping,) = mappings
        self.assertEqual((mapping["EventSourceArn"], mapping["BatchSize"]), (self.deployed.arn("CaptureQueue"), 10_000))
        function = self.client("lambda").get_function_configuration(FunctionName=self.ids["CaptureFunction"])
        self.assertEqual(function["Environment"]["Variables"]["PENNON_CAPTURE_QUEUE_URL"], self.ids["CaptureQueue"])

    def test_the_role_of_capture_may_use_the_queue(self):
        identity = self.client("iam")
        role = self.ids["CaptureFunctionRole"]
        documents = [identity.get_role_policy(RoleName=role, PolicyName=it)["PolicyDocument"] for it in identity.list_role_policies(RoleName=role)["PolicyNames"]]
        documents = [ast.literal_eval(it) if isinstance(it, str) else it for it in documents]
        statements = [it for document in documents for it in document["Statement"]]
        (queue,) = [it for it in statements if "sqs:SendMessage" in it["Action"]]
        self.assertEqual(queue["Resource"], self.deployed.arn("CaptureQueue"))

    def test_both_queues_have_alarms(self):
        alarms = {it["AlarmName"]: it for it in self.client("cloudwatch").describe_alarms()["MetricAlarms"]}
        for name, queue in (("CaptureQueueAlarm", "CaptureQueue"), ("CaptureFailureQueueAlarm", "CaptureFailureQueue")):
            (dimension,) = alarms[f"{STACK}-{name}"]["Dimensions"]
            self.assertEqual(dimension["Value"], self.ids[queue].rsplit("/", 1)[-1])


if __name__ == "__main__":
    unittest.main()
