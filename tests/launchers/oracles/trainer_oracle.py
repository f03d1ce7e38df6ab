"""Trainer of transformers 5: its own arguments on every rank, which have no pipeline and no shards of ours."""

from typing import Any

from transformers import HfArgumentParser, TrainingArguments

import expectation
import serving
from expectation import Model
from serving import Rank, Request

# There is no GPU here, and bf16 is refused without one unless the CPU is asked for.
CPU_FLAGS = ["--use_cpu"]


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    model = Model(**request.model)
    return serving.each_rank(lambda rank: build(launch.arguments, model, rank), request.world, launch.local_world)


def build(arguments: list[str], model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*arguments, *CPU_FLAGS])
    return Rank(rank, 0, args.process_index, 0, expectation.layer_names(model), None), {
        "micro_batch": args.per_device_train_batch_size,
        "micro_batches": args.gradient_accumulation_steps,
        "global_batch": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "recompute": "layer" if args.gradient_checkpointing else "none",
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }


if __name__ == "__main__":
    serving.serve(answer)
