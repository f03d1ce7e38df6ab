"""Colossal-AI 0.5: its plugin on every rank, with its own grid and cut. It builds no model here."""

import importlib
from typing import Any

import colossalai.booster.plugin  # noqa: F401  exports import it; once is enough
from colossalai.pipeline.schedule import OneForwardOneBackwardSchedule
from colossalai.pipeline.stage_manager import PipelineStageManager

import expectation
import serving
from expectation import Model
from serving import Rank, Request


def answer(request: Request) -> serving.Answer:
    launch = serving.torchrun(request)
    model = Model(**request.model)
    return serving.each_rank(lambda rank: build(model, rank), request.world, launch.local_world)


def build(model: Model, rank: int) -> tuple[Rank, dict[str, Any]]:
    plugin = importlib.import_module("loadmaster_plan").plugin()
    place = {axis: int(plugin.pg_mesh.coordinate(getattr(plugin, f"{axis}_axis"))) for axis in ("pp", "dp", "tp")}
    manager = plugin.stage_manager
    blocks = manager.distribute_layers(model.blocks) if manager else [model.blocks]
    start, end = PipelineStageManager.get_stage_index(manager, blocks) if manager else (0, model.blocks)
    names = expectation.layer_names(model)
    # The embedding is on its first stage, norm and head are on its last.
    layers = names[1 + start : 1 + end]
    if not manager or manager.is_first_stage():
        layers = names[:1] + layers
    if not manager or manager.is_last_stage():
        layers = layers + names[-2:]
    built = Rank(rank, place["pp"], place["dp"], place["tp"], layers, None)
    facts: dict[str, Any] = {
        "schedule": "none" if not manager else order(plugin.scheduler),
        "recompute": recompute(plugin, blocks),
        "precision": plugin.precision,
    }
    if manager:
        facts["micro_batches"] = plugin.scheduler.num_microbatches
    return built, facts


def order(schedule: Any) -> str:
    return "1F1B" if type(schedule) is OneForwardOneBackwardSchedule else type(schedule).__name__


def recompute(plugin: Any, blocks: list[int]) -> str:
    config = plugin.shard_config.gradient_checkpoint_config
    if config is None:
        return "none"
    counts = [config.get_num_ckpt_layers(stage, len(blocks), layers) for stage, layers in enumerate(blocks)]
    if counts == blocks:
        return "layer"
    most = max(counts)
    alike = counts == [min(most, own) for own in blocks]
    return f"first {most} blocks" if alike else f"{counts} of {blocks}"


if __name__ == "__main__":
    serving.serve(answer)
