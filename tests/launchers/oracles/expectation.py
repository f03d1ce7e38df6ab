"""What a case says that every rank must hold: arithmetic of its plain description, and no launcher's code.

Tensor shards are Megatron's: maps that shard their output or input split with their weights, norms and the biases
behind a sum over the shards are on every shard. A launcher that pads the vocabulary or replicates more than this
says so with `Padding`, so that its parameters are still compared to the last one.
"""

import dataclasses
import json
import pathlib
from typing import Any

RULE = ["sgd", 0.9, 0.0]
"""How plans update weights: with momentum, which is not what launchers do by themselves."""

SHARDED_RULE = ["adam", 0.9, 0.95, 1e-8, 0.1]
"""How they do where replicas divide optimizer states, which launchers do of Adam alone."""

CASES = pathlib.Path(__file__).resolve().parent.parent / "golden" / "cases"


@dataclasses.dataclass(frozen=True)
class Model:
    family: str
    blocks: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    tied: bool
    dropout: float
    positions: int = 0
    head_size: int = 0
    """The hidden size over the heads unless it is said."""
    key_value_heads: int = 0
    feed_forward: int = 0
    rotary_base: int = 0


@dataclasses.dataclass(frozen=True)
class Case:
    model: Model
    stages: list[int]
    """Blocks of each stage."""
    tensor: list[int]
    """Tensor degree of each stage."""
    data: list[int]
    """Data degree of each stage."""
    nodes: int
    devices_per_node: int
    micro_batch: int
    """Samples of a pass of one replica of the first stage."""
    micro_batches: int
    schedule: str
    precision: str
    """`fp32`; `bf16`, whose gradients are added up in fp32; or `bf16-gradients`, whose gradients are bf16, too."""
    recompute: str
    """`none`, `layer`, `stage`, `first 2 blocks` of every stage, or `2 blocks at once`."""
    sequence_parallel: bool = False
    """Tensor shards divide activations along the sequence."""
    sharding: str = "none"
    """What the replicas of a stage divide: `none`, or `optimizer` states."""
    virtual_stages: int = 1
    """How many stages each device has in turn."""

    @property
    def computes_in(self) -> str:
        """The format of parameters and activations."""
        return "fp32" if self.precision == "fp32" else "bf16"

    @property
    def gradients_in(self) -> str:
        """The format that gradients are added up in."""
        return "fp32" if self.precision == "bf16" else "as parameters"

    @property
    def zero_stage(self) -> int:
        """The stage of ZeRO."""
        return {"none": 0, "optimizer": 1}[self.sharding]

    @property
    def rule(self) -> list[Any]:
        """How weights are updated."""
        return RULE if self.sharding == "none" else SHARDED_RULE

    @property
    def positions(self) -> int:
        """Places along the pipeline: a stage k is on the devices of place k modulo these."""
        return len(self.stages) // self.virtual_stages

    @property
    def world(self) -> int:
        return sum(self.tensor[at] * self.data[at] for at in range(self.positions))

    @property
    def turns(self) -> list[Any] | None:
        """How stages take turns: so many on each device, with groups of so many micro-batches, sending while they compute."""
        return [self.virtual_stages, self.positions, "overlapping"] if self.virtual_stages > 1 else None

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.micro_batches * self.data[0]


def load(name: str) -> Case:
    return of(json.loads((CASES / f"{name}.json").read_text()))


def of(described: dict[str, Any]) -> Case:
    """The case that JSON describes: degrees are lists, or one number that holds for every stage."""
    described = described | {"model": Model(**described["model"])}
    for degree in ("tensor", "data"):
        if isinstance(described[degree], int):
            described[degree] = [described[degree]] * len(described["stages"])
    return Case(**described)


@dataclasses.dataclass(frozen=True)
class Padding:
    """How a launcher's model differs from the described one."""

    vocabulary_multiple: int = 1
    """It pads the vocabulary to a multiple of this times the tensor degree."""
    extra: dict[str, int] = dataclasses.field(default_factory=dict)
    """Parameters that a layer of this kind (embedding, block, norm, head) has besides, on every shard."""


def transformer(model: Model) -> list[Any]:
    """A sample's tokens, positions with the base of rotary ones, norms with their epsilon."""
    if model.family == "gpt2":
        return [model.sequence, "learned_absolute", 0, "LayerNorm", 1e-5]
    return [model.sequence, "rope", model.rotary_base, "RMSNorm", 1e-5 if model.family == "llama" else 1e-6]


def layer_names(model: Model) -> list[str]:
    return ["embedding", *(f"block{index}" for index in range(model.blocks)), "norm", "head"]


def layers_of(case: Case, stage: int) -> list[str]:
    names = layer_names(case.model)
    first = 1 + sum(case.stages[:stage])
    layers = names[first : first + case.stages[stage]]
    if stage == 0:
        layers = names[:1] + layers
    if stage == len(case.stages) - 1:
        layers = layers + names[-2:]
    return layers


def parameters_of(model: Model, layer: str, shards: int, padding: Padding) -> int:
    """Parameters of a layer on one of `shards` tensor shards."""
    h, kind = model.hidden, layer.rstrip("0123456789")
    multiple = padding.vocabulary_multiple * shards
    table = -(-model.vocabulary // multiple) * multiple * h // shards
    if model.family == "gpt2":
        parts = {
            "embedding": table + model.positions * h,
            "block": 2 * (2 * h)  # norms
            + _affine(h, 3 * h, shards)
            + _map(h, h, shards)
            + h
            + _affine(h, 4 * h, shards)
            + _map(4 * h, h, shards)
            + h,
            "norm": 2 * h,
            "head": table,
        }
    else:
        size = model.head_size or h // model.heads
        queries = size * model.heads
        all_three = queries + 2 * size * model.key_value_heads
        parts = {
            "embedding": table,
            "block": 2 * h  # norms
            + (_affine if model.family == "qwen2" else _map)(h, all_three, shards)
            + (2 * size if model.family == "qwen3" else 0)  # norms of a head of queries and of keys
            + _map(queries, h, shards)
            + 3 * _map(h, model.feed_forward, shards),
            "norm": h,
            "head": table,
        }
    return parts[kind] + padding.extra.get(kind, 0)


def _map(inputs: int, outputs: int, shards: int) -> int:
    return inputs * outputs // shards


def _affine(inputs: int, outputs: int, shards: int) -> int:
    """A map that is cut along its outputs, with their biases."""
    return (inputs + 1) * outputs // shards


def ranks(case: Case, padding: Padding) -> list[dict[str, Any]]:
    """Every rank in order, with its place in the grid, its layers and its parameters.

    Ranks count along the shards first, then the replicas, then the places along the pipeline. Layers are those of the only stage of a
    rank, or of each one that it has in turn.
    """
    expected: list[dict[str, Any]] = []
    for place in range(case.positions):
        tensor, data = case.tensor[place], case.data[place]
        stages = [layers_of(case, stage) for stage in range(place, len(case.stages), case.positions)]
        layers = [layer for stage in stages for layer in stage]
        parameters = sum(parameters_of(case.model, layer, tensor, padding) for layer in layers)
        # A head that shares the embedding's table has none of its own where the table is.
        if case.model.tied and "embedding" in layers and "head" in layers:
            parameters -= parameters_of(case.model, "head", tensor, padding)
        held = stages if case.virtual_stages > 1 else layers
        for replica in range(data):
            for shard in range(tensor):
                rank = {"rank": len(expected), "stage": place, "replica": replica, "shard": shard}
                expected.append({**rank, "layers": held, "parameters": parameters})
    return expected
