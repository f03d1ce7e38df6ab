"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

Blocks of the stages: 2, 4, 5, 1. In train.py, which starts with

    deepspeed --hostfile=hostfile --num_nodes=2 --num_gpus=8 train.py --deepspeed --deepspeed_config=ds_config.json

hand your model over as DeepSpeed takes it, one entry for each layer of the plan (embedding, 12 blocks, norm, head):

    engine, *_ = deepspeed.initialize(args=args, model=loadmaster_pipeline.cut(layers, loss_fn=loss), …)
"""

from collections.abc import Sequence
from typing import Any

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

# Ranks count along the tensor shards first, then the replicas, then the stages.
TOPOLOGY = PipeModelDataParallelTopology(num_pp=4, num_mp=2, num_dp=2)
# Stage i has the layers from BOUNDS[i] up to BOUNDS[i + 1].
BOUNDS = [0, 3, 7, 12, 15]


class PlannedPipeline(PipelineModule):
    """DeepSpeed's pipeline, cut where the plan cuts it rather than by a rule."""

    def _partition_layers(self, method: str = "plan") -> None:
        self.parts = BOUNDS
        self._set_bounds(start=BOUNDS[self.stage_id], stop=BOUNDS[self.stage_id + 1])


def cut(layers: Sequence[Any], **settings: Any) -> PlannedPipeline:
    """The stage of this rank; `settings` are those of PipelineModule."""
    if len(layers) != BOUNDS[-1]:
        raise ValueError(f"the plan is for {BOUNDS[-1]} layers, and the model has {len(layers)}")
    return PlannedPipeline(layers, topology=TOPOLOGY, **settings)
