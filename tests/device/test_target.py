from __future__ import annotations

import pytest

from hwbench.core.command import command
from hwbench.core.errors import UnknownName
from hwbench.device import files as devices
from hwbench.device.target import Target
from hwbench.network.spec import Setting


def test_what_goes_without_saying_is_left_out():
    assert command("profile", space="bert", **Target.of().options) == "hwbench profile --space bert"


def test_everything_else_is_said(tmp_path):
    target = Target.of("raspberry-pi-4", "ncnn", Setting("int8", 4, 2), tmp_path)
    assert command("profile", **target.options) == (
        f"hwbench profile --device raspberry-pi-4 --runtime ncnn --dtype int8 --batch 4 --threads 2 --workspace {tmp_path}"
    )
    assert target.name == "raspberry-pi-4/ncnn at int8-b4-t2-back-to-back"


def test_local_is_this_machine_and_remembers_that_it_was_asked_for_so():
    target = Target.of("local")
    assert (target.device, target.local) == (devices.local_name(), True)
    assert not Target.of(devices.local_name()).local


def test_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(UnknownName):
        Target.of("no-such-device", workspace=tmp_path)


def test_a_runtime_is_called_what_it_was_registered_as():
    assert Target.of("local", "ncnn_vulkan").runtime == "ncnn-vulkan"
    assert Target.of("local", "published").runtime == "published"  # a table's own, which nobody registered
