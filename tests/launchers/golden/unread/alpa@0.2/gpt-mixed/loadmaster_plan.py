"""Written by Loadmaster for plans/golden; do not edit: export again.

Mark the end of each of the plan's layers with alpa.mark_pipeline_boundary(), and train with

    @alpa.parallelize(method=loadmaster_plan.method())

on batches of 64 samples: 8 micro-batches of 8. The plan's bytes are those of bf16 with fp32 gradients, which is your program's to
choose.
"""

import alpa


def method() -> alpa.PipeshardParallel:
    """The plan: meshes are (nodes, devices of each), their shares (replicas, shards)."""
    stages = alpa.ManualStageOption(
        forward_stage_layer_ids=[
            [0, 1, 2, 3, 4, 5],
            [6, 7, 8, 9, 10, 11, 12, 13, 14],
        ],
        submesh_physical_shapes=[
            (1, 4),
            (1, 4),
        ],
        submesh_logical_shapes=[
            (1, 4),
            (4, 1),
        ],
        submesh_autosharding_option_dicts=[
            {},
            {"force_batch_dim_to_mesh_dim": 0},
        ],
    )
    return alpa.PipeshardParallel(
        num_micro_batches=8,
        pipeline_schedule="1f1b",
        layer_option=alpa.ManualLayerOption(remat_layer=False),
        stage_option=stages,
    )
