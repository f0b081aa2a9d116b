"""Runs one page in a directory of its own, as a reader would who pastes block after block into one terminal.

What differs from machine to machine is replaced: each local port by a free one, `phx_...` and `phc_...` by the key and the token that
the server printed. Packages are those that tests/clients installs.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

from blocks import PageError, missing_part, read_blocks
from syntax import check_syntax, install_programs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

import packages  # noqa: E402
import pages  # noqa: E402

BLOCK_SECONDS = 60
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=localhost:)\d{4,5}\b|(?<=--port )\d{4,5}\b|(?<=http\.server )\d{4,5}\b")
SECRETS = {"phx_...": re.compile(r"phx_\w{20,}"), "phc_...": re.compile(r"phc_\w{20,}")}
# Variables, functions and directory are those of the blocks before.
SHELL = """set -aeuo pipefail
[ ! -f "$STATE" ] || source "$STATE"
{block}
{{ export -p; declare -f; printf 'cd %q\\n' "$PWD"; }} > "$STATE"
"""
FIRST_START = "Ctrl-C stops it."


class Text(HTMLParser):
    """The text of a page without its scripts."""

    def __init__(self):
        super().__init__()
        self.parts, self.is_script = [], False

    def handle_starttag(self, tag, attributes):
        self.is_script = tag in ("script", "style")

    def handle_endtag(self, tag):
        self.is_script = False

    def handle_data(self, data):
        if not self.is_script:
            self.parts.append(data)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(binary, work):
    """A reader's: no proxies, credentials or settings of this machine. curl fails for responses of 400 and above."""
    left_out = ("proxy", "pennon", "posthog", "aws_")
    own = {name: value for name, value in os.environ.items() if not any(part in name.lower() for part in left_out)}
    programs, home = work / "bin", work / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "pennon").symlink_to(Path(binary).resolve())
    (home / ".curlrc").write_text("fail-with-body\nmax-time = 60\n")
    python = Path(packages.install_python("7")).parent
    path = f"{programs}:{python}:{install_programs()}:{os.environ['PATH']}"
    return own | {"PATH": path, "HOME": str(home), "STATE": str(work / "state"), "NO_COLOR": "1", "CADDY_ADMIN": f"127.0.0.1:{free_port()}"}


def signal_group(process, number):
    """Sends a signal to the shell and the programs that it started; whether one of them exists."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


class PageRun:
    def __init__(self, path, binary, work, demo=None):
        self.path, self.work, self.demo = path, work, demo
        self.environment = environment(binary, work)
        self.directory = work / "page"
        self.directory.mkdir()
        (self.directory / "node_modules").symlink_to(packages.install_npm("newest") / "node_modules")
        self.ports, self.secrets, self.running = {}, {}, []
        self.run_blocks = self.checked_blocks = 0
        self.environment["PENNON_PORT"] = self.port("8080")

    def port(self, shown):
        return self.ports.setdefault(shown, str(free_port()))

    def fill_in(self, text):
        """The text with the ports and secrets of this run."""
        text = PORT.sub(lambda match: self.port(match.group(0)), text)
        for placeholder, secret in self.secrets.items():
            text = text.replace(placeholder, secret)
        return text

    def note_secrets(self, printed):
        for placeholder, pattern in SECRETS.items():
            if match := pattern.search(printed):
                self.secrets[placeholder] = match.group(0)

    def run(self):
        text = self.path.read_text(encoding="utf-8")
        try:
            if "<!-- starts with: the demo -->" in text:
                self.start_demo()
            for block in read_blocks(text):
                self.run_block(block)
        finally:
            self.stop()

    def start_demo(self):
        """The server of the first guide, with its key and token."""
        data, secrets = self.demo
        shutil.copytree(data, self.directory / "pennon-data")
        self.secrets.update(secrets)
        self.start("pennon serve", lambda printed: FIRST_START in printed)

    def run_block(self, block):
        where = f"line {block.line}"
        if block.marker == "not run":
            check_syntax(block, where)
            self.checked_blocks += 1
        elif block.marker == "same as":
            content = (ROOT / block.value).read_text(encoding="utf-8")
            if content != block.text:
                raise PageError(f"{where}: not the content of {block.value}")
            self.save(Path(block.value).name, block.text)
        elif block.marker == "file":
            self.save(block.value, block.text)
        elif block.marker == "shown by":
            self.compare(block, self.open_page(self.fill_in(block.value)), where)
            self.run_blocks += 1
        elif block.is_shell():
            self.run_shell(block, where)
            self.run_blocks += 1
        else:
            raise PageError(f"{where}: {block.language} is not run; the marker is for other blocks")

    def save(self, name, text):
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.fill_in(text))

    def run_shell(self, block, where):
        command = self.fill_in(block.text)
        if block.marker == "stays running":
            printed = self.start(command, lambda printed: all(missing_part(self.filled(it), printed) is None for it in block.output), where)
            return self.note_secrets(printed)
        try:
            done = subprocess.run(["bash", "-c", SHELL.format(block=command)], cwd=self.directory, env=self.environment, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BLOCK_SECONDS)
        except subprocess.TimeoutExpired as expired:
            raise PageError(f"{where}: not done within {BLOCK_SECONDS} s: {expired.stdout}") from None
        if (done.returncode == 0) == (block.marker == "fails"):
            raise PageError(f"{where}: exit status {done.returncode}: {done.stdout[-3000:]}")
        self.note_secrets(done.stdout)
        for expected in block.output:
            self.compare(expected, done.stdout, f"line {expected.line}")
        return None

    def filled(self, block):
        return type(block)(block.line, block.language, self.fill_in(block.text))

    def compare(self, expected, printed, where):
        part = missing_part(self.filled(expected), printed)
        if part is not None:
            raise PageError(f"{where}: not printed: {part}\n{printed[-3000:]}")

    def start(self, command, is_ready, where="the demo"):
        """Starts a command that goes on, and returns what it has printed when it is ready."""
        log = self.work / f"running-{len(self.running)}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(["bash", "-c", SHELL.format(block=command)], cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, start_new_session=True)
        self.running.append(process)
        end = time.monotonic() + BLOCK_SECONDS
        while not is_ready(log.read_text(errors="replace")):
            if time.monotonic() > end or process.poll() is not None:
                raise PageError(f"{where}: did not start: {log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        return log.read_text(errors="replace")

    def open_page(self, url):
        chromium = pages.find_chromium()
        if chromium is None:
            raise PageError(f"no Chromium: install one of {', '.join(pages.NAMES)}, or name it in CHROMIUM")
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
                   "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-agent={pages.USER_AGENT}", f"--user-data-dir={self.work}/chromium",
                   "--virtual-time-budget=10000", "--dump-dom", url]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=BLOCK_SECONDS, stdin=subprocess.DEVNULL)
        page = Text()
        page.feed(done.stdout)
        return " ".join(page.parts) or done.stderr[-2000:]

    def stop(self):
        for process in reversed(self.running):
            signal_group(process, signal.SIGTERM)
        end = time.monotonic() + 20
        for process in self.running:
            while signal_group(process, 0):
                process.poll()
                if time.monotonic() > end:
                    signal_group(process, signal.SIGKILL)
                time.sleep(0.02)
