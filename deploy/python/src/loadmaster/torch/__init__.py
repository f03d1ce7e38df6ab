"""Reports a training of a plan to the planner: seconds of an iteration, peak bytes of every rank.

    with loadmaster.torch.observe("plans/7f3c") as observed:
        for batch in batches:
            train(batch)
            observed.step()

It belongs in every rank, and rank 0 reports once, at the end. A training is never stopped or slowed: a step reads a clock,
nothing is sent before the end, and a failure to report is one warning in the log `loadmaster`.

`loadmaster.torch.trainer`, `loadmaster.torch.lightning` and `loadmaster.torch.deepspeed` do the same for these frameworks.
"""

from __future__ import annotations

from ._observer import Observer, observe

__all__ = ["Observer", "observe"]
