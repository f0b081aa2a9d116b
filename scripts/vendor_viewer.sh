#!/usr/bin/env bash
# Fetches the viewer of the API reference (Redoc) into functions/reference/assets. Run again, it gives the same bytes.
#
#     scripts/vendor_viewer.sh
#
# Needs npm, which fetches from the registry that it is configured with. To take another version: change both lines below.
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
# Neither a name nor a time in the header, so that the same text is the same file.
gzip -n9 <package/bundles/redoc.standalone.js >"$assets/redoc.standalone.js.gz"
# Its own license, then those of what is bundled with it.
{
    echo "Redoc $version"
    echo
    cat package/LICENSE
    echo
    cat package/bundles/redoc.standalone.js.LICENSE.txt
} >"$assets/redoc.LICENSE.txt"
echo "Redoc $version: $(stat -c %s "$assets/redoc.standalone.js.gz") bytes packed"
