"""A device that answers now, under a runtime: what is to be measured on, and how the engine is to go about it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwbench.core import registry
from hwbench.core.errors import MeasurementError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent import environment as environments
from hwbench.device.agent.environment import Environment
from hwbench.device.agent.message import EMPTY
from hwbench.device.transport import base as transports
from hwbench.device.transport.base import WorkerLost
from hwbench.device.transport.local import Local
from hwbench.profiler import host
from hwbench.profiler.plan import MEMORY_LIMIT_BYTES, Item, Plan
from hwbench.profiler.policy import COUNTING, Policy
from hwbench.runtime.base import NO_CUDA

REFERENCE = "onnxruntime"
"""The runtime whose results here all others are held against."""


def current_environment(runtime: str) -> Environment:
    """This machine under the installed version of a runtime."""
    found = registry.get("runtime", runtime)
    try:
        return environments.collect(runtime, found.version(), found.executes_on())
    except ValueError as error:
        raise MeasurementError(f"{runtime} cannot run on this machine: {error}.") from None


@dataclass(frozen=True)
class Target:
    """A device that answers, under a runtime."""

    name: str
    runtime: str
    reach: transports.Transport
    environment: Environment

    @property
    def counts(self) -> bool:
        """Whether instructions are counted there, not time."""
        return bool(self.environment.values.get("emulator"))

    @property
    def checked(self) -> bool:
        """Whether results are held against onnxruntime's here: always, but for onnxruntime here itself."""
        return self.runtime != REFERENCE or not isinstance(self.reach, Local)

    def plan(self, policy: Policy, references: Sequence[Item], memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Plan:
        """How the engine is to measure there."""
        if self.counts:
            policy = replace(COUNTING, seed=policy.seed)
            references = [item for item in references if item.key == EMPTY]
        if self.environment.values.get("executes_on") == NO_CUDA:
            references = []  # nothing runs, so there is no speed to watch: every item says for itself how far it got
        return Plan(policy, self.runtime, references, memory_limit_bytes, reach=self.reach)


def reached(device: str, runtime: str, place: Workspace) -> Target:
    """The device under that runtime, as it answers now.

    Raises:
        MeasurementError: it cannot be reached, or lacks what it needs.
    """
    name = devices.resolve(device, place.root)
    if name == devices.local_name():
        here = current_environment(runtime)
        if place.find("devices", f"{name}.toml") is None:
            devices.detect(place.root)
        return Target(name, runtime, Local(), here)
    found = devices.get(name, place.root)
    if found.unreachable:
        raise MeasurementError(f"Device {name} cannot be measured from here: {found.unreachable}.")
    registry.get("runtime", runtime)
    try:
        reach = transports.for_device(found, runtime)
        told = host.greet(Plan(Policy(), runtime, reach=reach))
    except WorkerLost as lost:
        raise MeasurementError(f"Device {name} cannot be measured ({lost.status}): {lost}.") from None
    return Target(name, runtime, reach, Environment(told))


def answering(device: str, runtime: str, place: Workspace) -> Target | str:
    """The same, or why it does not answer: one sentence, for who can go on without it."""
    try:
        return reached(device, runtime, place)
    except MeasurementError as error:
        return str(error)


def require_local(device: str, place: Workspace) -> str:
    """The name of this machine's device, for what can be measured only here."""
    name = devices.resolve(device, place.root)
    if name != devices.local_name():
        raise MeasurementError(
            f"Device {name} is not this machine ({devices.local_name()}); measure on the device itself or use --device local."
        )
    return name
