"""A real sshd on the loopback address for one test run, and Pythons such as devices have.

Everything is the test's own: port, host key, client key, both configurations, known hosts. `ssh` and `scp` in `bin` are the
system's (or unpacked, tests/setups.py), told to read that configuration as if it were the user's. sshd logs in whoever runs
the tests: a user other than root can start it, and it can log in nobody else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil

from tests import setups

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
CLIENT = """
Host board behind stranger impostor
  Port {port}
Host behind
  ProxyJump board
Host stranger
  IdentityFile {folder}/host_key
Host impostor
  UserKnownHostsFile /dev/null
Host * !stranger
  IdentityFile {folder}/client_key
Host *
  HostName 127.0.0.1
  User {user}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""
"""board: the device; behind: the same, reached through itself; stranger: a key it does not know; impostor: unknown to us."""


class Sshd:
    """One server, started at once."""

    def __init__(self, folder: Path, sftp: bool = True, path: str = "") -> None:
        """`path` is where the device looks for programs, if not in the system's folders."""
        self._ssh = setups.ssh()
        self._environment = {**os.environ, **self._ssh.of_server(folder)}
        self.folder, self.bin = folder, folder / "bin"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._write("Subsystem sftp internal-sftp\n" * sftp + f"SetEnv PATH={path}\n" * bool(path))
        self.start()

    def _write(self, more: str) -> None:
        for name in ("host_key", "client_key"):
            make_key = [self._ssh.programs["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name]
            subprocess.run(make_key, env=self._environment, check=True)
        shutil.copy(self.folder / "client_key.pub", self.folder / "authorized_keys")
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}\n")
        known = {"port": self.port, "folder": self.folder, "user": pwd.getpwuid(os.geteuid()).pw_name}
        (self.folder / "sshd_config").write_text(SERVER.format(**known) + more)
        (self.folder / "config").write_text(CLIENT.format(**known))
        self.bin.mkdir()
        variables = " ".join(f"{name}={value}" for name, value in self._ssh.environment.items())
        for name, options in {"ssh": "", "scp": f"-S {self.bin}/ssh"}.items():
            said = f"exec env {variables} {self._ssh.programs[name]} {options} -F {self.folder}/config"
            script(self.bin / name, f'{said} "$@"')

    def start(self) -> None:
        """Listens, on the same port as before."""
        command = [self._ssh.programs["sshd"], "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(500):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd does not listen")

    def cut(self) -> None:
        """Ends every connection at once: nobody says goodbye."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Every connection stays and carries nothing any more, as when a cable is pulled."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        """To what holds connections, one or two processes each; what they run is not theirs."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith("sshd"):
                    process.send_signal(number)

    def agents(self) -> list[psutil.Process]:
        """The agents running at the far end, whoever is their parent by now."""
        return [p for p in psutil.process_iter(["cmdline"]) if p.pid != os.getpid() and is_agent(p, str(self.folder))]

    def stop(self) -> None:
        """As if the device were switched off."""
        self._process.terminate()
        self._process.wait()

    def close(self) -> None:
        """Leaves nothing behind."""
        self.cut()
        self.stop()


def is_agent(process: psutil.Process, folder: str) -> bool:
    """Whether Python runs an agent that lies in that folder there."""
    words = process.info["cmdline"] or []
    return words[0:1] != ["sh"] and any(word.startswith(folder) and word.endswith(".pyz") for word in words[1:])


def script(path: Path, text: str) -> Path:
    """A shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def bare_python(folder: Path, *packages: str) -> Path:
    """A Python that has these packages and nothing else beyond the standard library."""
    site = folder / f"site-{'-'.join(packages)}"
    site.mkdir()
    for package in packages:
        found = metadata.distribution(package)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    return script(site / "python", f'PYTHONPATH={site} exec {sys.executable} -S "$@"')
