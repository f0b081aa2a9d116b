#!/usr/bin/env python3
"""Builds the packages for npm and PyPI that contain the program. Nothing is published.

    wrappers.py build FOLDER TARGET=BINARY...   for example x86_64-unknown-linux-gnu=target/dist/pennon
    wrappers.py check BINARY                    builds both for this machine, installs them into a temporary folder, and starts the program

npm gets `pennon`, a launcher, and one package for each platform, which it depends on optionally; npm installs the one that fits. PyPI gets a
wheel for each platform with the program as a script. Standard library only.
"""

import argparse
import base64
import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUMMARY = "Feature flags and product analytics in one binary, compatible with PostHog's SDKs"
LICENSES = ("LICENSE-MIT", "LICENSE-APACHE")
# The system and processor of a target in npm's words, and the processor in PyPI's.
SYSTEMS = {"linux": "linux", "darwin": "darwin"}
PROCESSORS = {"x86_64": ("x64", "x86_64"), "aarch64": ("arm64", "aarch64")}
# An instant for files in archives, so that equal programs give equal packages.
EPOCH = 1_600_000_000


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


class Target:
    """A target of Rust, such as aarch64-unknown-linux-musl, and the program for it."""

    def __init__(self, name, binary):
        self.binary = Path(binary).read_bytes()
        processor, _, rest = name.partition("-")
        system = "darwin" if "darwin" in rest else "linux" if "linux" in rest else None
        if processor not in PROCESSORS or system is None:
            raise SystemExit(f"{name}: no package for this target; there are x86_64 and aarch64 for Linux and macOS")
        self.system, self.is_musl = system, rest.endswith("musl")
        self.npm_processor, self.processor = PROCESSORS[processor]

    def npm_name(self):
        return f"pennon-{self.system}-{self.npm_processor}"

    def glibc(self):
        """The version of the GNU C library that the program needs."""
        needed = {tuple(map(int, it.split(b"."))) for it in re.findall(rb"GLIBC_(\d+\.\d+)", self.binary)}
        return max(needed, default=(2, 17))

    def wheel_tag(self):
        if self.system == "darwin":
            return "macosx_11_0_" + {"aarch64": "arm64"}.get(self.processor, self.processor)
        if self.is_musl:
            # A static program runs beside any C library.
            return f"manylinux_2_17_{self.processor}.musllinux_1_1_{self.processor}"
        major, minor = self.glibc()
        return f"manylinux_{major}_{minor}_{self.processor}"


def write_npm(folder, name, description, more, files):
    """A package as npm packs it: a compressed tar with everything below `package/`."""
    package = {"name": name, "version": version(), "description": description, "license": "MIT OR Apache-2.0", **more}
    content = {"package.json": (json.dumps(package, indent=2).encode() + b"\n", 0o644), **files}
    content |= {file: ((ROOT / file).read_bytes(), 0o644) for file in LICENSES}
    path = folder / f"{name}-{version()}.tgz"
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        for file, (data, mode) in content.items():
            entry = tarfile.TarInfo(f"package/{file}")
            entry.size, entry.mode, entry.mtime = len(data), mode, EPOCH
            archive.addfile(entry, io.BytesIO(data))
    return path


def build_npm(folder, targets):
    paths = []
    for target in targets:
        more = {"os": [target.system], "cpu": [target.npm_processor], "preferUnplugged": True}
        if target.system == "linux" and not target.is_musl:
            more["libc"] = ["glibc"]
        paths.append(write_npm(folder, target.npm_name(), f"{SUMMARY}: the program", more, {"pennon": (target.binary, 0o755)}))
    more = {"bin": {"pennon": "pennon.js"}, "engines": {"node": ">=18"},
            "optionalDependencies": {target.npm_name(): version() for target in targets}}
    paths.append(write_npm(folder, "pennon", SUMMARY, more, {"pennon.js": ((HERE / "npm/pennon.js").read_bytes(), 0o755)}))
    return paths


def build_wheel(folder, target):
    name = f"pennon-{version()}"
    metadata = f"Metadata-Version: 2.4\nName: pennon\nVersion: {version()}\nSummary: {SUMMARY}\nLicense-Expression: MIT OR Apache-2.0\n"
    metadata += "".join(f"License-File: {file}\n" for file in LICENSES) + "Requires-Python: >=3.8\n"
    tags = [f"py3-none-{tag}" for tag in target.wheel_tag().split(".")]
    wheel = "Wheel-Version: 1.0\nGenerator: packaging/wrappers.py\nRoot-Is-Purelib: false\n" + "".join(f"Tag: {tag}\n" for tag in tags)
    files = {f"{name}.data/scripts/pennon": (target.binary, 0o755), f"{name}.dist-info/METADATA": (metadata.encode(), 0o644),
             f"{name}.dist-info/WHEEL": (wheel.encode(), 0o644)}
    files |= {f"{name}.dist-info/licenses/{file}": ((ROOT / file).read_bytes(), 0o644) for file in LICENSES}
    record = ""
    for file, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{file},sha256={digest},{len(data)}\n"
    record += f"{name}.dist-info/RECORD,,\n"
    files[f"{name}.dist-info/RECORD"] = (record.encode(), 0o644)
    path = folder / f"{name}-py3-none-{target.wheel_tag()}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file, (data, mode) in files.items():
            entry = zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def build(folder, targets):
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [build_wheel(folder, target) for target in targets]
    return build_npm(folder, targets), wheels


def run(command, folder):
    done = subprocess.run([str(part) for part in command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: exit status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


def check(binary):
    """Installs both packages without a network, and compares what the program prints."""
    system = "apple-darwin" if sys.platform == "darwin" else "unknown-linux-gnu"
    target = Target(f"{platform.machine().replace('arm64', 'aarch64')}-{system}", binary)
    expected = run([Path(binary).resolve(), "--version"], ROOT)
    with tempfile.TemporaryDirectory(prefix="wrappers-") as directory:
        folder = Path(directory)
        archives, wheels = build(folder / "out", [target])
        (folder / "npm").mkdir()
        run(["npm", "install", "--offline", "--no-audit", "--no-fund", "--no-save", "--cache", folder / "cache", *archives], folder / "npm")
        run([sys.executable, "-m", "venv", folder / "venv"], folder)
        run([folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *wheels], folder)
        for name, program in (("npm", folder / "npm/node_modules/.bin/pennon"), ("PyPI", folder / "venv/bin/pennon")):
            printed = run([program, "--version"], folder)
            if printed != expected:
                raise SystemExit(f"{name}: {printed!r}, expected {expected!r}")
            print(f"ok {name}: {printed}")
        for path in (*archives, *wheels):
            print(f"{path.stat().st_size / 1e6:7.1f} MB  {path.name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("targets", nargs="+", metavar="TARGET=BINARY")
    checking = commands.add_parser("check")
    checking.add_argument("binary")
    options = parser.parse_args()
    if options.command == "check":
        return check(options.binary)
    for paths in build(options.folder, [Target(*it.split("=", 1)) for it in options.targets]):
        print("\n".join(map(str, paths)))
    return None


if __name__ == "__main__":
    sys.exit(main())
