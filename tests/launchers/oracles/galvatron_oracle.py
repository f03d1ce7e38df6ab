"""Hetu-Galvatron 2.4: its flags, its strategy file, its checks, and the rank groups of every layer."""

import argparse
import importlib.util
import sys
import types
from typing import Any


# The package imports apex and flash-attention, CUDA builds. What reads strategies and makes groups needs neither:
# empty parents let its own files be imported as they are.
ROOT = importlib.util.find_spec("galvatron").submodule_search_locations[0]
for name in ("galvatron.core", "galvatron.core.runtime"):
    parent = types.ModuleType(name)
    parent.__path__ = [ROOT + name.removeprefix("galvatron").replace(".", "/")]
    sys.modules[name] = parent
# The rank that prints.
sys.modules["galvatron.core"].get_args = lambda: types.SimpleNamespace(local_rank=1)

from galvatron.core.runtime.arguments import galvatron_training_args  # noqa: E402
from galvatron.core.runtime.comm_groups import gen_comm_groups  # noqa: E402
from galvatron.core.runtime.hybrid_parallel_config import (  # noqa: E402
    ModelInfo,
    check_hp_config,
    get_hybrid_parallel_configs_api,
    hp_config_whole_model,
)

import expectation  # noqa: E402
import serving  # noqa: E402
from expectation import Model  # noqa: E402
from serving import Rank, Refused, Request  # noqa: E402

SCHEDULES = {"pipedream_flush": "1F1B", "gpipe": "GPipe"}


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    args = galvatron_training_args(argparse.ArgumentParser()).parse_args(launch.arguments)
    if args.galvatron_config_path is None:
        raise Refused("the flags name no strategy: Galvatron would train with its defaults")
    model = Model(**request.model)
    return serving.each_rank(lambda rank: build(args, model, rank), request.world, launch.local_world)


def build(args: argparse.Namespace, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    args.local_rank = rank
    info = ModelInfo()
    info.set_layernums([model.blocks])
    strategy = get_hybrid_parallel_configs_api(None, args, lambda *_: info)
    # Its own count of the layers never fails (it asserts a tuple); this does.
    check_hp_config(strategy, [model.blocks])
    kinds = ["embed"] + ["gpt_dec"] * model.blocks + ["norm", "cls"]
    whole = hp_config_whole_model(
        kinds, strategy, embed_sdp=args.embed_sdp, vocab_tp=args.vocab_tp, vocab_sp=args.vocab_sp
    )
    pipeline, shards, _, replicas, *_ = gen_comm_groups(
        whole["tp_sizes_whole"], whole["sp_sizes_whole"], whole["pp_deg"], whole["tp_consec_whole"]
    )
    stage = pipeline.ranks.index(rank)
    own = [layer for layer, of in enumerate(whole["pp_ranks_whole"]) if of == stage]
    blocks = [layer for layer in own if kinds[layer] == "gpt_dec"]
    places = {(replicas[layer].ranks.index(rank), shards[layer].ranks.index(rank)) for layer in blocks}
    if len(places) != 1:
        raise Refused(f"the places of rank {rank} differ from layer to layer: {sorted(places)}")
    names = expectation.layer_names(model)
    ((replica, shard),) = places
    built = Rank(rank, stage, replica, shard, [names[layer] for layer in own], None)
    recomputes = set(strategy["checkpoint_flags_enc"])
    return built, {
        "schedule": SCHEDULES[args.pipeline_type],
        "micro_batches": args.chunks,
        "global_batch": args.global_train_batch_size,
        "recompute": {(0,): "none", (1,): "layer"}.get(tuple(recomputes), "some layers"),
        "precision": args.mixed_precision,
    }


if __name__ == "__main__":
    serving.serve(answer)
