"""What `hwbench` offers, for type checkers and editors: at run time each name is imported when it is first used."""

from collections.abc import Mapping

from hwbench.accuracy.score import score as score
from hwbench.device.doctor import doctor as doctor
from hwbench.optimize.latency_loss import latency_loss as latency_loss
from hwbench.optimize.reward import reward as reward
from hwbench.optimize.search import search as search
from hwbench.optimize.strategy.base import make_strategy as make_strategy
from hwbench.predictor.few_shot.transfer import transfer as transfer
from hwbench.predictor.fit import fit as fit
from hwbench.predictor.latency import latency as latency
from hwbench.predictor.peak_memory import peak_memory as peak_memory
from hwbench.predictor.predict import predict as predict
from hwbench.predictor.rebuild import rebuild as rebuild
from hwbench.profiler.measure import measure as measure
from hwbench.profiler.profile import profile as profile
from hwbench.space.export import export as export
from hwbench.space.make_space import make_space as make_space
from hwbench.space.sample import sample as sample
from hwbench.study.compress import compress as compress
from hwbench.study.quickstart import quickstart as quickstart
from hwbench.study.recompute import recompute as recompute
from hwbench.study.report import report as report
from hwbench.study.site import site as site
from hwbench.study.specialise import specialise as specialise
from hwbench.study.validate import validate as validate
from hwbench.study.verify import verify as verify

__all__: list[str]
__version__: str
RENAMED_KINDS: Mapping[str, str]
RENAMED_PARTS: Mapping[str, Mapping[str, str]]
