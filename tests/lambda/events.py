"""Requests as the three gateways send them to a function.

Formats, as AWS documents them: HTTP API with payload format 2.0, REST API (the proxy integration's format 1.0), function URL
(format 2.0 with values of its own where a gateway's are missing). A gateway sends a body as text, or as base64 if it
considers it binary.

HTTP APIs and function URLs decide by content type: TEXT_TYPES are decoded as UTF-8, and bytes that are not UTF-8 are replaced,
so that gzip arrives destroyed. Whether a Content-Encoding makes such a body binary is not documented. `Reading.TEXT`, the
default, is the worse case: it does not; with `Reading.BINARY` it does.

A REST API decides by its list of binary types, which is here `*/*`: always base64. Its documentation says that a gzip body with
Content-Encoding is decompressed "by default", and elsewhere that this needs a setting: `inflates` is the first.
"""

import base64
import enum
import gzip
import zlib
from dataclasses import dataclass, field, replace
from urllib.parse import quote_plus, urlencode

TEXT_TYPES = ("text/", "application/json", "application/javascript", "application/xml")
TIME, MILLISECONDS = "20/Nov/2026:12:00:00 +0000", 1795176000000
HTTP_HOST = "pennonapi1.execute-api.us-east-1.amazonaws.com"
URL_HOST = "abcdefghijklmnopqrstuvwxyz012345.lambda-url.us-east-1.on.aws"


class Reading(enum.Enum):
    """What a Content-Encoding changes for an HTTP API or a function URL."""
    TEXT = "nothing"
    BINARY = "the body is binary"


@dataclass
class Request:
    """A request as a client sends it: parameters decoded, in pairs, as are headers."""
    method: str
    path: str
    query: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    body: bytes | None = None

    def raw_query(self):
        return urlencode(self.query, quote_via=quote_plus)


def http_api(request, stage="$default", reading=Reading.TEXT):
    """Stage `$default` is not in the path; a named one is."""
    path = request.path if stage == "$default" else f"/{stage}{request.path}"
    return {
        "version": "2.0", "routeKey": "ANY /{proxy+}", "rawPath": path, "rawQueryString": request.raw_query(),
        **form_two(request, HTTP_HOST, reading),
        "requestContext": {
            "accountId": "123456789012", "apiId": "pennonapi1", "domainName": HTTP_HOST, "domainPrefix": "pennonapi1",
            "http": about(request, path), "requestId": "JKJaXmPLvHcESHA=", "routeKey": "ANY /{proxy+}", "stage": stage,
            "time": TIME, "timeEpoch": MILLISECONDS},
        "pathParameters": {"proxy": request.path.lstrip("/")},
    }


def function_url(request, reading=Reading.TEXT):
    """A function's own address, without a gateway: no stage, no route, an anonymous account."""
    return {
        "version": "2.0", "routeKey": "$default", "rawPath": request.path, "rawQueryString": request.raw_query(),
        **form_two(request, URL_HOST, reading),
        "requestContext": {
            "accountId": "anonymous", "apiId": URL_HOST.split(".")[0], "authentication": None, "domainName": URL_HOST,
            "domainPrefix": URL_HOST.split(".")[0], "http": about(request, request.path),
            "requestId": "6ee0eb2a-8c6d-4bd9-9a35-3a2ee5a6a7d5", "routeKey": "$default", "stage": "$default",
            "time": TIME, "timeEpoch": MILLISECONDS},
        "pathParameters": None, "stageVariables": None,
    }


def about(request, path):
    agent = dict((name.lower(), value) for name, value in request.headers).get("user-agent", "")
    return {"method": request.method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7", "userAgent": agent}


def form_two(request, host, reading):
    """Lower-case names, several values of one name joined by commas, cookies separate."""
    headers, cookies, query = {}, [], {}
    for name, value in forwarded(request, host):
        name = name.lower()
        if name == "cookie":
            cookies += [part.strip() for part in value.split(";")]
        else:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    for name, value in request.query:
        query[name] = f"{query[name]},{value}" if name in query else value
    event = {"headers": headers, **body_of(request, is_text(headers, reading))}
    if cookies:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = query
    return event


def rest_api(request, stage="prod", host=HTTP_HOST, inflates=False):
    """The stage is in the context's path and not in the event's; parameters come decoded, in order of each name only."""
    if inflates and request.body is not None and encoding_of(request) == "gzip":
        request = replace(request, body=decompressed(request.body))
    headers, many_headers, query, many_query = {}, {}, {}, {}
    for name, value in forwarded(request, host):
        headers[name] = value
        many_headers.setdefault(name, []).append(value)
    for name, value in request.query:
        query[name] = value
        many_query.setdefault(name, []).append(value)
    return {
        "resource": "/{proxy+}", "path": request.path, "httpMethod": request.method, "headers": headers,
        "multiValueHeaders": many_headers, "queryStringParameters": query or None,
        "multiValueQueryStringParameters": many_query or None, "pathParameters": {"proxy": request.path.lstrip("/")},
        "stageVariables": None,
        "requestContext": {
            "resourceId": "abc123", "resourcePath": "/{proxy+}", "httpMethod": request.method, "accountId": "123456789012",
            "extendedRequestId": "JKJaXmPLvHcESHA=", "requestTime": TIME, "requestTimeEpoch": MILLISECONDS,
            "path": f"/{stage}{request.path}", "protocol": "HTTP/1.1", "stage": stage, "domainPrefix": "pennonapi1",
            "domainName": host, "apiId": "pennonapi1", "requestId": "d0b1f3b5-6a4d-4f8e-9a35-3a2ee5a6a7d5",
            "identity": {"sourceIp": "203.0.113.7", "userAgent": None, "accountId": None, "caller": None, "user": None,
                         "accessKey": None, "userArn": None, "cognitoIdentityId": None, "cognitoIdentityPoolId": None,
                         "cognitoAuthenticationType": None, "cognitoAuthenticationProvider": None, "principalOrgId": None}},
        "body": None, **body_of(request, False),
    }


def forwarded(request, host):
    """The request's headers and those that every gateway adds."""
    return [*request.headers, ("Host", host), ("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-Port", "443"),
            ("X-Forwarded-Proto", "https")]


def decompressed(body):
    """A gateway responds itself to what it cannot decompress; here the function gets it."""
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error):
        return body


def encoding_of(request):
    return next((value for name, value in request.headers if name.lower() == "content-encoding"), None)


def is_text(headers, reading):
    is_encoded = "content-encoding" in headers and reading is Reading.BINARY
    return not is_encoded and headers.get("content-type", "").startswith(TEXT_TYPES)


def body_of(request, text):
    if request.body is None:
        return {"isBase64Encoded": False}
    if text:
        return {"body": request.body.decode(errors="replace"), "isBase64Encoded": False}
    return {"body": base64.b64encode(request.body).decode(), "isBase64Encoded": True}


def received(event):
    """The body that a function gets from an event."""
    body = event.get("body")
    if body is None:
        return None
    return base64.b64decode(body) if event["isBase64Encoded"] else body.encode()


def response_of(value):
    """`(status, headers, body)` that a gateway makes of a function's value; header names in lower case."""
    headers = {}
    for name, values in (value.get("multiValueHeaders") or {}).items():
        headers[name.lower()] = ", ".join(values)
    for name, text in (value.get("headers") or {}).items():
        headers[name.lower()] = text
    body = value.get("body") or ""
    return value["statusCode"], headers, base64.b64decode(body) if value.get("isBase64Encoded") else body.encode()
