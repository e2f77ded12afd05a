"""The device check: every rule on trees and readings made here, then one real run. No timing decides a test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hwbench.core.errors import MeasurementError, UsageError
from hwbench.device import health, system
from hwbench.device.health import Finding
from hwbench.device.system import CpuTimes

NAMES = [
    *("noise floor", "other load", "governor", "turbo", "throttling", "thread spinning"),
    *("memory", "CPU limit", "virtual machine", "timer"),
]


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cycle(*parts: tuple[int, float], length: int = 4000) -> list[float]:
    """Readings that mix (weight, microseconds) evenly, with 0.1 % of jitter."""
    pattern = [us for weight, us in parts for _ in range(weight)]
    return [1e3 * pattern[i % len(pattern)] * (1 + 0.0005 * (i % 3 - 1)) for i in range(length)]


def test_the_verdict_is_the_worst_readable_finding():
    of = {status: Finding(status, status, "") for status in ("good", "warning", "bad", "unreadable")}
    assert health.fit([of["good"], of["unreadable"]]) == "fit"
    assert health.fit([of["good"], of["warning"], of["unreadable"]]) == "usable"
    assert health.fit([of["warning"], of["bad"], of["good"]]) == "unfit"


def test_the_steady_level_is_neither_the_rare_fastest_nor_the_slow_state():
    assert health.steady_level(cycle((1, 74.0), (59, 80.0), (40, 130.0))) == pytest.approx(80e3, rel=0.001)
    assert health.steady_level([5.0]) == 5.0


@pytest.mark.parametrize(
    ("readings", "status", "says"),
    [
        (
            cycle((1, 74.0), (89, 80.0), (10, 130.0)),
            "good",
            "89 % of 4000 readings within 2 % of the steady 80.0 us, 10 % over",
        ),
        (cycle((1, 74.0), (59, 80.0), (40, 130.0)), "warning", "40 % over 1.2x of it; the steady level moved 0.0 % between"),
        (cycle((1, 80.0), length=3000) + cycle((1, 82.4), length=1000), "warning", "moved 3.0 % between quarters"),
        (cycle((1, 80.0), length=3000) + cycle((1, 96.0), length=1000), "bad", "moved 20.0 % between quarters"),
        ([80e3 * (1 + i * 7 % 1000 / 1000) for i in range(4000)], "bad", "moved 0.0 % between quarters"),
    ],
)
def test_noise_floor(readings, status, says):
    finding = health.noise_floor(readings)
    assert finding.status == status
    assert says in finding.found
    assert bool(finding.advice) == (status != "good")


def times(at_s: float, busy_s: float, stolen_s: float = 0.0, own_s: float = 0.0) -> CpuTimes:
    return CpuTimes(at_s, busy_s, stolen_s, own_s)


@pytest.mark.parametrize(("busy_s", "status"), [(0.05, "good"), (0.3, "warning"), (0.5, "bad"), (1.9, "bad")])
def test_other_load_is_judged_in_cores_without_our_own(busy_s, status):
    before, after = times(10, 100, own_s=3), times(11, 100 + busy_s + 0.4, own_s=3.4)
    names = {1: ("init", 50.0), 7: ("make", 1.0)}
    finding = health.other_load(before, after, names, {**names, 7: ("make", 1.0 + busy_s / 3), 8: ("cc1plus", busy_s / 2)})
    assert finding.status == status
    assert finding.found.startswith(f"{busy_s:.2f} cores used by other processes over 1.0 s; busiest: cc1plus")
    assert finding.advice == ("" if status == "good" else "stop cc1plus, or wait until it has ended")


def test_load_no_visible_process_explains_is_said_to_be_so():
    finding = health.other_load(times(0, 0), times(2, 2), {1: ("init", 5.0)}, {1: ("init", 5.0)})
    assert (finding.status, finding.found) == ("bad", "1.00 cores used by other processes over 2.0 s")
    assert "no process seen here accounts for it" in finding.advice


def test_cpu_times_are_the_kernels(tmp_path):
    hertz = os.sysconf("SC_CLK_TCK")
    stat = tree(tmp_path, {"stat": "cpu  100 20 30 9999 777 4 6 50 100 0\ncpu0 1 1 1 1 1 1 1 1 1 1"}) / "stat"
    found = system.cpu_times(stat)
    assert found is not None
    assert (found.busy_s, found.stolen_s) == (pytest.approx(160 / hertz), pytest.approx(50 / hertz))


@pytest.mark.parametrize("text", ["", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3", "cpu 1 2 3 4 5 6 7 -"])
def test_cpu_times_that_are_none_make_the_load_unreadable(tmp_path, text):
    assert system.cpu_times(tree(tmp_path, {"stat": text}) / "stat") is None
    assert system.cpu_times(tmp_path / "absent") is None
    assert health.other_load(None, times(1, 1), {}, {}).status == "unreadable"


def test_a_busy_process_beside_us_is_seen():
    burner = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert burner.stdout is not None
        burner.stdout.readline()
        for _ in range(5):  # a hypervisor may hold back the burner for a while
            names, before = system.process_times(), system.cpu_times()
            time.sleep(0.5)
            finding = health.other_load(before, system.cpu_times(), names, system.process_times())
            if finding.status == "bad":
                break
        assert finding.status == "bad", finding
        assert burner.pid in names
        assert os.getpid() not in names
    finally:
        burner.kill()
        burner.communicate()


def test_governor(tmp_path):
    assert health.governor(tmp_path).status == "unreadable"
    cpus = tree(tmp_path, {f"cpu{i}/cpufreq/scaling_governor": "performance" for i in range(12)})
    assert health.governor(cpus) == Finding("governor", "good", "performance on 12 cores")
    tree(cpus, {"cpu11/cpufreq/scaling_governor": "powersave"})
    mixed = health.governor(cpus)
    assert (mixed.status, mixed.found) == ("warning", "performance on 11 cores, powersave on 1 cores")
    assert mixed.advice.startswith("run: echo performance | sudo tee ")


@pytest.mark.parametrize(
    ("files", "status", "says"),
    [
        ({"intel_pstate/no_turbo": "0"}, "warning", "echo 1 | sudo tee"),
        ({"intel_pstate/no_turbo": "1"}, "good", ""),
        ({"cpufreq/boost": "1"}, "warning", "echo 0 | sudo tee"),
        ({"cpufreq/boost": "0"}, "good", ""),
        ({"cpufreq/boost": "perhaps"}, "unreadable", "noise floor"),
        ({}, "unreadable", "noise floor"),
    ],
)
def test_turbo(tmp_path, files, status, says):
    finding = health.turbo(tree(tmp_path, files))
    assert finding.status == status
    assert says in finding.advice


def test_throttling(tmp_path):
    assert system.throttle_count(tmp_path) is None
    assert system.hottest_c(tmp_path) is None
    counters = {f"cpu{i}/thermal_throttle/{what}_throttle_count": "3" for i in range(2) for what in ("core", "package")}
    zones = {"thermal_zone0/temp": "41000", "thermal_zone1/temp": "67500", "thermal_zone2/temp": "broken"}
    tree(tmp_path, {**counters, **zones, "cpu0/thermal_throttle/core_throttle_total_time_ms": "900"})
    assert system.throttle_count(tmp_path) == 12
    assert system.hottest_c(tmp_path) == 67.5
    assert health.throttling(12, 12, 67.5) == Finding("throttling", "good", "throttle counters stayed at 12; hottest zone 68 C")
    risen = health.throttling(12, 14, None)
    assert (risen.status, risen.found) == ("bad", "throttle counters rose by 2 during the check; no temperature readable")
    assert health.throttling(None, None, 50.0).status == "unreadable"


def test_thread_spinning():
    assert health.thread_spinning().status == "unreadable"
    assert health.thread_spinning(0.1, 40.0).status == "good"
    still = health.thread_spinning(38.0, 40.0)
    assert still.status == "warning"
    assert "38.0 ms" in still.found
    assert "40.0 ms" in still.found


@pytest.mark.parametrize(
    ("available_gb", "swapped_gb", "status"),
    [(8, 0, "good"), (8, 0.2, "warning"), (2.9, 0, "warning"), (1.0, 0, "warning"), (0.9, 0.5, "bad")],
)
def test_memory(available_gb, swapped_gb, status):
    finding = health.memory(int(available_gb * 1e9), int(swapped_gb * 1e9))
    assert finding.status == status
    assert f"{available_gb:.1f} GB of RAM" in finding.found


V1, V2 = "5:memory:/a\n3:cpu,cpuacct:/docker/x\n0::/", "0::/user.slice/job"


@pytest.mark.parametrize(
    ("own", "files", "quotas"),
    [
        (V2, {"cgroup.procs": "1", "user.slice/job/cpu.max": "max 100000"}, []),
        (V2, {"cgroup.procs": "1"}, []),
        (V2, {"cgroup.procs": "1", "user.slice/job/cpu.max": "150000 100000"}, [(150000, 100000)]),
        (
            V2,
            {"cgroup.procs": "1", "user.slice/job/cpu.max": "max 100000", "user.slice/cpu.max": "50000 100000"},
            [(50000, 100000)],
        ),
        ("0::/", {"cgroup.procs": "1", "cpu.max": "50000 100000"}, [(50000, 100000)]),
        ("1:name=systemd:/\n0::/", {"unified/cgroup.procs": "1"}, []),
        (V1, {"cpu/cgroup.procs": "1", "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        (V1, {"cpu/cgroup.procs": "1", "cpu/cpu.cfs_quota_us": "20000", "cpu/cpu.cfs_period_us": "10000"}, [(20000, 10000)]),
        (
            V1,
            {
                "cpu,cpuacct/cgroup.procs": "1",
                "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "7000",
                "cpu,cpuacct/docker/x/cpu.cfs_period_us": "10000",
            },
            [(7000, 10000)],
        ),
        (V1, {"cgroup.procs": "1", "cpu.max": "1 2"}, None),
        (V2, {}, None),
        ("", {"cgroup.procs": "1"}, None),
    ],
)
def test_cpu_quotas_of_both_cgroup_versions(tmp_path, own, files, quotas):
    tree(tmp_path, {"own": own})
    assert system.cpu_quotas(tmp_path / "own", tree(tmp_path / "cgroup", files)) == quotas


def test_cpu_limit(tmp_path):
    own, root = tree(tmp_path, {"own": "0::/"}) / "own", tree(tmp_path / "cgroup", {"cgroup.procs": "1"})
    assert health.cpu_limit(4, 4, own, root) == Finding("CPU limit", "good", "4 of 4 cores may be used; no quota")
    pinned = health.cpu_limit(4, 1, own, root)
    assert (pinned.status, pinned.found) == ("warning", "1 of 4 cores may be used; no quota")
    assert "affinity" in pinned.advice
    tree(root, {"cpu.max": "150000 100000"})
    limited = health.cpu_limit(4, 4, own, root)
    assert limited.status == "warning"
    assert limited.found == "4 of 4 cores may be used; quota 150 ms of CPU time per 100 ms (1.5 cores)"
    assert health.cpu_limit(1, 1, own, root).status == "good", "the quota is above what there is"
    assert health.cpu_limit(4, 4, tmp_path / "absent", root).status == "unreadable"
    assert health.cpu_limit(4, 2, tmp_path / "absent", root).status == "warning"


def test_virtual_machine(tmp_path):
    info = tree(
        tmp_path, {"vm": "processor\t: 0\nflags\t\t: fpu sse hypervisor avx", "metal": "flags\t: fpu", "arm": "Features: fp"}
    )
    under = health.virtual_machine(times(0, 10, 1), times(1, 10.9, 1.1), info / "vm")
    assert under.status == "warning"
    assert under.found == "runs under a hypervisor; 10.0 % of the running time stolen during the noise reading"
    assert "stolen time not readable" in health.virtual_machine(None, None, info / "vm").found
    assert health.virtual_machine(None, None, info / "metal").status == "good"
    assert health.virtual_machine(None, None, info / "arm").status == "unreadable"
    assert health.virtual_machine(None, None, info / "absent").status == "unreadable"


@pytest.mark.parametrize(
    ("step_ns", "every", "status", "says"),
    [
        (50, 1, "good", "costs 50 ns, smallest step 50 ns"),
        (15_000_000, 300, "warning", "smallest step 15000000 ns"),
        (2000, 1, "warning", "costs 2000 ns"),
        (0, 1, "warning", "did not move"),
    ],
)
def test_timer(step_ns, every, status, says):
    calls = iter(range(10**6))
    finding = health.timer(lambda: next(calls) // every * step_ns)
    assert finding.status == status
    assert says in finding.found


@pytest.mark.parametrize("seconds", [0, -1, 601, float("nan")])
def test_a_length_that_is_none_is_refused(seconds):
    with pytest.raises(UsageError, match="more than 0 and at most 600 seconds"):
        health.check_device(seconds)


def test_a_process_of_the_check_that_fails_is_one_line():
    with pytest.raises(MeasurementError, match=r"^A process of the device check failed: ValueError: .*'soon'$"):
        health._child("import sys; float(sys.argv[1])", "soon", timeout_s=30)
    with pytest.raises(MeasurementError, match=r"did not end within 0\.2 s"):
        health._child("import time; time.sleep(30)", "", timeout_s=0.2)


def test_this_machine():
    seen: list[tuple[int, int]] = []
    findings = health.check_device(0.3, lambda done, total: seen.append((done, total)))
    assert [finding.name for finding in findings] == NAMES
    assert all(finding.found for finding in findings)
    assert not [finding for finding in findings if finding.status == "good" and finding.advice]
    assert not [finding for finding in findings if finding.status in ("warning", "bad") and not finding.advice]
    assert {finding.status for finding in findings} <= {"good", "warning", "bad", "unreadable"}
    assert health.fit(findings) in ("fit", "usable", "unfit")
    assert seen == [(i, 4) for i in range(1, 5)]
