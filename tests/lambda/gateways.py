"""The deployment's own gateways: the distribution of template.yaml, and the two APIs behind it.

BEHAVIOURS are those of the template (tests/template/test_gateways.py compares them), so that this needs the standard library only.
"""

import sys
from dataclasses import replace
from pathlib import Path

import events

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from check_routes import gateway_of  # noqa: E402

# Paths in the order in which CloudFront compares them, and the API that gets them.
BEHAVIOURS = (
    ("/flags/definitions", "http"), ("/flags/definitions/*", "http"),
    ("/flags", "rest"), ("/flags/*", "rest"), ("/decide", "rest"), ("/decide/*", "rest"), ("/array/*", "rest"), ("/ofrep/*", "rest"),
    ("/api/surveys", "rest"), ("/api/surveys/*", "rest"), ("/api/early_access_features", "rest"), ("/api/early_access_features/*", "rest"),
    ("/batch", "rest"), ("/batch/*", "rest"), ("/capture", "rest"), ("/capture/*", "rest"), ("/e", "rest"), ("/e/*", "rest"), ("/i/*", "rest"),
    ("*", "http"),
)
STAGE = "live"


def gateway(path):
    return gateway_of(BEHAVIOURS, path)


def deployed(request, viewer_host=events.HTTP_HOST, reading=events.Reading.TEXT, inflates=False):
    """The event of a request to the distribution, whose host the client requested."""
    path = request.path
    if any(path == pattern or (pattern.endswith("/*") and path.startswith(pattern[:-1])) for pattern, _ in BEHAVIOURS[:-1]):
        # The function WithoutSlash.
        path = path[:-1] if path.endswith("/") and path != "/" else path
        request = replace(request, path=path)
    else:
        request = replace(request, headers=[*request.headers, ("x-forwarded-host", viewer_host)])
    if gateway(path) == "rest":
        return events.rest_api(request, STAGE, inflates=inflates)
    return events.http_api(request, reading=reading)
