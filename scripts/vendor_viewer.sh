#!/usr/bin/env bash
# Fetches the viewer of the API reference (Redoc) into functions/reference/assets. Repeated runs produce the same bytes.
#
#     scripts/vendor_viewer.sh
#
# Needs npm and its configured registry. To use another version, change both lines below.
set -euo pipefail
version=2.5.4
sha256=dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b

assets=$(cd "$(dirname "$0")/../functions/reference/assets" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

npm pack --silent "redoc@$version" >/dev/null
tar -xzf "redoc-$version.tgz"
echo "$sha256  package/bundles/redoc.standalone.js" | sha256sum --check --quiet
# No name and no time in the gzip header, so that the output is reproducible.
gzip -n9 <package/bundles/redoc.standalone.js >"$assets/redoc.standalone.js.gz"
# Its own license, then those of the bundled packages.
{
    echo "Redoc $version"
    echo
    cat package/LICENSE
    echo
    cat package/bundles/redoc.standalone.js.LICENSE.txt
} >"$assets/redoc.LICENSE.txt"
echo "Redoc $version: $(stat -c %s "$assets/redoc.standalone.js.gz") bytes packed"
