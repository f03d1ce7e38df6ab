"""Damaged exports: a text that is replaced wherever it stands, and what must then be said."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Damage:
    """A damage of a golden export."""

    old: str
    new: str
    says: str
    """Part of the launcher's refusal, or of the first difference from what its case says."""


DAMAGES: dict[str, list[Damage]] = {
    "megatron@0.19/gpt-uneven": [
        Damage("--pipeline-model-parallel-layout", "--pipeline-parallel-layout", "unrecognized arguments"),
        Damage("Ett|tttt|ttttt|tL", "Ettt|ttt|ttttt|tL", "layers is ['embedding', 'block0', 'block1', 'block2']"),
        Damage("Ett|tttt|ttttt|tL", "Ett|tttt|ttttt|L", "Number of decoder layers 11must match num_layers 12"),
        Damage("--tensor-model-parallel-size", "--expert-tensor-parallel-size", "parameters is"),
        Damage("--hidden-size", "--kv-channels", "hidden"),
        Damage("--global-batch-size", "--seed", "micro_batches is 1, not 8"),
        Damage("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"),
        Damage("--nproc-per-node=8", "--nproc-per-node=4", "8 ranks"),
    ],
    "megatron@0.19/gpt-even-recompute": [
        Damage("--recompute-num-layers", "--recompute-layers", "unrecognized arguments"),
        Damage("--recompute-method", "--recompute-modules", "recompute"),
    ],
    "megatron@0.19/llama-uneven": [
        Damage("--swiglu", "--squared-relu", "parameters is"),
        Damage("--untie-embeddings-and-output-weights", "--use-rotary-position-embeddings", "tied is True"),
    ],
    "megatron@0.19/gpt-uneven+hybrid": [
        Damage("*-*-|*-*-*-*-|", "*-*-*-|*-*-*-|", "layers is ['embedding', 'block0', 'block1', 'block2']"),
        Damage("*-*-|*-*-*-*-|", "*-*-*|-*-*-*-|", "block2.attention"),
        Damage("*-*-|*-*-*-*-|", "*-*-*-*-*-*-|", "evenly divisible"),
    ],
}
