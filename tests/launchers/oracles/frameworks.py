"""The launchers that are asked: their oracles, how much these prove, and how their models differ from ours."""

import dataclasses
from collections.abc import Callable

from expectation import Case, Padding


def as_described(_: Case) -> Padding:
    return Padding()


def deepspeed_tie(case: Case) -> Padding:
    """A tied layer of DeepSpeed is on the last stage as a whole, with the positions beside the table."""
    tied = case.model.tied and len(case.stages) > 1
    return Padding(extra={"head": case.model.positions * case.model.hidden} if tied else {})


def accelerate_padding(case: Case) -> Padding:
    """Megatron's vocabulary, unless replicas are all there is: they have the program's own model."""
    is_plain = case.recompute == "none" and case.sharding == "none"
    is_replicated = len(case.stages) == 1 and case.tensor[0] == 1 and is_plain
    return Padding() if is_replicated else Padding(vocabulary_multiple=128)


def counted(case: Case) -> str:
    """The first blocks of every stage are all of them where no stage has more."""
    words = case.recompute.split()
    return "layer" if words[0] == "first" and int(words[1]) >= max(case.stages) else case.recompute


def blocks_at_once(case: Case) -> str:
    """Megatron says of a whole stage how many blocks it has: as many on every stage."""
    blocks = case.stages[0]
    if case.recompute != "stage":
        return counted(case)
    return f"{blocks} blocks at once" if blocks > 1 else "layer"


TRAINING = ("schedule", "micro_batch", "micro_batches", "global_batch", "recompute", "precision")


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One launcher. Its golden exports are in the folder of its name."""

    version: str
    """The version that is installed."""
    oracle: str
    """The oracle's file."""
    strength: str
    """PARSED: its parser took the export. BUILT: it built every rank from it. TRAINED: it trained with it."""
    padding: Callable[[Case], Padding] = as_described
    """How its model differs from the described one."""
    recompute: Callable[[Case], str] = counted
    """What it calls what is computed again."""
    facts: tuple[str, ...] = TRAINING
    """What it resolves by itself besides the ranks."""
    counts_parameters: bool = True
    """Whether it builds modules, so that their parameters can be counted."""
    folders: tuple[str, ...] = ()
    """Folders of the environment that come before the installed packages."""
    arguments: tuple[str, ...] = ()
    """Arguments of the oracle."""
    trains: tuple[str, ...] = ()
    """Cases that it also trains, with losses as of the uncut model."""


LAUNCHERS = {
    "megatron@0.19": Launcher(
        "0.19.2",
        "megatron_oracle.py",
        "BUILT",
        padding=lambda _: Padding(vocabulary_multiple=128),
        recompute=blocks_at_once,
        facts=(
            "turns",
            *TRAINING,
            "tied",
            "dropout",
            "transformer",
            "gradients",
            "zero_stage",
            "sequence_parallel",
            "optimizer",
        ),
    ),
    "torchtitan@0.3": Launcher("0.3.0", "torchtitan_oracle.py", "BUILT"),
    "torchtitan@0.2": Launcher("0.2.2", "torchtitan_oracle.py", "BUILT", folders=("torchtitan-0.2",)),
    "deepspeed@0.19": Launcher(
        "0.19.8",
        "deepspeed_oracle.py",
        "TRAINED",
        padding=deepspeed_tie,
        facts=(*TRAINING, "zero_stage", "hosts"),
        trains=("gpt-chain", "gpt-chain-recompute"),
    ),
    "torch-pipelining@2.15": Launcher(
        "2.15.0",
        "pipelining_oracle.py",
        "TRAINED",
        facts=("schedule", "micro_batch", "micro_batches", "recompute", "precision"),
        trains=("gpt-chain-untied", "gpt-chain-gpipe", "gpt-chain-replicas"),
    ),
    "galvatron@2.4": Launcher(
        "2.4.0",
        "galvatron_oracle.py",
        "PARSED",
        facts=("schedule", "micro_batches", "global_batch", "recompute", "precision", "gradients"),
        counts_parameters=False,
    ),
    "colossal-ai@0.5": Launcher(
        "0.5.0",
        "colossalai_oracle.py",
        "PARSED",
        facts=("schedule", "recompute", "precision"),
        counts_parameters=False,
        folders=("colossalai-imports",),
    ),
    "accelerate@1.15": Launcher(
        "1.15.0",
        "accelerate_oracle.py",
        "PARSED",
        padding=accelerate_padding,
        recompute=blocks_at_once,
        facts=("micro_batches", "recompute", "precision", "zero_stage", "sequence_parallel"),
    ),
    "torchgpipe@0.0": Launcher(
        "0.0.7",
        "torchgpipe_oracle.py",
        "TRAINED",
        facts=("schedule", "micro_batches", "recompute"),
        trains=("gpt-chain-gpipe",),
    ),
    "megatron-bridge@0.6": Launcher(
        "core 0.19",
        "bridge_oracle.py",
        "BUILT",
        padding=lambda _: Padding(vocabulary_multiple=128),
        recompute=blocks_at_once,
        facts=("turns", *TRAINING, "tied", "dropout", "transformer", "zero_stage", "sequence_parallel", "optimizer"),
    ),
    "trainer@5.23": Launcher(
        "5.23.0",
        "trainer_oracle.py",
        "PARSED",
        facts=("micro_batch", "micro_batches", "global_batch", "recompute", "precision"),
        counts_parameters=False,
    ),
}
