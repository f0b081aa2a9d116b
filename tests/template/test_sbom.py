"""scripts/write_sbom.py: what is in a bill of materials, and the fields that CycloneDX 1.5 requires."""

import base64
import copy
import json
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import write_sbom  # noqa: E402

DIGEST = "0f" * 32
KINDS = {"normal": None, "build": "build", "dev": "dev"}


def package(name, version="1.0.0", text="MIT/Apache-2.0"):
    return {"id": f"{name} {version}", "name": name, "version": version, "license": text}


def node(name, *dependencies, version="1.0.0"):
    deps = [{"pkg": f"{other} 1.0.0", "dep_kinds": [{"kind": KINDS[kind]}]} for other, kind in dependencies]
    return {"id": f"{name} {version}", "deps": deps}


METADATA = {
    "packages": [package(name) for name in ("pennon", "pennon-tests", "linked", "below", "builds", "tests-only", "member-dev")],
    "workspace_members": ["pennon 1.0.0", "pennon-tests 1.0.0"],
    "resolve": {"nodes": [
        node("pennon", ("linked", "normal"), ("builds", "build"), ("member-dev", "dev")), node("pennon-tests", ("tests-only", "normal")),
        node("linked", ("below", "normal")), node("below"), node("builds"), node("tests-only"), node("member-dev"),
    ]},
}
CARGO_LOCK = {"package": [{"name": "linked", "version": "1.0.0", "checksum": DIGEST}]}
NPM_LOCK = {"packages": {
    "": {"dependencies": {"@scope/ui": "2.0.0"}},
    "node_modules/@scope/ui": {"version": "2.0.0", "license": "MIT", "integrity": "sha512-" + base64.b64encode(bytes(64)).decode(), "dependencies": {"core": "^3"}},
    "node_modules/core": {"version": "3.1.0", "license": "ISC"},
    "node_modules/builder": {"version": "9.0.0", "dev": True, "license": "MIT"},
}}


def problems(document):
    """What CycloneDX 1.5 requires and the document lacks (bom-1.5.schema.json)."""
    found = [name for name, value in (("bomFormat", "CycloneDX"), ("specVersion", "1.5")) if document.get(name) != value]
    if not re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document.get("serialNumber", "")):
        found.append("serialNumber")
    if not isinstance(document.get("version"), int) or document["version"] < 1:
        found.append("version")
    components = [document["metadata"]["component"], *document["components"]]
    for component in components:
        if component.get("type") not in ("application", "library") or not component.get("name"):
            found.append(f"type or name of {component}")
        for entry in component.get("hashes", []):
            if not re.fullmatch(r"[a-f0-9]{32}|[a-f0-9]{40}|[a-f0-9]{64}|[a-f0-9]{96}|[a-f0-9]{128}", entry["content"]):
                found.append(f"hash of {component['name']}")
    known = [component["bom-ref"] for component in components]
    if len(known) != len(set(known)):
        found.append("bom-ref twice")
    for entry in document["dependencies"]:
        if not {entry["ref"], *entry["dependsOn"]} <= set(known):
            found.append(f"dependencies of {entry['ref']}")
    return found


class Bill(unittest.TestCase):
    document = write_sbom.bill(METADATA, CARGO_LOCK, NPM_LOCK)

    def test_required_fields_are_there(self):
        self.assertEqual(problems(self.document), [])
        for name in ("bomFormat", "serialNumber", "version"):
            self.assertEqual(problems({key: value for key, value in self.document.items() if key != name}), [name])

    def test_only_what_is_shipped_is_listed(self):
        self.assertEqual([component["purl"] for component in self.document["components"]], [
            "pkg:cargo/below@1.0.0", "pkg:cargo/builds@1.0.0", "pkg:cargo/linked@1.0.0", "pkg:cargo/pennon@1.0.0",
            "pkg:npm/%40scope/ui@2.0.0", "pkg:npm/core@3.1.0",
        ])

    def test_components_have_licences_and_digests(self):
        of = {component["name"]: component for component in self.document["components"]}
        self.assertEqual(of["linked"]["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(of["linked"]["hashes"], [{"alg": "SHA-256", "content": DIGEST}])
        self.assertEqual(of["@scope/ui"]["hashes"], [{"alg": "SHA-512", "content": "00" * 64}])
        self.assertNotIn("hashes", of["pennon"])

    def test_dependencies_are_those_of_the_graph(self):
        of = {entry["ref"]: entry["dependsOn"] for entry in self.document["dependencies"]}
        self.assertEqual(of["pkg:cargo/pennon@1.0.0"], ["pkg:cargo/builds@1.0.0", "pkg:cargo/linked@1.0.0"])
        self.assertEqual(of["pkg:npm/%40scope/ui@2.0.0"], ["pkg:npm/core@3.1.0"])
        self.assertEqual(of["pennon"], ["pkg:cargo/pennon@1.0.0", "pkg:npm/%40scope/ui@2.0.0"])

    def test_the_same_content_has_the_same_bytes_and_other_content_another_serial_number(self):
        self.assertEqual(json.dumps(write_sbom.bill(METADATA, CARGO_LOCK, NPM_LOCK)), json.dumps(self.document))
        changed = copy.deepcopy(NPM_LOCK)
        changed["packages"]["node_modules/core"]["version"] = "3.1.1"
        self.assertNotEqual(write_sbom.bill(METADATA, CARGO_LOCK, changed)["serialNumber"], self.document["serialNumber"])

    def test_the_console_of_the_repository_bundles_the_packages_that_it_names(self):
        lock = json.loads((ROOT / "web/package-lock.json").read_text(encoding="utf-8"))
        named = json.loads((ROOT / "web/package.json").read_text(encoding="utf-8"))
        components, _ = write_sbom.npm_components(lock)
        names = {component["name"] for component in components}
        self.assertLessEqual(set(named["dependencies"]), names)
        self.assertEqual(names & set(named["devDependencies"]), set())


if __name__ == "__main__":
    unittest.main()
