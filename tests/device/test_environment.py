"""The machine, read from given texts of x86 and ARM kernels, and which differences forbid mixing."""

from __future__ import annotations

import platform

import pytest

from hwbench.device.agent.environment import CHECKED, ISA_FLAGS, UNSAID, Environment, collect, cpu_facts

X86 = """processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 85
model name	: Intel(R) Xeon(R)   Platinum 8259CL CPU @ 2.50GHz
stepping	: 7
flags		: fpu vme sse4_2 avx f16c fma avx2 avx512f avx512bw avx512vl avx512_vnni hypervisor

processor	: 1
cpu family	: 6
model		: 99
model name	: another
stepping	: 1
flags		: fpu
"""
PI4 = """processor	: 0
BogoMIPS	: 108.00
Features	: fp asimd evtstrm crc32 cpuid
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd08
CPU revision	: 3

Hardware	: BCM2835
Model		: Raspberry Pi 4 Model B Rev 1.4
"""
GRAVITON = """processor	: 0
Features	: fp asimd aes asimdhp cpuid asimddp sve bf16 i8mm
CPU implementer	: 0x41
CPU part	: 0xd40
CPU revision	: 1
"""


@pytest.mark.parametrize(
    ("text", "model", "signature", "isa"),
    [
        (
            X86,
            "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz",
            "6-85-7",
            ["sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"],
        ),
        (PI4, "Raspberry Pi 4 Model B Rev 1.4", "0x41-0xd08-3", ["asimd"]),
        (GRAVITON, None, "0x41-0xd40-1", ["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve"]),
        ("", None, "?-?-?", []),
    ],
)
def test_what_the_kernel_says_of_a_cpu(tmp_path, text, model, signature, isa):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    facts = cpu_facts(str(path))
    assert facts["model"] == (model or platform.processor() or platform.machine())
    assert (facts["signature"], facts["isa"]) == (signature, isa)
    assert set(isa) <= set(ISA_FLAGS)


def test_a_machine_without_cpuinfo_still_has_a_name(tmp_path):
    facts = cpu_facts(str(tmp_path / "none"))
    assert facts["model"]
    assert (facts["signature"], facts["isa"]) == ("?-?-?", [])


def test_this_machine_under_a_runtime():
    found = collect("onnxruntime", "1.2.3")
    assert set(CHECKED) - {"emulator"} <= set(found.values)
    assert (found.values["runtime"], found.values["runtime_version"]) == ("onnxruntime", "1.2.3")
    assert found.hash == collect("onnxruntime", "1.2.3").hash
    assert found.differences(collect("onnxruntime", "1.2.4")) == [("runtime_version", "1.2.3", "1.2.4")]


def test_only_checked_keys_make_a_difference_but_every_key_makes_an_identity():
    one = Environment(dict.fromkeys((*CHECKED, "kernel", "python"), 1))
    for key in one.values:
        other = Environment({**one.values, key: 2})
        assert one.differences(other) == ([(key, 1, 2)] if key in CHECKED else [])
        assert one.hash != other.hash
    reordered = Environment(dict(reversed(one.values.items())))
    assert (one.differences(reordered), one.hash) == ([], reordered.hash)
    assert one.differences(Environment({})) == [(key, 1, UNSAID.get(key)) for key in CHECKED]


def test_what_was_measured_before_anything_but_cpus_could_run_stays_comparable():
    before = Environment({key: value for key, value in collect("onnxruntime", "1").values.items() if key != "executes_on"})
    assert before.differences(collect("onnxruntime", "1")) == []
    assert before.differences(collect("onnxruntime", "1", "Some GPU")) == [("executes_on", "cpu", "Some GPU")]
