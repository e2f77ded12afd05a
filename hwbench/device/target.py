"""Target: whose latencies are asked for, under which runtime and setting, and where what is known of it lies.

One value, passed whole. `Target.options` are the words that ask for the same target on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.core import registry
from hwbench.core.command import Value
from hwbench.core.errors import HwbenchError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device import releases
from hwbench.network.spec import Setting

DEFAULT_RUNTIME = "onnxruntime"
LOCAL = "local"


@dataclass(frozen=True)
class Target:
    """A device by its own name, a runtime, a setting, and the workspace that is searched before the shipped files."""

    device: str
    runtime: str = DEFAULT_RUNTIME
    setting: Setting = Setting()
    workspace: Workspace = field(default_factory=lambda: Workspace.at("."))
    local: bool = False
    """Asked for as `local`: what answers must have been measured on this very machine."""

    @classmethod
    def of(
        cls,
        device: str = LOCAL,
        runtime: str = DEFAULT_RUNTIME,
        setting: Setting = Setting(),
        workspace: str | Path | Workspace = ".",
    ) -> Target:
        """The target that a verb's own arguments name.

        Raises:
            UnknownName: there is no such device.
        """
        place = workspace if isinstance(workspace, Workspace) else Workspace.at(workspace)
        return cls(devices.resolve(device, place.root), registry.named("runtime", runtime), setting, place, device == LOCAL)

    @property
    def engine(self) -> str:
        """The runtime, whatever its release."""
        return releases.engine(self.runtime)

    @property
    def name(self) -> str:
        """Everything that tells two targets apart, in a few words."""
        return f"{self.device}/{self.runtime} at {self.setting.key}"

    @property
    def out_of_reach(self) -> str | None:
        """The sentence that ends a message in place of a command that would measure there, where none can; else None."""
        try:
            device = devices.get(self.device, self.workspace.root)
        except HwbenchError:  # this machine, which nobody described yet, or a file that cannot be read
            return None
        if device.reach == "emulated" or not device.unreachable:
            return None
        return f"It cannot be measured from here: {device.unreachable}"

    @property
    def options(self) -> Mapping[str, Value]:
        """For `command`: what goes without saying is left out."""
        plain = Setting()
        return {
            "device": None if self.device == devices.local_name() else self.device,
            "runtime": None if self.runtime == DEFAULT_RUNTIME else self.runtime,
            "dtype": None if self.setting.dtype == plain.dtype else self.setting.dtype,
            "batch": None if self.setting.batch == plain.batch else self.setting.batch,
            "threads": None if self.setting.threads == plain.threads else self.setting.threads,
            "workspace": self.workspace.option,
        }
