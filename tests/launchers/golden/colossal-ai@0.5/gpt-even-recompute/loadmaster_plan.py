"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 6, 6. In train.py, which every node starts with

    torchrun --standalone --nproc-per-node=8 train.py

take the plugin from here:

    booster = Booster(plugin=loadmaster_plan.plugin())
    booster.execute_pipeline(…)  # with 16 samples per replica: 8 micro-batches of 2 samples

Recomputation is switched on by the model: call model.gradient_checkpointing_enable().
"""

from typing import Any

from colossalai.booster.plugin import HybridParallelPlugin
from colossalai.shardformer import PipelineGradientCheckpointConfig


def plugin(**settings: Any) -> HybridParallelPlugin:
    """The plan; `settings` are the plugin's others."""
    return HybridParallelPlugin(
        tp_size=1,
        pp_size=2,
        num_layers_per_stage=[6, 6],
        pp_style="1f1b",
        num_microbatches=8,
        precision="bf16",
        zero_stage=0,
        dp_outside=False,  # replicas of a stage are neighbours, as in the plan
        gradient_checkpoint_config=PipelineGradientCheckpointConfig(num_ckpt_layers_per_stage=[6, 6]),
        **settings,
    )
