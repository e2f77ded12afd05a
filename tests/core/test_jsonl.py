"""The append-only log: whole lines survive, a torn one is passed over and cut off, and what fails is one line."""

from __future__ import annotations

from typing import Any

import pytest

from hwbench.core import jsonl
from hwbench.core.errors import DataError, MeasurementError

ENTRIES = [{"round": 1, "ms": 0.25}, {"round": 2, "words": "two\nlines"}, {"round": 3}]


def rounds(path) -> list[int]:
    return list(jsonl.read(path, "round", lambda entry: int(entry["round"])))


def write(path, entries: list[Any]) -> None:
    with jsonl.appending(path) as append:
        for entry in entries:
            append(entry)


def test_entries_come_back_in_order_from_a_folder_made_as_needed(tmp_path):
    path = tmp_path / "deep" / "log.jsonl"
    assert rounds(path) == []
    write(path, ENTRIES[:1])
    write(path, ENTRIES[1:])
    assert list(jsonl.read(path, "round", dict)) == ENTRIES
    assert path.read_bytes().splitlines()[0] == b'{"round":1,"ms":0.25,"sum":"da5a41a6"}'


def test_an_entry_is_there_for_others_before_the_next_one(tmp_path):
    path = tmp_path / "log.jsonl"
    with jsonl.appending(path) as append:
        for number, entry in enumerate(ENTRIES, 1):
            append(entry)
            assert rounds(path) == list(range(1, number + 1))


def test_a_torn_line_is_passed_over_by_readers_and_cut_off_by_writers(tmp_path):
    path = tmp_path / "log.jsonl"
    write(path, ENTRIES)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        left = whole[:cut].count(b"\n")
        assert rounds(path) == [1, 2, 3][:left]
        assert path.read_bytes() == whole[:cut]  # reading changes nothing
        write(path, ENTRIES[left:])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{'round':1}\n", b"7\n", b"\xff\n", b'{"other":1}\n', b'{"round":"first"}\n', b"\n"])
def test_a_line_that_is_no_entry_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    write(path, ENTRIES)
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(DataError, match=r"log\.jsonl: line 4 is not a round; restore the file or delete that line\.$"):
        rounds(path)


def test_a_line_that_was_edited_is_named_whichever_it_is(tmp_path):
    path = tmp_path / "log.jsonl"
    write(path, ENTRIES)
    whole = path.read_bytes().splitlines(keepends=True)
    for at, line in enumerate(whole):
        for wrong in (line.replace(b'"round":', b'"round":1'), line[: -len(b',"sum":"12345678"}\n')] + b"}\n"):
            path.write_bytes(b"".join([*whole[:at], wrong, *whole[at + 1 :]]))
            with pytest.raises(DataError, match=rf"log\.jsonl: line {at + 1} was edited after hwbench wrote it"):
                rounds(path)
            ((number, text, why),) = jsonl.bad_lines(path, dict)
            assert (number, text) == (at + 1, wrong.decode().rstrip("\n"))
            assert "checksum" in why


def test_a_log_that_an_older_version_began_goes_on_without_checksums(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"round":1}\n')
    write(path, ENTRIES[1:])
    assert rounds(path) == [1, 2, 3]
    assert b"sum" not in path.read_bytes()


@pytest.mark.parametrize("place", ["/proc/hwbench/log.jsonl", "file/log.jsonl", "folder"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(MeasurementError, match=r"Cannot write .*choose another --workspace"):
        write(tmp_path / place, ENTRIES)
