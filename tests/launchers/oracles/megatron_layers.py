"""What models of Megatron-Core hold, and its words for schedules and recomputation in ours."""

from collections.abc import Callable
from typing import Any

import torch

SCHEDULES = {
    "forward_backward_pipelining_without_interleaving": "1F1B",
    "forward_backward_pipelining_with_interleaving": "1F1B",
    "forward_backward_no_pipelining": "none",
}

# Granularity, method and number of layers.
RECOMPUTE = {(None, None, None): "none", ("full", "uniform", 1): "layer"}


def recomputed(granularity: str | None, method: str | None, layers: float | None) -> str:
    """What is computed again, in our words: several blocks at once where all of a stage are, or the first ones of every stage."""
    if (granularity, method) == ("full", "block"):
        return f"first {layers:g} blocks"
    several = (granularity, method) == ("full", "uniform") and layers is not None and layers > 1
    told = (granularity, method, layers)
    return f"{layers:g} blocks at once" if several else RECOMPUTE.get(told, str(told))


def rule(told: Any) -> list[Any]:
    """How weights are updated, with all but the step size."""
    if told.optimizer == "sgd":
        return ["sgd", told.sgd_momentum, told.weight_decay]
    return [told.optimizer, told.adam_beta1, told.adam_beta2, told.adam_eps, told.weight_decay]


def turns(schedule: str, told: Any) -> list[Any] | None:
    """How stages take turns: so many on each device, with groups of so many micro-batches, and when they send; none where each has one."""
    if schedule != "forward_backward_pipelining_with_interleaving":
        return None
    overlaps = told.overlap_p2p_comm and not told.batch_p2p_comm and not told.overlap_p2p_comm_warmup_flush
    sends = "overlapping" if overlaps else "otherwise"
    return [told.virtual_pipeline_model_parallel_size, told.microbatch_group_size_per_vp_stage, sends]


def transformer(told: Any, config: Any) -> list[Any]:
    """What neither layers nor parameters show: a sample's tokens, positions with the base of rotary ones, norms with their epsilon."""
    base = told.rotary_base if told.position_embedding_type == "rope" else 0
    norm = config.normalization, config.layernorm_epsilon
    return [told.seq_length, told.position_embedding_type, base, *norm]


def each(name: Callable[[torch.nn.Module], list[str]], chunks: list[torch.nn.Module]) -> list[Any]:
    """The layers of the only stage of a rank, or of each one that it has in turn."""
    return name(chunks[0]) if len(chunks) == 1 else [name(chunk) for chunk in chunks]


def gpt(model: torch.nn.Module) -> list[str]:
    """The names of the layers of a GPTModel."""
    blocks = [f"block{number}" for number in _numbers(model)]
    return _around(model, blocks, model.decoder.final_layernorm)


def hybrid(model: torch.nn.Module) -> list[str]:
    """The names of the layers of a HybridModel, where attention and perceptron of a block are layers of their own."""
    halves = [(number // 2, "perceptron" if number % 2 else "attention") for number in _numbers(model)]
    whole = {block for block, _ in halves if {(block, "attention"), (block, "perceptron")} <= set(halves)}
    blocks = [f"block{block}" if block in whole else f"block{block}.{half}" for block, half in halves]
    return _around(model, list(dict.fromkeys(blocks)), getattr(model.decoder, "final_norm", None))


def _numbers(model: torch.nn.Module) -> list[int]:
    return [layer.layer_number - 1 for layer in model.decoder.layers]


def _around(model: torch.nn.Module, blocks: list[str], norm: torch.nn.Module | None) -> list[str]:
    first = ["embedding"] if getattr(model, "embedding", None) is not None else []
    last = (["norm"] if norm is not None else []) + (["head"] if hasattr(model, "output_layer") else [])
    return first + blocks + last
