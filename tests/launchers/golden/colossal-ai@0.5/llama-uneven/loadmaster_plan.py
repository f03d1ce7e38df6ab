"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 3, 5. In train.py, which every node starts with

    torchrun --standalone --nproc-per-node=4 train.py

take the plugin from here:

    booster = Booster(plugin=loadmaster_plan.plugin())
    booster.execute_pipeline(…)  # with 16 samples per replica: 8 micro-batches of 2 samples
"""

from typing import Any

from colossalai.booster.plugin import HybridParallelPlugin


def plugin(**settings: Any) -> HybridParallelPlugin:
    """The plan; `settings` are the plugin's others."""
    return HybridParallelPlugin(
        tp_size=2,
        pp_size=2,
        num_layers_per_stage=[3, 5],
        pp_style="1f1b",
        num_microbatches=8,
        precision="bf16",
        zero_stage=0,
        dp_outside=False,  # replicas of a stage are neighbours, as in the plan
        **settings,
    )
