"""Hetu-Galvatron 2.4: its flags (with those of its Megatron-LM), its strategy file, its checks, its reading of the model,
and the rank groups of every layer."""

import importlib
import importlib.util
import json
import pathlib
import sys
import types
from argparse import Namespace
from typing import Any


# The package imports apex and flash-attention, CUDA builds. What reads strategies and makes groups needs neither:
# empty parents let its own files be imported as they are.
ROOT = importlib.util.find_spec("galvatron").submodule_search_locations[0]
MODELS = {"gpt2": "gpt_hf", "llama": "llama_hf"}
PARENTS = {name: name.removeprefix("galvatron").replace(".", "/") for name in ("galvatron.core", "galvatron.core.runtime")}
PARENTS |= {f"galvatron.models.{name}": f"/models/{name}" for name in MODELS.values()}
# Its own Megatron-LM, of which only the flags are read.
PARENTS |= {
    name: "/site_package/" + name.replace(".", "/")
    for name in ("megatron", "megatron.core", "megatron.core.models", "megatron.core.models.retro", "megatron.training")
}
PARENTS["megatron.core.transformer"] = "/site_package/megatron/core/transformer"
for name, folder in PARENTS.items():
    parent = types.ModuleType(name)
    parent.__path__ = [ROOT + folder]
    sys.modules[name] = parent
# The class whose fields become flags of YAML files alone.
sys.modules["megatron.core.transformer"].TransformerConfig = None
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
from megatron.training.arguments import parse_args  # noqa: E402

import expectation  # noqa: E402
import serving  # noqa: E402
from expectation import Model  # noqa: E402
from serving import Rank, Refused, Request  # noqa: E402

SCHEDULES = {"pipedream_flush": "1F1B", "gpipe": "GPipe"}


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    model = Model(**request.model)
    own = importlib.import_module(f"galvatron.models.{MODELS[model.family]}.arguments")
    sys.argv = [launch.script, *launch.arguments]
    args = parse_args([galvatron_training_args, own.model_args])
    if args.galvatron_config_path is None:
        raise Refused("the flags name no strategy: Galvatron would train with its defaults")
    if not (model.family == "llama" and model.tied):  # which its Llama cannot be: the user's own
        check_model(args, model)
    return serving.each_rank(lambda rank: build(args, model, rank), request.world, launch.local_world)


def check_model(args: Namespace, model: Model) -> None:
    """What its model's own configuration makes of the description that stands in for one of its sizes."""
    meta = importlib.import_module(f"galvatron.models.{MODELS[model.family]}.meta_configs.config_utils")
    if args.model_size not in meta.path_dict:
        raise Refused(f"--model_size {args.model_size} is none of {', '.join(meta.path_dict)}")
    config = meta.config_from_meta(json.loads(pathlib.Path("model.json").read_text()))
    meta.set_model_config(config, args)
    said = {
        "blocks": args.num_layers,
        "hidden": args.hidden_size,
        "heads": args.num_attention_heads,
        "sequence": args.seq_length,
        "vocabulary": args.vocab_size,
        "dropout": (args.hidden_dropout, args.attention_dropout),
        "perceptron": args.ffn_hidden_size,
        "key_value_heads": args.num_query_groups if args.group_query_attention else args.num_attention_heads,
        "tied": model.family == "gpt2" and not args.untie_embeddings_and_output_weights,
    }
    wanted = {name: getattr(model, name) for name in ("blocks", "hidden", "heads", "sequence", "vocabulary", "tied")} | {
        "dropout": (model.dropout, model.dropout),
        "perceptron": model.feed_forward or 4 * model.hidden,
        "key_value_heads": model.key_value_heads or model.heads,
    }
    for name, value in wanted.items():
        if said[name] != value:
            raise Refused(f"{name} of the model is {said[name]}, not {value}")


def build(args: Namespace, model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
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
    # Flags of the blocks of each stage.
    stages: dict[int, list[int]] = {}
    for layer, flag in enumerate(strategy["checkpoint_flags_enc"], start=1):
        stages.setdefault(whole["pp_ranks_whole"][layer], []).append(flag)
    return built, {
        # One stage is passed through by a function of its own.
        "schedule": SCHEDULES[args.pipeline_type] if args.pp_deg > 1 else "none",
        "micro_batches": args.chunks,
        "global_batch": args.global_train_batch_size,
        "recompute": recomputed(list(stages.values())),
        "precision": args.mixed_precision,
        "gradients": "fp32" if args.reduce_in_fp32 else "as parameters",
    }


def recomputed(stages: list[list[int]]) -> str:
    """What is computed again, from a flag for each block of each stage."""
    most = max(sum(flags) for flags in stages)
    if most == 0:
        return "none"
    if all(all(flags) for flags in stages):
        return "layer"
    alike = all(flags == [int(index < most) for index in range(len(flags))] for flags in stages)
    return f"first {most} blocks" if alike else "some layers"


if __name__ == "__main__":
    serving.serve(answer)
