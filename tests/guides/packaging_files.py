"""Checks the files of packaging/: their syntax, what they refer to, and the health check of the image, which is run."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

from blocks import Block, PageError
from syntax import check_syntax, install_programs, run_program

LANGUAGES = {
    "Dockerfile": "dockerfile", "compose.yaml": "yaml", "Caddyfile": "caddyfile", "nginx.conf": "nginx", "pennon.service": "ini",
    "build_archive.sh": "sh", "wrappers.py": "python", "npm/pennon.js": "js",
}


def check_files(folder):
    for name, language in LANGUAGES.items():
        check_syntax(Block(1, language, (folder / name).read_text(encoding="utf-8")), name)


def check_image(root, folder, binary, port, other_port):
    """The toolchain is that of the repository; the health check passes for a server, and fails where there is none."""
    text = (folder / "Dockerfile").read_text(encoding="utf-8")
    channel = tomllib.loads((root / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    if f"FROM rust:{channel}-" not in text or f"RUSTUP_TOOLCHAIN={channel} " not in text:
        raise PageError(f"Dockerfile: rust-toolchain.toml has {channel}")
    command = json.loads(re.search(r"HEALTHCHECK [^[]*(\[[^\n]*\])", text).group(1))
    for at, status in ((port, 0), (other_port, 1)):
        done = subprocess.run([str(binary), *(part.replace("8080", at) for part in command[1:])], capture_output=True, text=True, timeout=10)
        if (done.returncode != 0) != (status != 0):
            raise PageError(f"Dockerfile: the health check ends with {done.returncode}: {done.stderr}")


def check_compose(folder):
    """The file fits the schema of compose files, and the files that services mount or are built from exist."""
    run_program([install_programs() / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", folder / "compose.yaml"], "compose.yaml")
    program = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)"
    services = json.loads(run_program([install_programs() / "python", "-c", program, folder / "compose.yaml"], "compose.yaml"))["services"]
    for service in services.values():
        paths = [it.split(":")[0] for it in service["volumes"] if it.startswith("./")]
        if build := service.get("build"):
            paths.append(str(Path(build["context"]) / build["dockerfile"]))
        for path in paths:
            if not (folder / path).exists():
                raise PageError(f"compose.yaml: {path} does not exist")


def check_packaging(root, binary, port, other_port):
    folder = root / "packaging"
    check_files(folder)
    check_image(root, folder, binary, port, other_port)
    check_compose(folder)
