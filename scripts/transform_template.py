#!/usr/bin/env python3
"""Expands template.yaml locally as the SAM transform does, and prints the routes of both APIs and the paths of the distribution.

Output: {"routes": [{"gateway", "method", "path", "function", "group"}], "behaviours": [{"path", "gateway"}]}. `gateway` is http
or rest, `method` ANY for a route of every method, `function` the logical id in the template, `group` the folder below
functions/ that it is built from. Behaviours are in the order in which CloudFront compares them, the default last, as `*`.
The routes are read from the OpenAPI body of the expanded APIs, the document that API Gateway imports, not from the events
of the template, so that routes lost by the transform are detected. Needs aws-sam-translator (.ci/requirements.txt).
"""

import copy
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ANY = "x-amazon-apigateway-any-method"
METHODS = {ANY, "get", "put", "post", "delete", "options", "head", "patch", "trace"}
GATEWAYS = {"AWS::ApiGatewayV2::Api": "http", "AWS::ApiGateway::RestApi": "rest"}


def load(path):
    """The template as plain dictionaries, with short intrinsics (`!Ref`) expanded."""
    from samtranslator.yaml_helper import yaml_parse

    return yaml_parse(Path(path).read_text(encoding="utf-8"))


def transform(template):
    """The CloudFormation template that results from the SAM template."""
    import boto3
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    source = copy.deepcopy(template)
    for resource in source["Resources"].values():
        # Only `sam package` can convert a folder into the object that the transform requires.
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://bucket/code.zip"
    session = boto3.session.Session(region_name="us-east-1")
    defaults = {n: p["Default"] for n, p in source.get("Parameters", {}).items() if "Default" in p}
    return Translator({}, Parser(), boto_session=session).translate(source, defaults)


def groups(template):
    """Logical id of each function, and the folder name that it is built from."""
    return {
        name: Path(resource["Properties"]["CodeUri"]).name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }


def routes(template, resources=None):
    """Routes of the HTTP API and of the REST API."""
    group_of = groups(template)
    found = []
    for name, resource in (resources or transform(template)["Resources"]).items():
        gateway = GATEWAYS.get(resource["Type"])
        if gateway is None:
            continue
        for path, item in resource["Properties"]["Body"]["paths"].items():
            for method, operation in item.items():
                if method not in METHODS:
                    continue
                function = integrated_function(operation, f"{name} {method} {path}")
                found.append(
                    {
                        "gateway": gateway,
                        "method": "ANY" if method == ANY else method.upper(),
                        "path": path,
                        "function": function,
                        "group": group_of[function],
                    }
                )
    return sorted(found, key=lambda route: (route["gateway"], route["path"], route["method"]))


def behaviours(resources):
    """Path patterns of the distribution and the gateway of each, in order; `*` is the default."""
    (distribution,) = (it for it in resources.values() if it["Type"] == "AWS::CloudFront::Distribution")
    config = distribution["Properties"]["DistributionConfig"]
    gateway_of = {}
    for origin in config["Origins"]:
        (name,) = re.findall(r"^\$\{(\w+)\}\.execute-api\.", origin["DomainName"]["Fn::Sub"])
        gateway_of[origin["Id"]] = GATEWAYS[resources[name]["Type"]]
    found = [{"path": it["PathPattern"], "gateway": gateway_of[it["TargetOriginId"]]} for it in config["CacheBehaviors"]]
    return [*found, {"path": "*", "gateway": gateway_of[config["DefaultCacheBehavior"]["TargetOriginId"]]}]


def integrated_function(operation, where):
    """Logical id of the function that an OpenAPI operation invokes."""
    uri = operation.get("x-amazon-apigateway-integration", {}).get("uri", {})
    text = uri.get("Fn::Sub", "") if isinstance(uri, dict) else ""
    match = re.search(r"\$\{(\w+)\.Arn\}", text)
    if not match:
        raise SystemExit(f"{where}: no function behind this route")
    return match.group(1)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "template.yaml"
    template = load(path)
    resources = transform(template)["Resources"]
    json.dump({"routes": routes(template, resources), "behaviours": behaviours(resources)}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
