"""A part is found by its file name alone: one new file makes an op, a space or a strategy that works everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError

PACKAGE = Path(hwbench.__file__).parent


def folder_of(kind: str) -> Path:
    return PACKAGE.parent / registry.kinds()[kind].replace(".", "/")


@pytest.mark.parametrize("kind", registry.kinds())
def test_the_list_of_names_is_the_list_of_files(kind):
    files = {path.stem for path in folder_of(kind).glob("*.py")} - {"__init__", "base"}
    found = registry.names(kind)
    assert list(dict.fromkeys(name.partition("-")[0] for name in found)) == sorted(files)
    assert len(found) == len(set(found)) >= 1


def test_variants_stand_for_the_file_they_come_from():
    found = [name for name in registry.names("space") if name.startswith("autoformer")]
    assert found == ["autoformer-tiny", "autoformer-small", "autoformer-base", "autoformer-cifar10"]
    widths = [registry.get("space", name).genes[0].choices for name in found]
    assert widths == [(192, 216, 240), (320, 384, 448), (528, 576, 624), (48, 64, 80)]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("space", "autoformer-tinny", "Unknown space 'autoformer-tinny'. Did you mean autoformer-tiny"),
        ("proxy", "./mine.py:Mine", "a file can hold a space or an accuracy function only. In Python hwbench's functions"),
        ("space", "autoformer_tinny", "Did you mean autoformer-tiny"),
        ("space", "autoformer", "Unknown space 'autoformer'. Did you mean autoformer-"),
        ("space", "autoformer-", "Unknown space 'autoformer-'. Did you mean autoformer-"),
        ("space", "bert-large", "Unknown space 'bert-large'. Did you mean bert"),
        ("space", "autoformer-tinny:image=160", "Unknown space 'autoformer-tinny'. Did you mean autoformer-tiny"),
        ("strategy", "gp_ehvy", "Did you mean gp-ehvi?"),
        ("strategy", "gp-ehvy", "Did you mean gp-ehvi?"),
        ("op", "Linear", "Did you mean linear"),
        ("op", "atention_block", "Did you mean attention_block"),
        ("op", "base", "Unknown op 'base'."),
        ("op", "", "Unknown op ''. Available: "),
        ("space", "q7", "Unknown space 'q7'. Available: autoformer-base, "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(kind, name, message):
    with pytest.raises(UnknownName) as error:
        registry.get(kind, name)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "name", "registered", "shown"),
    [
        ("strategy", "gp-ehvi", "gp_ehvi", "gp-ehvi"),
        ("strategy", "gp_ehvi:start=9", "gp_ehvi:start=9", "gp-ehvi:start=9"),
        ("strategy", "default", "gp_ehvi", "gp-ehvi"),
        ("strategy", "linas_ridge", "linas-ridge", "linas-ridge"),
        ("aggregator", "calibrated-sum", "calibrated_sum", "calibrated-sum"),
        ("aggregator", "lut-sum", "calibrated_sum", "calibrated-sum"),
        ("space", "autoformer_tiny:image=160", "autoformer-tiny:image=160", "autoformer-tiny:image=160"),
        ("op", "ffn-block", "ffn_block", "ffn_block"),
        ("strategy", "nobodys_own", "nobodys_own", "nobodys-own"),
    ],
)
def test_hyphens_and_underscores_name_the_same_part(kind, name, registered, shown):
    assert registry.current(kind, name) == registered
    assert registry.shown(kind, registered) == shown
    if kind in ("aggregator", "space", "op"):
        assert registry.get(kind, name) is registry.get(kind, registered)
        assert registry.get(kind, name).name == registered


def test_options_follow_the_colon_and_stay_in_the_name():
    long = registry.get("space", "bert:sequence=384")
    assert (long.sequence, long.classes, long.name) == (384, 2, "bert:sequence=384")
    both = registry.get("space", "bert:sequence=32,classes=3")
    assert (both.sequence, both.classes) == (32, 3)
    assert registry.get("space", "bert").sequence == 128
    assert registry.get("space", "autoformer-tiny:image=160").image == 160


def test_get_shares_one_instance_and_make_gives_a_new_one():
    assert registry.get("space", "bert") is registry.get("space", "bert")
    assert registry.make("space", "bert") is not registry.make("space", "bert")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("space", "bert:sequence", "cannot read 'sequence'. Options: sequence, classes (name=value)"),
        ("space", "bert:length=3", "cannot read 'length=3'"),
        ("space", "bert:sequence=384,", "cannot read ''"),
        ("space", "bert:sequence=384,sequence=64", "sequence is given twice"),
        ("space", "bert:sequence=long", "sequence must be a number, got 'long'"),
        ("space", "bert:sequence=1.5", "sequence must be a number, got '1.5'"),
        ("space", "bert:sequence=", "sequence must be a number, got ''"),
        ("space", "bert:sequence=513", "sequence must be 1 to 512, got 513"),
        ("space", "autoformer-tiny:depth=3", "cannot read 'depth=3'. Options: image, patch, classes"),
        ("op", "linear:bias=1", "Options: none"),
    ],
)
def test_options_that_cannot_be_read_are_refused(kind, name, message):
    with pytest.raises(UsageError) as error:
        registry.get(kind, name)
    assert message in str(error.value)


@pytest.fixture
def foreign(monkeypatch):
    """Installs another package's part: foreign(kind, name, source of its module, class)."""

    def forget() -> None:
        for cached in (registry._shared, registry.kinds, registry._targets, registry._variants):
            cached.cache_clear()

    def install(kind: str, name: str, source: str, cls: str = "Part") -> None:
        module = ModuleType("foreign_package")
        exec(source, module.__dict__)
        monkeypatch.setitem(sys.modules, "foreign_package", module)
        point = EntryPoint(name, f"foreign_package:{cls}", f"hwbench.{kind}")
        monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == point.group else [])
        forget()

    yield install
    monkeypatch.undo()
    forget()


SPACE = """
VARIANTS = {"mine-narrow": {"width": 4}, "mine-wide": {"width": 8}}
class Part:
    genes = ()
    def __init__(self, width=2, layers=3): self.width, self.layers = width, layers
    def lower(self, arch): ...
"""


def test_another_package_adds_a_part_by_an_entry_point(foreign):
    before = registry.names("space")
    foreign("space", "mine", SPACE)
    assert set(registry.names("space")) - set(before) == {"mine-narrow", "mine-wide"}
    wide = registry.get("space", "mine-wide:layers=5")
    assert (wide.width, wide.layers) == (8, 5)
    with pytest.raises(UsageError, match=r"cannot read 'width=3'. Options: layers"):
        registry.get("space", "mine-wide:width=3")
    assert registry.get("space", "bert").sequence == 128


def test_a_foreign_name_may_hold_a_dash(foreign):
    foreign("space", "my-space", "class Part:\n    genes = ()\n    def lower(self, arch): ...")
    assert registry.get("space", "my-space").genes == ()


def test_two_parts_of_one_name_are_refused(foreign):
    foreign("op", "linear", "class Part: ...")
    with pytest.raises(UsageError, match="Two parts call themselves op 'linear': hwbench's own and foreign_package:Part"):
        registry.names("op")


def test_a_part_registered_under_the_old_name_of_its_kind_is_told_the_new_one(foreign, monkeypatch):
    foreign("gadget", "mine", "class Part: ...")
    monkeypatch.setattr(hwbench, "RENAMED_KINDS", {"gadget": "op"}, raising=False)
    with pytest.raises(UsageError) as error:
        registry.get("op", "linear")
    assert str(error.value) == (
        "Module foreign_package registers 'mine' in the entry-point group hwbench.gadget, which is called hwbench.op now: "
        "register it there."
    )
    assert registry.names("objective")


def test_ways_to_reach_devices_are_transports_now(foreign):
    foreign("reach", "pigeon", "class Part: ...")
    with pytest.raises(UsageError, match=r"group hwbench\.reach, which is called hwbench\.transport now: register it there"):
        registry.names("transport")


def test_a_package_declares_its_own_kinds_and_folders_are_no_parts(copy):
    done = copy(
        "from hwbench.core import registry\n"
        "from pathlib import Path\n"
        "room = Path(hwbench.__file__).parent / 'garage'\n"
        "for folder in (room, room / 'tool', room / 'tool' / 'box'):\n"
        "    folder.mkdir()\n"
        "    (folder / '__init__.py').write_text('')\n"
        "(room / '__init__.py').write_text('KINDS = {\"tool\": \"hwbench.garage.tool\"}')\n"
        "(room / 'base.py').write_text('class Tool:\\n    def turn(self): ...')\n"
        "(room / 'tool' / 'wrench.py').write_text('class Wrench:\\n    def turn(self): return 1')\n"
        "assert registry.names('tool') == ['wrench'] and registry.get('tool', 'wrench').turn() == 1\n"
        "assert registry.contract('tool').__module__ == 'hwbench.garage.base'\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_kind_nobody_declared_is_answered_with_the_nearest_ones():
    with pytest.raises(UnknownName, match=r"Unknown kind 'spaces'. Did you mean space"):
        registry.names("spaces")


def test_a_part_that_lacks_members_of_its_contract_is_refused_by_name(foreign):
    foreign("op", "half", "class Part:\n    fields = {}\n    def work(self, spec): ...\n    def expand(self, spec): ...")
    with pytest.raises(UsageError, match=r"op foreign_package.Part lacks emit, parameters, signature of its contract"):
        registry.get("op", "half")


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ("ask = 3\n    def tell(self, genes, values): ...", "ask must be a method, it is 3"),
        (
            "def ask(self, n): ...\n    def tell(self, genes): ...",
            "tell must take 2 arguments (genes, values), its own are (genes)",
        ),
        ("def ask(self): ...\n    def tell(self, genes, values): ...", "ask must take 1 argument (n), its own are ()"),
        (
            "def ask(self, n): ...\n    def tell(self, genes, values, more): ...",
            "tell must take 2 arguments (genes, values), its own are (genes, values, more)",
        ),
    ],
)
def test_a_member_that_cannot_be_used_as_its_contract_says_is_named(foreign, members, fault):
    foreign("strategy", "half", f"class Part:\n    def __init__(self, problem, rng): ...\n    {members}")
    with pytest.raises(UsageError) as error:
        registry.make("strategy", "half", problem=None, rng=None)
    assert str(error.value) == f"strategy foreign_package.Part breaks its contract: {fault}."


def test_a_value_that_is_a_method_is_named(foreign):
    foreign("proxy", "half", "class Part:\n    def unit(self): ...\n    def compile(self, space): ...")
    with pytest.raises(
        UsageError, match=r"proxy foreign_package.Part breaks its contract: unit must be a value, it is a method"
    ):
        registry.get("proxy", "half")


def test_a_part_that_cannot_be_made_is_told_with_what(foreign):
    source = (
        "class Part:\n    def __init__(self, problem): ...\n    def ask(self, n): ...\n    def tell(self, genes, values): ..."
    )
    foreign("strategy", "half", source)
    with pytest.raises(UsageError) as error:
        registry.make("strategy", "half", problem=None, rng=None)
    assert str(error.value) == (
        "strategy foreign_package.Part breaks its contract: it is made with (problem, rng), its own are (problem)."
    )


def test_a_module_that_cannot_be_imported_is_named(foreign):
    foreign("op", "half", "", "Nothing")
    with pytest.raises(
        UsageError, match=r"registers op 'half' as foreign_package:Nothing, which cannot be imported: .*Nothing"
    ):
        registry.get("op", "half")


# Objects


class Ruler:
    """A proxy: the first gene."""

    unit = "steps"

    def __init__(self, factor=1.0):
        self.factor = factor

    def compile(self, space):
        return lambda population: self.factor * population[0].astype(float)


class Half:
    unit = "steps"


@pytest.fixture
def nothing_given():
    yield
    registry._given.clear()
    registry._given_shared.clear()


@pytest.mark.usefixtures("nothing_given")
def test_an_object_is_found_by_its_name_or_by_that_of_its_class():
    nameless, called = Ruler(2.0), Ruler(3.0)
    called.name = "mine"
    assert registry.named("proxy", nameless) == f"{__name__}:Ruler" == nameless.name
    assert registry.named("proxy", called) == "mine"
    assert registry.get("proxy", f"{__name__}:Ruler") is nameless
    assert registry.get("proxy", "mine") is called
    other = Ruler(4.0)
    other.name = "mine"
    registry.named("proxy", other)
    assert registry.get("proxy", "mine") is other
    assert "mine" not in registry.names("proxy")


@pytest.mark.usefixtures("nothing_given")
def test_a_class_is_made_once_by_get_and_anew_by_make():
    name = registry.named("proxy", Ruler)
    assert registry.get("proxy", name) is registry.get("proxy", name)
    assert registry.make("proxy", name, factor=5.0).factor == 5.0


@pytest.mark.usefixtures("nothing_given")
def test_an_object_is_copied_where_a_new_one_is_needed_and_refused_where_that_takes_arguments():
    given = Ruler(2.0)
    name = registry.named("proxy", given)
    made = registry.make("proxy", name)
    assert made is not given
    assert made.factor == 2.0
    with pytest.raises(
        UsageError, match=r"proxy '.*:Ruler' is made anew with its factor: give its class, or a function of them"
    ):
        registry.make("proxy", name, factor=1.0)


@pytest.mark.usefixtures("nothing_given")
def test_an_object_keeps_its_contract_and_takes_nobodys_name():
    with pytest.raises(UsageError, match=rf"proxy {__name__}.Half lacks compile of its contract"):
        registry.named("proxy", Half())
    impostor = Ruler()
    impostor.name = "params"
    with pytest.raises(
        UsageError, match=rf"An object of {__name__}.Ruler calls itself proxy 'params', as hwbench.*Params does"
    ):
        registry.named("proxy", impostor)
    assert registry.named("proxy", registry.get("proxy", "params")) == "params"
    assert registry.named("proxy", "params") == "params"


@pytest.mark.usefixtures("nothing_given")
def test_a_recipe_makes_the_part_elsewhere_or_says_that_nobody_can():
    assert registry.recipe("runtime", "ncnn-vulkan") == {"class": "hwbench.runtime.ncnn:Ncnn", "arguments": {"vulkan": True}}
    assert registry.recipe("proxy", registry.named("proxy", Ruler())) == {"class": f"{__name__}:Ruler", "arguments": {}}
    with pytest.raises(UsageError, match=r"cannot be made in another process: .* the object must be what Ruler\(\) gives"):
        registry.recipe("proxy", registry.named("proxy", Ruler(2.0)))


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, and a way to run a script against it with nothing else on the path."""
    shutil.copytree(PACKAGE, tmp_path / "hwbench", ignore=shutil.ignore_patterns("__pycache__", "_data"))

    def run(script: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, source in files.items():
            kind, _, part = name.partition("__")
            path = tmp_path / folder_of(kind).relative_to(PACKAGE.parent) / f"{part}.py"
            assert not path.exists()
            path.write_text(source)
        head = f"import hwbench; assert hwbench.__file__.startswith({str(tmp_path)!r}), hwbench.__file__\n"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-W", "error", "-c", head + script]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)

    return run


def test_listing_names_imports_nothing_heavy(copy):
    done = copy(
        "import sys\n"
        "from hwbench.core import registry\n"
        "assert all(registry.names(kind) for kind in registry.kinds())\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'sklearn', 'matplotlib', 'lightgbm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_file_without_its_class_is_named(copy):
    done = copy("from hwbench.core import registry; registry.names('op')", op__hard_swish="class Swish: ...")
    assert "UsageError: hwbench/network/op/hard_swish.py must define a class named HardSwish; it does not." in done.stderr


HARD_SWISH = '''
"""x * relu6(x + 3) / 6."""
from hwbench.network.op.base import Elementwise, Work

class HardSwish(Elementwise):
    def work(self, spec):
        return Work(0, 4 * spec["tokens"] * spec["dim"])

    def emit(self, graph, spec, inputs, prefix):
        return [graph.node("HardSwish", inputs[0])]
'''
RUN_OP = """
import io
import numpy as np, onnxruntime
from hwbench.core import registry
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import features
from hwbench.network.op.base import single
from hwbench.network.onnx_writer import write_model

assert "hard_swish" in registry.names("op")
spec = OpSpec.parse("hard_swish(dim=6,tokens=5)")
assert features(spec, Setting())["flops"] == 120
model = io.BytesIO()
write_model(single(spec), Setting(batch=2), model)
x = np.linspace(-5, 5, 60, dtype=np.float32).reshape(2, 5, 6)
(y,) = onnxruntime.InferenceSession(model.getvalue(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
assert np.abs(y - x * np.clip(x + 3, 0, 6) / 6).max() < 1e-5
"""


def test_an_op_is_one_file(copy):
    done = copy(RUN_OP, op__hard_swish=HARD_SWISH)
    assert done.returncode == 0, done.stderr


MIXER = '''
"""Stacks of FFN blocks."""
from hwbench.network.graph import Tensor
from hwbench.space.base import Gene, per_layer

VARIANTS = {"mixer-short": {"tokens": 16}, "mixer-long": {"tokens": 64}}

class Mixer:
    def __init__(self, tokens, classes: int = 10):
        self.tokens, self.classes = tokens, classes
        self.genes = (Gene("depth", (1, 2)), *per_layer("ratio", (2, 3, 4), 2))

    def lower(self, arch):
        arch.input(Tensor("x", (self.tokens, 8)))
        x = "x"
        for i in arch.repeat("depth"):
            hidden = 8 * arch["ratio", i]
            x = arch.add(f"layer{i}", "ffn_block", x, tokens=self.tokens, dim=8, hidden=hidden, activation="relu", norm="pre")
        return arch.workload(arch.add("head", "classifier_head", x, tokens=self.tokens, dim=8, classes=self.classes))
'''
RUN_SPACE = """
import io
import numpy as np, onnxruntime
from hwbench.core import registry
from hwbench.network.spec import Setting
from hwbench.network.onnx_writer import write_model
from hwbench.space.slots import distinct_specs
from hwbench.space.values import from_values, to_values
from hwbench.space.lowering import lower
from hwbench.space.activity import sample, size

assert {"mixer-short", "mixer-long"} <= set(registry.names("space"))
space = registry.get("space", "mixer-long:classes=5")
assert size(space) == 3 + 9
assert len(distinct_specs(space)) == 3 + 1
columns = sample(space, 400, np.random.default_rng(0)).T
assert len({tuple(c) for c in columns}) == 12
for column in columns[:3]:
    assert (from_values(space, to_values(space, column)) == column).all()
    model = io.BytesIO()
    write_model(lower(space, column).network, Setting(), model)
    session = onnxruntime.InferenceSession(model.getvalue(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((1, 64, 8), np.float32)})[0].shape == (1, 5)
"""


def test_a_space_is_one_file(copy):
    done = copy(RUN_SPACE, space__mixer=MIXER)
    assert done.returncode == 0, done.stderr


CLIMB = '''
"""Climbs from the best so far to its neighbours."""
from hwbench.optimize.strategy.base import Archive
from hwbench.optimize.variation import Seen, neighbours, sample_new

class Climb:
    def __init__(self, problem, rng):
        self._problem, self._rng, self._seen, self._archive = problem, rng, Seen(), Archive(problem)

    def ask(self, n):
        if not len(self._archive):
            return sample_new(self._problem, n, self._rng, self._seen)
        return self._seen.new(neighbours(self._problem, self._archive.genes[self._archive.order()[:1]])[:n])

    def tell(self, genes, values):
        self._archive.add(genes, values)
'''
# Only the predictor is a stand-in: a closed form (millions of parameters) instead of a measured device.
RUN_STRATEGY = """
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from hwbench.core import registry
from hwbench.network.work import parameter_count
from hwbench.optimize import search
from hwbench.predictor.base import Refusal
from hwbench.space.compiled import CompiledSum

assert "climb" in registry.names("strategy")

def params(specs):
    return np.array([parameter_count(spec) / 1e6 for spec in specs])

facts = SimpleNamespace(certified=False, fingerprint="none", name="none/none", document=dict)
compiled = CompiledSum(registry.get("space", "autoformer-tiny"), params)
latency = SimpleNamespace(facts=facts, compiled=compiled, margin=0.0)
model = SimpleNamespace(device="none", for_space=lambda space, statistic: Refusal("only min is known"))
search.models.keep = search.models.stale = lambda *asked: None
search.models.choose = lambda *asked: SimpleNamespace(latency=latency, model=model)
found = search.search("autoformer-tiny", 6.5, "out", strategy="climb", evaluations=400, seed=1)["search"]
assert found["strategy"] == "climb" and 100 < found["evaluated"] <= 400, found
assert 6.45 < found["finalists"][0]["latency_ms"] <= 6.5, found["finalists"]
"""


def test_a_strategy_is_one_file(copy):
    done = copy(RUN_STRATEGY, strategy__climb=CLIMB)
    assert done.returncode == 0, done.stderr
