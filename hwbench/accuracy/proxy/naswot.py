"""NASWOT (Mellor et al. 2021, the activation-pattern kernel): log |det K| over a batch of noise.

K counts, over all activation functions, for how many units two samples fall on the same side of zero. The older form of the
name, the covariance of Jacobians, is another score and not this one.
"""

from __future__ import annotations

from hwbench.accuracy.activation_patterns import patterns
from hwbench.accuracy.fresh_network import FreshNetwork
from hwbench.accuracy.network_proxy import Measured, NetworkProxy, NotScored
from hwbench.network import torch_view


class Naswot(NetworkProxy):
    """How well a network tells samples apart before it has learnt anything."""

    unit = "log |det| of the kernel of activation patterns"
    tells_blocks = False

    def measure(self, fresh: FreshNetwork) -> Measured:
        """One pass forward."""
        torch = torch_view.imported()
        batch = fresh.start.batch
        kernel = torch.zeros(batch, batch, dtype=torch.float64)
        for pattern in patterns(fresh):
            on = pattern.float()
            kernel += (on @ on.mT + (1 - on) @ (1 - on).mT).double()
        sign, value = torch.linalg.slogdet(kernel)
        if sign == 0:
            raise NotScored("its kernel of activation patterns is singular: samples have the same pattern")
        return Measured({"score": float(value)})
