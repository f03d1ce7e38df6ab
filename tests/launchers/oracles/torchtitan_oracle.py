"""torchtitan 0.2 (TOML) and 0.3 (Python): its parser, and its own cut, shards and schedule in every rank."""

import math
import os
from typing import Any

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

# torchtitan takes a machine without accelerators for one with CUDA. Its meshes must be of devices that are here.
torch._utils._get_available_device_type = lambda: "cpu"

import torchtitan  # noqa: E402
import torchtitan.distributed.utils as distributed_utils  # noqa: E402
import torchtitan.models.llama3  # noqa: E402, F401  exports and the trainer import it; once is enough
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402

import serving  # noqa: E402
from serving import Rank, Refused, Request  # noqa: E402

TOML = torchtitan.__version__.startswith("0.2.")
if not TOML:
    import torchtitan.trainer  # noqa: F401

RECOMPUTES = {(True,): "layer", (False,): "none", (False, True): "some layers"}
NAMES = {"tok_embeddings": "embedding", "norm": "norm", "output": "head", "lm_head": "head"}


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    if launch.script != "torchtitan.train":
        raise Refused(f"torchtitan is started as torchtitan.train, not {launch.script}")
    os.environ.update(WORLD_SIZE=str(request.world), RANK="0", LOCAL_RANK="0")
    config = ConfigManager().parse_args(launch.arguments)
    return serving.each_rank(lambda rank: build(config, rank, request.world), request.world, launch.local_world)


def build(config: Any, rank: int, world: int) -> tuple[Rank, dict[str, Any]]:
    dims = grid(config.parallelism, world)
    schedule, parts = pipeline(config, dims)
    layers, recomputes = [], []
    for part in parts:
        layers += layers_of(part)
        recomputes += [isinstance(module, CheckpointWrapper) for module in part.layers.values()]
    built = Rank(
        rank=rank,
        stage=place(dims, "pp"),
        replica=place(dims, "dp_replicate") * dims.dp_shard + place(dims, "fsdp" if TOML else "dp_shard"),
        shard=place(dims, "tp"),
        layers=layers,
        parameters=sum(shard_size(parameter) for part in parts for parameter in part.parameters()),
    )
    return built, facts(config, schedule, recomputes)


def grid(parallel: Any, world: int) -> ParallelDims:
    if TOML:
        dims = ParallelDims(
            dp_replicate=parallel.data_parallel_replicate_degree,
            dp_shard=parallel.data_parallel_shard_degree,
            cp=parallel.context_parallel_degree,
            tp=parallel.tensor_parallel_degree,
            pp=parallel.pipeline_parallel_degree,
            ep=parallel.expert_parallel_degree,
            etp=parallel.expert_tensor_parallel_degree,
            world_size=world,
        )
    else:
        dims = ParallelDims.from_config(parallel, world)
        distributed_utils.set_spmd_backend(parallel.spmd_backend)
    dims.build_mesh()
    return dims


def pipeline(config: Any, dims: ParallelDims) -> tuple[Any, list[torch.nn.Module]]:
    """What torchtitan's trainer makes of the model: its parts of this rank, and the schedule that runs them."""
    if TOML:
        from torchtitan.protocols.train_spec import get_train_spec

        spec = get_train_spec(config.model.name)
        arguments = spec.model_args[config.model.flavor]
        arguments.update_from_config(config)
        with torch.device("meta"):
            model = spec.model_cls(arguments)
        if not dims.pp_enabled:
            return None, [spec.parallelize_fn(model, dims, config)]
        schedule, parts, _, _ = spec.pipelining_fn(
            model, dims, config, torch.device("meta"), arguments, spec.parallelize_fn, loss_fn=None
        )
        return schedule, parts
    spec = config.model_spec
    spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = spec.model.build()
    if not dims.pp_enabled:
        return None, [
            spec.parallelize_fn(
                model,
                parallel_dims=dims,
                training=config.training,
                parallelism=config.parallelism,
                compile_config=config.compile,
                ac_config=config.activation_checkpoint,
                dump_folder=config.dump_folder,
            )
        ]
    schedule, parts, _, _ = spec.pipelining_fn(
        model,
        parallel_dims=dims,
        training=config.training,
        parallelism=config.parallelism,
        compile_config=config.compile,
        ac_config=config.activation_checkpoint,
        dump_folder=config.dump_folder,
        device=torch.device("meta"),
        model_config=spec.model,
        parallelize_fn=spec.parallelize_fn,
        loss_fn=None,
    )
    return schedule, parts


def layers_of(part: torch.nn.Module) -> list[str]:
    """What a part of the model has left; torchtitan sets the rest to None, or removes it."""
    blocks = [f"block{name}" for name in part.layers]
    around = {NAMES[name] for name, module in part.named_children() if name in NAMES and module is not None}
    return (["embedding"] if "embedding" in around else []) + blocks + [n for n in ("norm", "head") if n in around]


def place(dims: ParallelDims, name: str) -> int:
    """This rank's coordinate along a dimension; dimensions of one rank have no mesh."""
    mesh = dims.get_optional_mesh(name)
    return mesh.get_local_rank() if mesh is not None else 0


def shard_size(parameter: torch.Tensor) -> int:
    """Numbers of this tensor shard, whether or not the replicas share them out among themselves."""
    if not isinstance(parameter, DTensor) or "tp" not in (parameter.device_mesh.mesh_dim_names or ()):
        return parameter.numel()
    axis = parameter.device_mesh.mesh_dim_names.index("tp")
    shape, _ = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh["tp"], [parameter.placements[axis]]
    )
    return math.prod(shape)


def facts(config: Any, schedule: Any, recomputes: list[bool]) -> dict[str, Any]:
    parallel, training = config.parallelism, config.training
    names = {schedules.Schedule1F1B: "1F1B", schedules.ScheduleGPipe: "GPipe"}
    chosen = type(schedule)
    replicas = parallel.data_parallel_replicate_degree * parallel.data_parallel_shard_degree
    steps = training.global_batch_size // (training.local_batch_size * replicas)
    # Without a pipeline a micro-batch is a local batch.
    piped = schedule is not None
    return {
        "schedule": names.get(chosen, chosen.__name__) if piped else "none",
        "micro_batch": parallel.pipeline_parallel_microbatch_size if piped else training.local_batch_size,
        "micro_batches": schedule._n_microbatches * steps if piped else steps,
        "global_batch": training.global_batch_size,
        "recompute": RECOMPUTES[tuple(sorted({*recomputes} or {asks_to_recompute(config)}))],
        "precision": {"bfloat16": "bf16", "float32": "fp32"}[computes(parallel, training)],
    }


def asks_to_recompute(config: Any) -> bool:
    """Of a stage without blocks, where nothing shows it."""
    asked = config.activation_checkpoint
    return asked is not None and (not TOML or asked.mode == "full")


def computes(parallel: Any, training: Any) -> str:
    """The format of the forward pass. 0.2 mixes precisions where it shards parameters, and with nothing beside replicas
    (`maybe_enable_amp` says so in its log)."""
    others = parallel.tensor_parallel_degree * parallel.pipeline_parallel_degree
    if TOML and parallel.data_parallel_shard_degree == 1 and others > 1:
        return training.dtype
    return training.mixed_precision_param


if __name__ == "__main__":
    serving.serve(answer)
