"""A target whose device answers now: what is measured on, and how the engine goes about it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwbench.core import registry
from hwbench.core.command import command
from hwbench.core.errors import MeasurementError
from hwbench.core.progress import step
from hwbench.device import files as devices
from hwbench.device import reached, releases
from hwbench.device.agent import environment as environments
from hwbench.device.agent.environment import Environment
from hwbench.device.agent.message import EMPTY
from hwbench.device.releases import Installed, Release
from hwbench.device.target import Target
from hwbench.device.transport import base as transports
from hwbench.device.transport.base import Transport, WorkerLost
from hwbench.device.transport.local import Local
from hwbench.profiler import host
from hwbench.profiler.plan import MEMORY_LIMIT_BYTES, Item, Plan
from hwbench.profiler.policy import COUNTING, Policy
from hwbench.runtime.base import NO_CUDA

REFERENCE = "onnxruntime"
"""The runtime whose results here all others are held against."""


def current_environment(runtime: str) -> Environment:
    """This machine under the installed version of a runtime."""
    engine = registry.get("runtime", runtime)
    try:
        return environments.collect(runtime, engine.version(), engine.executes_on())
    except ValueError as error:
        raise MeasurementError(f"{runtime} cannot run on this machine: {error}.") from None


@dataclass(frozen=True)
class LiveTarget:
    """A target whose device answers now: how workers are started there, and what they say of themselves."""

    target: Target
    transport: Transport
    environment: Environment

    @property
    def counts(self) -> bool:
        """Whether instructions are counted there, not time."""
        return bool(self.environment.values.get("emulator"))

    @property
    def checked(self) -> bool:
        """Whether results are held against onnxruntime's here: always, but for onnxruntime here itself."""
        return self.target.runtime != REFERENCE or not isinstance(self.transport, Local)

    def plan(self, policy: Policy, references: Sequence[Item], memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Plan:
        """How the engine is to measure there."""
        if self.counts:
            policy = replace(COUNTING, seed=policy.seed)
            references = [item for item in references if item.key == EMPTY]
        if self.environment.values.get("executes_on") == NO_CUDA:
            references = []  # nothing runs, so there is no speed to watch: every item says for itself how far it got
        return Plan(policy, self.target.engine, references, memory_limit_bytes, transport=self.transport)


def connect(target: Target) -> LiveTarget:
    """The target, once its device answers.

    Raises:
        MeasurementError: it cannot be reached, or lacks what it needs.
    """
    name, runtime, root = target.device, target.runtime, target.workspace.root
    release = releases.release_of(runtime)
    if name == devices.local_name():
        if release is not None:
            return _released(target, release)
        here = current_environment(runtime)
        if target.workspace.find("devices", f"{name}.toml") is None:
            devices.detect(root)
        return LiveTarget(target, Local(), here)
    device = devices.get(name, root)
    if device.unreachable:
        raise MeasurementError(f"Device {name} cannot be measured from here: {device.unreachable}")
    if release is not None:
        raise MeasurementError(
            f"{runtime} is installed on this machine only: measure it here, or leave out {runtime} for {name}."
        )
    registry.get("runtime", runtime)
    try:
        with step(f"reaching for {name}"):
            transport = transports.for_device(device, runtime)
            environment = host.greet(Plan(Policy(), runtime, transport=transport))
    except WorkerLost as lost:
        reached.note(device, root, str(lost))
        raise MeasurementError(f"Device {name} cannot be measured ({lost.status}): {lost}.") from None
    reached.note(device, root)
    return LiveTarget(target, transport, Environment(environment))


def _released(target: Target, release: Release) -> LiveTarget:
    """This machine under a release of a runtime, installed first where it is not yet."""
    releases.install(release)
    transport = Installed(release)
    try:
        environment = host.greet(Plan(Policy(), release.runtime, transport=transport))
    except WorkerLost as lost:
        raise MeasurementError(f"{target.runtime} does not start ({lost.status}): {lost}.") from None
    if target.workspace.find("devices", f"{target.device}.toml") is None:
        devices.detect(target.workspace.root)
    return LiveTarget(target, transport, Environment(environment))


def connect_or_reason(target: Target) -> LiveTarget | str:
    """The same, or why the device does not answer: one sentence, for a caller that can go on without it."""
    try:
        return connect(target)
    except MeasurementError as error:
        return str(error)


def require_time(target: Target) -> None:
    """Raises where instructions are counted, not time, for what is told in milliseconds only."""
    if target.device != devices.local_name() and devices.get(target.device, target.workspace.root).reach == "emulated":
        run = command("profile", device=target.device, space="SPACE")
        raise MeasurementError(f"Device {target.device} counts instructions and tells no time. Tables of counts: {run}")
