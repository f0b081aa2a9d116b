#!/usr/bin/env python3
"""Writes a bill of materials in CycloneDX 1.5 (JSON): the crates of the shipped binaries and the npm packages of the console.

    write_sbom.py OUTPUT       `cargo metadata --locked` of the repository, Cargo.lock, web/package-lock.json

Test and development dependencies are left out. The same inputs give the same bytes: there is no time in it, and the serial number is derived
from the content. Standard library only.
"""

import base64
import json
import subprocess
import sys
import tomllib
import uuid
from collections import deque
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
# Members of the workspace that are not shipped.
UNSHIPPED = {"pennon-tests"}
# Dependencies of other systems are left out.
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
SERIAL_NAMESPACE = uuid.UUID("6f1d3a52-7a0b-5c11-9f5e-2f0b7c1e4d90")


def cargo_purl(package):
    return f"pkg:cargo/{package['name']}@{quote(package['version'])}"


def license_expression(text):
    """Cargo's older form `MIT/Apache-2.0` as an SPDX expression."""
    return " OR ".join(part.strip() for part in text.split("/"))


def shipped_ids(metadata):
    """Ids of the packages that are linked into, or run to build, a shipped member of the workspace."""
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = deque(member for member in metadata["workspace_members"] if names[member] not in UNSHIPPED)
    found = set(waiting)
    while waiting:
        for dependency in nodes[waiting.popleft()]["deps"]:
            is_shipped = any(kind["kind"] in (None, "build") for kind in dependency["dep_kinds"])
            if is_shipped and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    return found


def cargo_components(metadata, lock):
    """Components of the shipped crates, and what each depends on."""
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    shipped = shipped_ids(metadata)
    packages = {package["id"]: package for package in metadata["packages"] if package["id"] in shipped}
    components, dependencies = [], []
    for package in packages.values():
        purl = cargo_purl(package)
        component = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"], "purl": purl}
        if package.get("license"):
            component["licenses"] = [{"expression": license_expression(package["license"])}]
        if checksum := checksums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in packages:
            used = {cargo_purl(packages[dependency["pkg"]]) for dependency in node["deps"]
                    if dependency["pkg"] in packages and any(kind["kind"] in (None, "build") for kind in dependency["dep_kinds"])}
            dependencies.append({"ref": cargo_purl(packages[node["id"]]), "dependsOn": sorted(used)})
    return components, dependencies


def npm_purl(name, version):
    scope, _, rest = name.rpartition("/")
    return f"pkg:npm/{quote(scope, safe='') + '/' if scope else ''}{rest}@{version}"


def npm_components(lock):
    """Components of the packages that are bundled into the console, and what each depends on."""
    bundled = {path.split("node_modules/")[-1]: entry for path, entry in lock["packages"].items() if path and not entry.get("dev")}
    components, dependencies = [], []
    for name, entry in bundled.items():
        purl = npm_purl(name, entry["version"])
        component = {"type": "library", "bom-ref": purl, "name": name, "version": entry["version"], "purl": purl}
        if entry.get("license"):
            component["licenses"] = [{"expression": entry["license"]}]
        algorithm, _, digest = entry.get("integrity", "").partition("-")
        if algorithm == "sha512":
            component["hashes"] = [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}]
        components.append(component)
        used = [npm_purl(other, bundled[other]["version"]) for other in sorted(entry.get("dependencies", {})) if other in bundled]
        dependencies.append({"ref": purl, "dependsOn": used})
    return components, dependencies


def bill(metadata, cargo_lock, npm_lock):
    """The document."""
    crates, crate_dependencies = cargo_components(metadata, cargo_lock)
    packages, package_dependencies = npm_components(npm_lock)
    members = set(metadata["workspace_members"])
    shipped = {cargo_purl(package) for package in metadata["packages"] if package["id"] in members & shipped_ids(metadata)}
    program = next(package for package in metadata["packages"] if package["id"] in members and package["name"] == "pennon")
    root = {"type": "application", "bom-ref": "pennon", "name": "pennon", "version": program["version"],
            "licenses": [{"expression": program["license"]}]}
    console = [npm_purl(name, npm_lock["packages"][f"node_modules/{name}"]["version"]) for name in npm_lock["packages"][""].get("dependencies", {})]
    dependencies = [{"ref": "pennon", "dependsOn": sorted(shipped | set(console))}, *crate_dependencies, *package_dependencies]
    components = sorted([*crates, *packages], key=lambda component: component["bom-ref"])
    document = {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                "metadata": {"component": root, "tools": {"components": [{"type": "application", "name": "write_sbom.py"}]}},
                "components": components, "dependencies": sorted(dependencies, key=lambda entry: entry["ref"])}
    serial = uuid.uuid5(SERIAL_NAMESPACE, json.dumps(document, sort_keys=True))
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def main(output):
    filters = [argument for platform in PLATFORMS for argument in ("--filter-platform", platform)]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *filters]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    document = bill(metadata, tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8")),
                    json.loads((ROOT / "web/package-lock.json").read_text(encoding="utf-8")))
    Path(output).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    crates = sum(component["purl"].startswith("pkg:cargo/") for component in document["components"])
    print(f"{output}: {crates} crates, {len(document['components']) - crates} npm packages")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
