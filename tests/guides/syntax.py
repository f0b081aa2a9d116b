"""Checks the syntax of blocks and files that are not run, with the program that reads them where it can be installed."""

import ast
import configparser
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from blocks import PageError

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import packages  # noqa: E402


def install_programs():
    """The folder of caddy, hadolint and crossplane, which are installed into `.installed/`."""
    import hashlib

    requirements = HERE / "requirements.txt"
    expected = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = HERE / ".installed"
    if not packages.is_current(folder, expected):
        packages.run([sys.executable, "-m", "venv", folder], HERE)
        packages.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements], HERE)
        (folder / "installed.sha256").write_text(expected)
    return folder / "bin"


def run_program(command, where):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise PageError(f"{where}: {Path(command[0]).name}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout + done.stderr


def check_shell(file, where):
    run_program(["bash", "-n", file], where)


def check_python(file, where):
    ast.parse(file.read_text())


def check_node(file, where):
    module = file.with_suffix(".mjs")
    shutil.copy(file, module)
    run_program(["node", "--check", module], where)


def check_yaml(file, where):
    run_program([install_programs() / "python", "-c", "import sys, yaml; list(yaml.safe_load_all(open(sys.argv[1])))", file], where)


def check_caddyfile(file, where):
    run_program([install_programs() / "caddy", "validate", "--adapter", "caddyfile", "--config", file], where)


def check_nginx(file, where):
    """A server block, which nginx includes into `http`."""
    whole = file.with_name("nginx.conf")
    whole.write_text("events {}\nhttp {\n" + file.read_text() + "}\n")
    parsed = json.loads(run_program([install_programs() / "crossplane", "parse", whole], where))
    if parsed["status"] != "ok":
        raise PageError(f"{where}: nginx: {parsed['errors']}")


def check_unit(file, where):
    """A systemd unit; its program is replaced by one that exists here."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(file.read_text())
    if not shutil.which("systemd-analyze"):
        return
    program = parser["Service"]["ExecStart"].split()[0]
    unit = file.with_name("pennon.service")
    unit.write_text(file.read_text().replace(program, shutil.which("true")))
    printed = run_program(["systemd-analyze", "verify", unit], where)
    if printed.strip():
        raise PageError(f"{where}: systemd-analyze: {printed}")


def check_dockerfile(file, where):
    run_program([install_programs() / "hadolint", file], where)


def check_toml(file, where):
    tomllib.loads(file.read_text())


def check_json(file, where):
    json.loads(file.read_text())


CHECKS = {
    "sh": check_shell, "bash": check_shell, "python": check_python, "js": check_node, "yaml": check_yaml, "caddyfile": check_caddyfile,
    "nginx": check_nginx, "ini": check_unit, "dockerfile": check_dockerfile, "toml": check_toml, "json": check_json,
}


def check_syntax(block, where):
    """Raises if the block is not valid in its language."""
    check = CHECKS.get(block.language)
    if check is None:
        raise PageError(f"{where}: no check for {block.language}")
    with tempfile.TemporaryDirectory(prefix="syntax-") as directory:
        file = Path(directory) / "block"
        file.write_text(block.text)
        try:
            check(file, where)
        except (SyntaxError, ValueError, configparser.Error) as error:
            raise PageError(f"{where}: {error}") from None
