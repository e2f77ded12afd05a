"""Peaks: what disturbed them is told from what the machine did meanwhile; such peaks are kept and cited nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwbench.core.errors import MeasurementError
from hwbench.core.workspace import packaged
from hwbench.device import files, peaks
from hwbench.device.peaks import Moment, Peaks, disturbance, less_with_more
from hwbench.device.system import CpuTimes

BEFORE = Moment(CpuTimes(at_s=100.0, busy_s=50.0, stolen_s=1.0, own_s=0.0), mine_s=10.0, throttled=3)


def after(seconds: float = 2.0, busy_s: float = 2.0, mine_s: float = 2.0, stolen_s: float = 0.0, throttled: int | None = 3):
    times = CpuTimes(100.0 + seconds, 50.0 + busy_s, 1.0 + stolen_s, 0.0)
    return Moment(times, 10.0 + mine_s, throttled)


@pytest.mark.parametrize(
    ("then", "threads", "told"),
    [
        (after(), 1, []),
        (after(busy_s=2.3), 1, []),  # less than a quarter of a core
        (after(busy_s=4.0), 1, ["other processes used 1.0 cores"]),
        (after(stolen_s=0.5), 1, ["20% of the running time was stolen"]),
        (after(throttled=4), 1, ["the CPU slowed down to cool"]),
        (after(throttled=None), 1, []),
        (after(), 4, ["only 2 cores may be used"]),
        (replace(after(busy_s=9.0), times=None), 1, []),  # nothing can be read
    ],
)
def test_what_disturbs(then, threads, told):
    assert disturbance(BEFORE, then, threads, usable=2) == told


def test_more_threads_that_reach_less_were_disturbed():
    one = Peaks({"gflops_fp32_1_threads": 88.3, "bandwidth_gb_s_1_threads": 27.7})
    fine = Peaks({"gflops_fp32_2_threads": 86.0, "bandwidth_gb_s_2_threads": 27.0})
    assert less_with_more(one, fine) is fine
    less = Peaks({"gflops_fp32_2_threads": 59.7, "bandwidth_gb_s_2_threads": 27.0}, "other processes used 1.0 cores")
    assert less_with_more(one, less).disturbed == "other processes used 1.0 cores; less than with 1 thread"


def test_a_real_measurement_says_what_it_saw():
    found = peaks.measure(1, {})
    assert sorted(found.values) == ["bandwidth_gb_s_1_threads", "gflops_fp32_1_threads"]
    assert min(found.values.values()) > 0
    assert isinstance(found.disturbed, str)


INTERRUPTED = """
import os, signal, threading
from hwbench.device import peaks

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background has it ignored
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    peaks.measure(1, {})
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupted_they_leave_no_process_and_no_word(python):
    done = python(INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_a_folder_that_cannot_be_written_is_found_out_first(tmp_path, monkeypatch):
    monkeypatch.setattr(peaks, "measure", None)
    (tmp_path / "devices").write_text("a file where a folder should be")
    with pytest.raises(MeasurementError, match=r"Cannot write .*devices: .*choose another --workspace"):
        files.detect(tmp_path)


def test_disturbed_peaks_are_kept_in_the_file_and_not_cited(tmp_path, monkeypatch):
    def measure(threads, caches):
        names = (f"gflops_fp32_{threads}_threads", f"bandwidth_gb_s_{threads}_threads")
        return Peaks(dict(zip(names, (50.0 * threads, 20.0 * threads), strict=True)), "" if threads == 1 else "too hot")

    monkeypatch.setattr(peaks, "measure", measure)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = files.detect(tmp_path)
    assert found.disturbed == dict.fromkeys(("gflops_fp32_2_threads", "bandwidth_gb_s_2_threads"), "too hot")
    assert found.peaks["gflops_fp32_2_threads"] == 100.0
    assert list(found.undisturbed_peaks) == ["gflops_fp32_1_threads", "bandwidth_gb_s_1_threads"]
    assert files.read(found.path) == found


def test_no_shipped_peak_that_may_be_cited_is_less_with_more_threads():
    for path in (packaged() / "devices").glob("*.toml"):
        found = files.read(path)
        for name, value in found.undisturbed_peaks.items():
            what, _, rest = name.rpartition("_threads")[0].rpartition("_")
            if rest.isdecimal() and int(rest) > 1:
                assert value >= (1 - peaks.APART) * found.undisturbed_peaks[f"{what}_1_threads"], (path.name, name)
