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


def test_shapes_and_numbers_of_inputs_can_be_pasted():
    made = command(
        "profile", model=Path("a b.onnx"), shape={"x:0": (1, 3, 224, 224), "len": []}, fill={"sr": 16000, "p/q": 0.5}
    )
    assert made == "hwbench profile --model 'a b.onnx' --shape x:0=1,3,224,224 --shape len= --fill sr=16000 --fill p/q=0.5"
    assert command("profile", shape={"x": "1,3"}, fill={"n": 12345678.0, "p": 0.123456789}) == (
        "hwbench profile --shape x=1,3 --fill n=12345678.0 --fill p=0.123456789"
    )


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_every_text_survives_the_shell(text):
    assert shlex.split(command("fit", Path("x"), out=text))[-1] == text
