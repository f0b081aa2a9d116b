"""Deploys template.yaml, as the SAM transform expands it, into a moto server on a free port: an AWS of this process.

moto's CloudFormation ignores some kinds of resources (KINDS) and some properties (PROPERTIES) that moto itself supports.
They are created with the calls that CloudFormation would make, from the template. Resources that moto does not support are
in UNKNOWN, with the reason; a test fails when that is no longer true.
"""

import io
import json
import logging
import os
import re
import sys
import urllib.request
import warnings
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
REGION = "us-east-1"
for _name, _value in {"AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}.items():
    os.environ.setdefault(_name, _value)
import transform_template  # noqa: E402

STACK = "pennon"
# Location of the functions' code for the transform.
CODE_BUCKET, CODE_KEY = "bucket", "code.zip"


def put_bucket_policy(client, name, it):
    client("s3").put_bucket_policy(Bucket=it["Bucket"], Policy=json.dumps(it["PolicyDocument"]))
    return it["Bucket"]


def put_alarm(client, name, it):
    client("cloudwatch").put_metric_alarm(AlarmName=f"{STACK}-{name}", **it)
    return f"{STACK}-{name}"


def put_metric_filter(client, name, it):
    transformations = [{key[0].lower() + key[1:]: value for key, value in entry.items()} for entry in it["MetricTransformations"]]
    client("logs").put_metric_filter(
        logGroupName=it["LogGroupName"], filterName=f"{STACK}-{name}", filterPattern=it["FilterPattern"], metricTransformations=transformations
    )
    return f"{STACK}-{name}"


def put_invoke_config(client, name, it):
    client("lambda").put_function_event_invoke_config(**it)
    return it["FunctionName"]


def make_api(client, name, it):
    """moto reads no OpenAPI document, so its routes are created one by one."""
    gateway, body = client("apigatewayv2"), it["Body"]
    api = gateway.create_api(Name=body["info"]["title"], ProtocolType="HTTP")["ApiId"]
    for path, item in body["paths"].items():
        for method, operation in item.items():
            integration = operation["x-amazon-apigateway-integration"]
            made = gateway.create_integration(
                ApiId=api,
                IntegrationType=integration["type"].upper(),
                IntegrationUri=integration["uri"],
                IntegrationMethod=integration["httpMethod"],
                PayloadFormatVersion=integration["payloadFormatVersion"],
            )
            method = "ANY" if method == transform_template.ANY else method.upper()
            gateway.create_route(ApiId=api, RouteKey=f"{method} {path}", Target="integrations/" + made["IntegrationId"])
    return api


def make_stage(client, name, it):
    client("apigatewayv2").create_stage(**it)
    return it["StageName"]


def make_deployment(client, name, it):
    return client("apigateway").create_deployment(restApiId=it["RestApiId"])["id"]


def make_rest_stage(client, name, it):
    gateway = client("apigateway")
    gateway.create_stage(restApiId=it["RestApiId"], stageName=it["StageName"], deploymentId=it["DeploymentId"])
    paths = {"ThrottlingRateLimit": "rateLimit", "ThrottlingBurstLimit": "burstLimit"}
    changes = [
        {"op": "replace", "path": f"/{settings['ResourcePath'].removeprefix('/')}/{settings['HttpMethod']}/throttling/{path}", "value": str(settings[key])}
        for settings in it["MethodSettings"] for key, path in paths.items()
    ]
    gateway.update_stage(restApiId=it["RestApiId"], stageName=it["StageName"], patchOperations=changes)
    return it["StageName"]


# Kinds of resources that moto's CloudFormation ignores, or makes of the document of a REST API, which it ignores. An API comes
# before its stage.
KINDS = {
    "AWS::ApiGateway::Deployment": make_deployment,
    "AWS::ApiGateway::Stage": make_rest_stage,
    "AWS::ApiGatewayV2::Api": make_api,
    "AWS::ApiGatewayV2::Stage": make_stage,
    "AWS::CloudWatch::Alarm": put_alarm,
    "AWS::Lambda::EventInvokeConfig": put_invoke_config,
    "AWS::Logs::MetricFilter": put_metric_filter,
    "AWS::S3::BucketPolicy": put_bucket_policy,
}


def lifecycle(rules):
    """CloudFormation's rules in the format of the S3 API."""

    def rule(declared):
        made = {"ID": declared["Id"], "Status": declared["Status"], "Filter": {"Prefix": declared.get("Prefix", "")}}
        expiration = {"Days": declared.get("ExpirationInDays"), "ExpiredObjectDeleteMarker": declared.get("ExpiredObjectDeleteMarker")}
        made["Expiration"] = {name: value for name, value in expiration.items() if value is not None}
        for name in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"):
            made[name] = declared.get(name)
        return {name: value for name, value in made.items() if value not in (None, {})}

    return {"Rules": [rule(declared) for declared in rules["Rules"]]}


# Properties that moto's CloudFormation ignores: (kind, property) to a call of (clients, physical id, value).
PROPERTIES = {
    ("AWS::ApiGateway::RestApi", "Body"): lambda client, name, it: client("apigateway").put_rest_api(
        restApiId=name, mode="overwrite", body=json.dumps(it).encode()
    ),
    ("AWS::DynamoDB::Table", "TimeToLiveSpecification"): lambda client, name, it: client("dynamodb").update_time_to_live(
        TableName=name, TimeToLiveSpecification=it
    ),
    ("AWS::DynamoDB::Table", "PointInTimeRecoverySpecification"): lambda client, name, it: client(
        "dynamodb"
    ).update_continuous_backups(TableName=name, PointInTimeRecoverySpecification=it),
    ("AWS::S3::Bucket", "VersioningConfiguration"): lambda client, name, it: client("s3").put_bucket_versioning(
        Bucket=name, VersioningConfiguration=it
    ),
    ("AWS::S3::Bucket", "PublicAccessBlockConfiguration"): lambda client, name, it: client("s3").put_public_access_block(
        Bucket=name, PublicAccessBlockConfiguration=it
    ),
    ("AWS::S3::Bucket", "OwnershipControls"): lambda client, name, it: client("s3").put_bucket_ownership_controls(
        Bucket=name, OwnershipControls=it
    ),
    ("AWS::S3::Bucket", "LifecycleConfiguration"): lambda client, name, it: client("s3").put_bucket_lifecycle_configuration(
        Bucket=name, LifecycleConfiguration=lifecycle(it)
    ),
}
# Properties that moto never returns; test_template.py asserts them on the expanded template.
UNKNOWN = {
    ("AWS::DynamoDB::Table", "SSESpecification"): "moto returns the encryption of a table only if it was set by a separate call",
    ("AWS::ApiGateway::RestApi", "BinaryMediaTypes"): "moto cuts binary types at their slash; test_gateways.py asserts them",
    ("AWS::Lambda::Function", "LoggingConfig"): "moto's functions have no logging configuration",
    ("AWS::Lambda::Function", "Architectures"): "moto's CloudFormation makes every function one of x86_64",
}


# Kinds of resources that moto does not support.
UNKNOWN_KINDS = {
    "AWS::Logs::QueryDefinition": "moto keeps no saved queries; test_template.py asserts their texts and log groups",
    "AWS::CloudFront::Distribution": "moto's CloudFormation makes no distributions; test_gateways.py asserts its behaviours",
    "AWS::CloudFront::Function": "moto has no functions of CloudFront; test_gateways.py runs them",
}


class Deployed:
    """The stack: physical ids by logical ids, and the template."""

    def __init__(self, client, **parameters):
        self.client, self.ids, self.by_hand = client, {}, set()
        template = transform_template.transform(transform_template.load(ROOT / "template.yaml"))
        self.template, self.resources = template, template["Resources"]
        self.parameters = {name: it.get("Default") for name, it in template["Parameters"].items()}
        self.parameters |= parameters
        self.chosen_parameters = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
        self._create()
        for (kind, key), call in PROPERTIES.items():
            for name in self.of_kind(kind):
                if key in self.resources[name]["Properties"]:
                    call(client, self.ids[name], self.properties(name)[key])
        # In the order of KINDS, as later ones refer to earlier ones.
        for kind, make in KINDS.items():
            for name in self.of_kind(kind):
                self.by_hand.add(name)
                self.ids[name] = make(client, name, self.properties(name, drop=("Tags",)))

    def _create(self):
        store, code = self.client("s3"), io.BytesIO()
        store.create_bucket(Bucket=CODE_BUCKET)
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("bootstrap", "")
        store.put_object(Bucket=CODE_BUCKET, Key=CODE_KEY, Body=code.getvalue())
        resources = {name: it for name, it in self.resources.items() if it["Type"] not in ("AWS::ApiGateway::Deployment", "AWS::ApiGateway::Stage")}
        # moto fails at outputs about kinds that it does not support.
        unknown = [name for name, it in self.resources.items() if it["Type"] in UNKNOWN_KINDS or name not in resources]
        outputs = {name: it for name, it in self.template["Outputs"].items() if not any(other in json.dumps(it) for other in unknown)}
        # The template is larger than the limit of an inline template.
        store.put_object(Bucket=CODE_BUCKET, Key="template.json", Body=json.dumps({**self.template, "Resources": resources, "Outputs": outputs}))
        formation = self.client("cloudformation")
        formation.create_stack(
            StackName=STACK, TemplateURL=f"https://{CODE_BUCKET}.s3.amazonaws.com/template.json", Capabilities=["CAPABILITY_IAM"], Parameters=self.chosen_parameters
        )
        self.stack = formation.describe_stacks(StackName=STACK)["Stacks"][0]
        for made in formation.describe_stack_resources(StackName=STACK)["StackResources"]:
            if "LogicalResourceId" in made:
                self.ids[made["LogicalResourceId"]] = made.get("PhysicalResourceId")

    def of_kind(self, kind):
        return [name for name, it in self.resources.items() if it["Type"] == kind and self.is_made(it)]

    def is_made(self, resource):
        return "Condition" not in resource or self.holds(self.template["Conditions"][resource["Condition"]])

    def properties(self, name, drop=()):
        """The properties of a resource, with references resolved."""
        return self.resolved({key: it for key, it in self.resources[name]["Properties"].items() if key not in drop})

    def arn(self, name):
        kind, made = self.resources[name]["Type"], self.ids[name]
        service = {
            "AWS::Lambda::Function": f"lambda:{REGION}:123456789012:function:",
            "AWS::DynamoDB::Table": f"dynamodb:{REGION}:123456789012:table/",
            "AWS::S3::Bucket": "s3:::",
            "AWS::SQS::Queue": f"sqs:{REGION}:123456789012:",
            "AWS::IAM::Role": "iam::123456789012:role/",
        }[kind]
        return f"arn:aws:{service}{made.rsplit('/', 1)[-1]}"

    def resolved(self, it):
        if isinstance(it, list):
            items = [self.resolved(item) for item in it]
            return [item for item in items if item is not NO_VALUE]
        if not isinstance(it, dict):
            return it
        if len(it) == 1:
            ((word, of),) = it.items()
            if word in INTRINSICS:
                return INTRINSICS[word](self, of)
        found = {name: self.resolved(item) for name, item in it.items()}
        return {name: item for name, item in found.items() if item is not NO_VALUE}

    def ref(self, name):
        pseudo = {"AWS::StackName": STACK, "AWS::Region": REGION, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com"}
        if name == "AWS::NoValue":
            return NO_VALUE
        return pseudo.get(name) or self.ids.get(name) or self.parameters[name]

    def attribute(self, of):
        name, attribute = of.split(".", 1) if isinstance(of, str) else of
        if attribute == "QueueName":
            return self.ids[name].rsplit("/", 1)[-1]
        assert attribute == "Arn", of
        return self.arn(name)

    def substituted(self, text):
        named = lambda match: self.attribute(match[1]) if "." in match[1] else self.ref(match[1])  # noqa: E731
        return re.sub(r"\$\{([\w:.]+)\}", named, text)

    def chosen(self, of):
        condition, then, otherwise = of
        return self.resolved(then if self.holds(self.template["Conditions"][condition]) else otherwise)

    def holds(self, condition):
        ((word, of),) = condition.items()
        if word == "Fn::And":
            return all(self.holds(it) for it in of)
        if word == "Condition":
            return self.holds(self.template["Conditions"][of])
        if word == "Fn::Not":
            return not self.holds(of[0])
        assert word == "Fn::Equals", condition
        first, second = (self.resolved(it) for it in of)
        return first == second


NO_VALUE = object()
INTRINSICS = {"Ref": Deployed.ref, "Fn::GetAtt": Deployed.attribute, "Fn::Sub": Deployed.substituted, "Fn::If": Deployed.chosen}


class Server:
    """A moto server in a thread, on a port that the system chooses."""

    def __enter__(self):
        from moto.server import ThreadedMotoServer

        # Unsupported features are in the lists above, and each request would write a line.
        for name in ("werkzeug", "moto"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", message=".*not supported by moto's CloudFormation.*")
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        # Its state is that of the process, which may have had another server.
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")).close()
        return self

    def __exit__(self, *_):
        self.server.stop()

    def client(self, service):
        import boto3

        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION)
