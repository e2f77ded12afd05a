"""Learning from a larger network's answers: L = kd T^2 KL(teacher || student), both softened by a temperature T, + ce CE.

EFTNAS eqs. 4 to 6; eq. 6 lacks the exponential of its denominator, which is taken as that of a softmax. The paper states
neither weights nor temperature. The teacher is fixed (the fine-tuned encoder, whose answers are known once and for all) or in
place (the largest subnet's answers in the same step).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from hwbench.accuracy.supernet.slices import Tensor


@dataclass(frozen=True)
class Distillation:
    """How much is learnt from whom."""

    temperature: float = 2.0
    kd: float = 1.0
    ce: float = 1.0

    def loss(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """Of a batch of logits; nothing flows back into the teacher."""
        told = self.kd * softened(student, teacher.detach(), self.temperature)
        return told + self.ce * F.cross_entropy(student, labels)


def softened(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 sum p_t log(p_t / p_s), with p = softmax(z / T), as the mean of a batch."""
    target, found = torch.log_softmax(teacher / temperature, -1), torch.log_softmax(student / temperature, -1)
    return temperature**2 * (target.exp() * (target - found)).sum(-1).mean()
