from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.command import command


def test_options_are_words_a_shell_reads():
    made = command("lut diff", "a b.parquet", space=["bert:sequence=384", "tiny"], threads=2, stored=True, json=False, out=None)
    assert made == "hwbench lut diff 'a b.parquet' --space bert:sequence=384 --space tiny --threads 2 --stored"


def test_a_mapping_repeats_its_option():
    assert command("search", limit={"params_m": 10.0, "latency_ms@pi4": 0.5}) == (
        "hwbench search --limit params_m=10 --limit latency_ms@pi4=0.5"
    )


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_every_text_survives_the_shell(text):
    assert shlex.split(command("fit", Path("x"), out=text))[-1] == text
