"""Installs the clients' packages in the versions of their lock files into `.installed/`, which git ignores."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INSTALLED = HERE / ".installed"


def is_current(folder, checksum):
    """Whether `folder` was installed from files with this checksum; if not, it is removed."""
    stamp = folder / "installed.sha256"
    if stamp.exists() and stamp.read_text() == checksum:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def run(command, folder):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def install_npm(name):
    """`newest` or `older`; returns the folder that contains node_modules."""
    if shutil.which("npm") is None:
        raise SystemExit("npm is missing: install Node.js 20 or later with npm")
    files = [HERE / name / file for file in ("package.json", "package-lock.json")]
    checksum = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    folder = INSTALLED / name
    if not is_current(folder, checksum):
        folder.mkdir(parents=True)
        for file in files:
            shutil.copy(file, folder)
        run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        (folder / "installed.sha256").write_text(checksum)
    return folder


def install_python(version):
    """The major version of posthog; returns the interpreter."""
    requirements = HERE / "python" / f"requirements-{version}.txt"
    checksum = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    folder = INSTALLED / f"python-{version}"
    python = folder / "bin" / "python"
    if not is_current(folder, checksum):
        run([sys.executable, "-m", "venv", folder], HERE)
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements], HERE)
        (folder / "installed.sha256").write_text(checksum)
    return python
