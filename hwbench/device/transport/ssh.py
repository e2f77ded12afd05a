"""A device over ssh: the system's `ssh` and `scp`, so that the user's own configuration, keys and jump hosts count.

    [ssh]
    host = "pi@raspberry"             anything `ssh` knows, an alias of ~/.ssh/config above all
    python = "venv/bin/python"        default python3; a path is absolute or begins at the login folder
    folder = "/mnt/card/hwbench"      default .cache/hwbench; holds the agent and, for moments, models
    options = ["Port=2222"]           as ssh_config spells them, where an alias is not wanted

Nothing listens on a port and no password is ever asked for. The agent (hwbench/device/agent/bundle.py) is copied where the
device has none with its hash, and its exit code tells a worker that died there (128 + signal) from a connection that did (255).
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hwbench.core.errors import DataError
from hwbench.core.files import parse
from hwbench.device.agent import bundle
from hwbench.device.files import Device
from hwbench.device.transport.base import DISCONNECTED, GARBLED, REFUSED, UNREACHABLE, WorkerLost, agent, crashed, printable

FIXED = ("BatchMode=yes", "ClearAllForwardings=yes", "RemoteCommand=none", "RequestTTY=no")
"""Never a question, a forwarded port or another command, whatever the configuration says for people."""
DEFAULTS = ("ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3")
"""Behind the device's own options: of two values ssh takes the first."""
ALLOWED = (
    "AddressFamily", "BindAddress", "Compression", "ConnectTimeout", "HostName", "IdentitiesOnly", "IdentityFile", "Port",
    "ProxyJump", "ServerAliveCountMax", "ServerAliveInterval", "User",
)  # fmt: skip
"""Where and how to connect. What runs a command on this machine or decides whom to trust belongs to the user, not to a file."""
MACHINES = {"x86": r"x86_64|amd64|i[3-6]86", "arm": r"aarch64|arm.*"}
"""A device file's kind -> what such a machine calls itself."""
TIMEOUT_S = 60.0
"""For looking at the device and for the copy, each."""
PROBED = {"machine": str, "missing": list, "agent": str | None, "folder": str, "free_bytes": int}
"""What the probe tells beside the version of Python."""
MOST_SAID, LOOK_S = 1 << 20, 0.5
"""Bytes that looking at a device or copying to it may write, and how often that is looked at while nothing comes."""
LOST = 255
"""What ssh itself ends with when there is no connection, or no more."""


class Ssh:
    """Workers are agents on the device, each at the other end of one ssh connection."""

    name: str
    shares_files = False

    def __init__(self, device: Device, runtime: str) -> None:
        """Checks the device's file and reaches for nothing yet; the agent itself says whether it has the runtime."""
        said = _section(device)
        self._device, self._runtime = device, runtime
        self._host: str = said["host"]
        self._python: str = said["python"].removeprefix("~/")
        self._folder: str = said["folder"].removeprefix("~/")
        self._options = [part for option in (*FIXED, *said["options"], *DEFAULTS) for part in ("-o", option)]
        self._owner = uuid.uuid4().hex
        """By which an agent knows those before it, and ends one that hangs."""
        self._agent: str | None = None
        """The agent's path on the device, once seen there."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        """What the worker's ssh, and the worker through it, wrote to standard error."""
        weakref.finalize(self, self._errors.close)

    def start(self) -> subprocess.Popen[bytes]:
        """An agent on the device.

        Raises:
            WorkerLost: unreachable, or refused: another machine than the file says, no Python or numpy, no room.
        """
        if self._agent is None:
            self._agent = self._installed()
        folder = shlex.quote(self._agent.rpartition("/")[0])
        # Pools of other libraries would idle beside the measurement. 255 is kept for ssh.
        script = (
            f"OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TMPDIR={folder} {shlex.join([self._python, self._agent, self._owner])}; "
            f"code=$?; [ $code = {LOST} ] && code={LOST - 1}; exit $code"
        )
        self._errors.seek(0)
        self._errors.truncate()
        # A session of its own: Ctrl-C in a terminal is the host's to answer.
        return subprocess.Popen(
            self._ssh(["sh", "-c", script]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
        )

    def ending(self, code: int) -> tuple[str, str]:
        """The agent's own end, or that of the connection: 255, or an ssh that was killed here."""
        said = "".join(f": {line}" for line in _lines(self._errors)[-1:])
        if code == LOST or code < 0:
            self._agent = None  # the device may have been set up anew meanwhile
            return DISCONNECTED, f"connection to {self._host} lost{said}"
        if code - 128 in list(signal.Signals):
            return crashed(128 - code)
        status, reason = crashed(code)
        return status, reason + said

    def environment(self) -> dict[str, Any]:
        """The agent knows its device."""
        return {}

    def machine(self) -> str:
        """The host as ssh resolves it, which asks nobody; "" where the name is this machine's. A jump host leads elsewhere."""
        code, lines, _ = self._call(["ssh", "-G", *self._options, "--", self._host])
        said = dict(line.partition(" ")[::2] for line in lines) if code == 0 else {}
        host = said.get("hostname", self._host).lower()
        if way := said.get("proxyjump") or said.get("proxycommand"):
            return f"{way} {host}"
        return "" if host in ("localhost", "::1", socket.gethostname().lower()) or host.startswith("127.") else host

    def _installed(self) -> str:
        """The agent's path on the device, copied there if it has none of this hash."""
        (content, digest), said = agent(self._runtime), ""
        name = f"agent-{digest[:16]}.pyz"
        part = f".{name}.{uuid.uuid4().hex[:8]}"
        found = self._look(name, part, digest)
        if found["agent"] != digest:
            said = self._copy(content, part, found["free_bytes"])
            found = self._look(name, part, digest)  # where the connection is what failed, this says so
        if found["agent"] != digest:
            why = said or "it arrived damaged (its hash differs)"
            raise _refused(f"the agent could not be copied to {self._folder} on {self._host}: {why}")
        return f"{found['folder']}/{name}"

    def _look(self, name: str, part: str, digest: str) -> dict[str, Any]:
        """What the device says of itself, if a worker can run there."""
        command = [self._python, "-", self._folder, name, part, digest, *bundle.MODULES]
        code, lines, said = self._call(self._ssh(command), bundle.PROBE.encode())
        if code == LOST:
            why = "".join(f": {line}" for line in said[-1:])
            raise WorkerLost(UNREACHABLE, f"{self._host} cannot be reached{why}; try: ssh {self._host} true")
        if code == 127:
            raise _refused(f"{self._host} has no program {self._python}; name one as `python` in {self._device.path}")
        if code or not lines:
            raise _refused(f"{self._python} on {self._host} ended with code {code}: {'; '.join(said[-1:])}")
        if len(lines) > 1 or not lines[0].startswith("{"):
            raise _refused(f"the login shell of {self._host} prints '{lines[0]}' into every command's output; make it silent")
        found = _of_probe(lines[0], self._host)
        kind, version, oldest = self._device.kind, found["python"], bundle.OLDEST_PYTHON
        if kind in MACHINES and not re.fullmatch(MACHINES[kind], found["machine"].lower()):
            raise _refused(f"device file says {kind}, {self._host} answered {found['machine']}; mend {self._device.path}")
        if tuple(version) < oldest:
            needed = f"{_dotted(oldest)} or newer is needed; name one as `python` in {self._device.path}"
            raise _refused(f"{self._python} on {self._host} is {_dotted(version)}, {needed}")
        if found["missing"]:
            names = " ".join(found["missing"])
            raise _refused(f"{self._host} lacks {names}; run there: {self._python} -m pip install {names}")
        if "error" in found:
            raise _refused(f"folder {self._folder} on {self._host} cannot be used: {found['error']}")
        return found

    def _copy(self, content: bytes, part: str, free_bytes: int) -> str:
        """What went wrong, if anything did."""
        if free_bytes < len(content):
            room = f"{free_bytes} bytes free in {self._folder}, the agent takes {len(content)}"
            raise _refused(f"disk full on {self._host}: {room}")
        user, at, host = self._host.rpartition("@")
        with tempfile.TemporaryDirectory(prefix="hwbench-") as scratch:
            source = Path(scratch) / "agent.pyz"
            source.write_bytes(content)
            # Brackets, or the colons of an IPv6 address would end the host.
            target = f"{user}{at}[{host}]:{self._folder}/{part}"
            code, _, said = self._call(["scp", *self._options, str(source), target])
        return ("; ".join(said) or f"scp ended with code {code}") if code else ""

    def _ssh(self, command: Sequence[str]) -> list[str]:
        return ["ssh", *self._options, "--", self._host, shlex.join(command)]

    def _call(self, command: list[str], given: bytes = b"") -> tuple[int, list[str], list[str]]:
        """(code, lines it wrote, lines it complained) of a command that ends by itself."""
        with tempfile.TemporaryFile() as errors:  # not a pipe: a shared connection stays behind and would keep it open
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, start_new_session=True
                )
            except FileNotFoundError:
                raise _refused(f"there is no {command[0]} on this machine; install an OpenSSH client") from None
            with process:
                try:
                    said = self._said(process, given, errors)
                except WorkerLost:
                    process.kill()
                    raise
                return process.wait(), [printable(line) for line in said.decode(errors="replace").splitlines()], _lines(errors)

    def _said(self, process: subprocess.Popen[bytes], given: bytes, errors: IO[bytes]) -> bytes:
        """All that a command writes; one that writes without end, or never ends, is given up."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(given)  # far less than a pipe holds
        pipe, said, end = process.stdout.fileno(), bytearray(), time.monotonic() + TIMEOUT_S
        while True:
            if time.monotonic() > end:
                raise WorkerLost(UNREACHABLE, f"{self._host} did not answer within {TIMEOUT_S:g} s")
            if len(said) > MOST_SAID or os.fstat(errors.fileno()).st_size > MOST_SAID:
                raise WorkerLost(UNREACHABLE, f"{self._host} writes without end; try: ssh {self._host} true")
            if select.select([pipe], [], [], LOOK_S)[0]:
                piece = os.read(pipe, 1 << 16)
                if not piece:
                    return bytes(said)
                said += piece


def _section(device: Device) -> dict[str, Any]:
    """The device's [ssh] section with its defaults.

    Raises:
        DataError: a folder or an option that must not be given.
    """
    said = {"python": "python3", "folder": ".cache/hwbench", "options": [], **device.ssh}
    if not re.fullmatch(r"[A-Za-z0-9._/~+-]+", said["folder"]):  # scp may show it to a shell
        raise DataError(
            f"Device file {device.path}: 'ssh.folder' may hold letters, digits and ._/+- only, found {said['folder']!r}."
        )
    for option in said["options"]:
        if not option.isprintable() or option.partition("=")[0].lower() not in {name.lower() for name in ALLOWED}:
            known = f"{', '.join(ALLOWED)}; put all others into ~/.ssh/config"
            raise DataError(f"Device file {device.path}: 'ssh.options' may not hold {option!r}; available: {known}.")
    return said


def _of_probe(line: str, host: str) -> dict[str, Any]:
    """What the probe found.

    Raises:
        WorkerLost: that is not how the probe answers.
    """
    try:
        found = parse(line.encode())
        version = found["python"]
        needed = ["machine"]
        if tuple(version) >= bundle.OLDEST_PYTHON:  # an older one looks no further
            needed += ["missing"] if "error" in found else ["missing", "agent", "folder", "free_bytes"]
        wrong = [name for name in needed if not isinstance(found[name], PROBED[name])]
    except (ValueError, TypeError, KeyError):
        wrong = ["its answer"]
    if wrong:
        raise WorkerLost(GARBLED, f"{host} answered what cannot be understood: {wrong[0]} is missing, or of another type")
    return dict(found)


def _refused(reason: str) -> WorkerLost:
    return WorkerLost(REFUSED, reason)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _lines(errors: IO[bytes]) -> list[str]:
    """What was written there, without blanks and full stops: it is quoted within a sentence."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_SAID))
    lines = (printable(line).strip().rstrip(".") for line in errors.read().decode(errors="replace").splitlines())
    return [line for line in lines if line]
