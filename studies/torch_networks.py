"""A torch model of every space's networks, by the space's name."""

from __future__ import annotations

from functools import partial

from studies.torch_language import nasbench_bert
from studies.torch_reference import bert, nasbench201, nasvit, vit
from studies.torch_vision import pit, relative_vit

WHOLE = {
    "autoformer-tiny": vit,
    "autoformer-small": vit,
    "autoformer-base": vit,
    "autoformer-cifar10": partial(vit, image=32, patch=8, classes=10, head_dim=16),
    "autoformer-tiny:relative=14": relative_vit,
    "autoformer-small:image=64,relative=2": partial(relative_vit, image=64, reach=2),
    "bert:sequence=32": bert,
    "nasbench_bert:sequence=32": nasbench_bert,
    "nasbench_bert:sequence=25,classes=3": partial(nasbench_bert, classes=3),
    "nasbench201": nasbench201,
    "nasvit": nasvit,
    "pit-s": pit,
    "pit-ti": pit,
    "pit-ti:image=96": partial(pit, image=96),
    "pit-xs": pit,
}
