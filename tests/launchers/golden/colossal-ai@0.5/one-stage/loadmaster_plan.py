"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 4. In train.py, which every node starts with

    torchrun --standalone --nproc-per-node=4 train.py

take the plugin from here:

    booster = Booster(plugin=loadmaster_plan.plugin())
    booster.backward(…)

Accumulate gradients over 8 micro-batches of 2 samples before a step.
"""

from typing import Any

from colossalai.booster.plugin import HybridParallelPlugin


def plugin(**settings: Any) -> HybridParallelPlugin:
    """The plan; `settings` are the plugin's others."""
    return HybridParallelPlugin(
        tp_size=1,
        pp_size=1,
        precision="bf16",
        zero_stage=0,
        dp_outside=False,  # replicas of a stage are neighbours, as in the plan
        **settings,
    )
