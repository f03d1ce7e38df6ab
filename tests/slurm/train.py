"""A user's program: trains the stage of this rank on a CPU, cut as the plan says, and tells the planner how long an iteration took.

The model is that of the launchers' tests. Its losses have to be those of the uncut model, or the job fails.
"""

import functools
import os

import loadmaster.torch
import torch

import loadmaster_pipeline  # written by `loadmaster plan export`
import models
from expectation import Model

#: As `make demo-slurm` profiles it.
MODEL = Model(family="gpt2", blocks=4, hidden=64, heads=4, sequence=32, positions=32, vocabulary=500, tied=False, dropout=0.0)
ITERATIONS = 20


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    layers = list(models.whole(MODEL))
    mesh = loadmaster_pipeline.mesh("cpu")
    makers = [functools.partial(layers.__getitem__, index) for index in range(len(layers))]
    schedule = loadmaster_pipeline.schedule(makers, mesh, torch.device("cpu"), models.loss)
    stage, plan = schedule._stage, loadmaster_pipeline.PLAN
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=models.STEP)
    samples = plan["micro_batch_size"] * plan["micro_batches"]
    losses: list[float] = []
    with loadmaster.torch.observe(os.environ["LOADMASTER_PLAN"]) as observed:
        for iteration in range(ITERATIONS):
            tokens, labels = models.batch(MODEL, samples, iteration)
            optimizer.zero_grad()
            parts: list[torch.Tensor] = []
            if stage.is_first:
                schedule.step(tokens)
            elif stage.is_last:
                schedule.step(target=labels, losses=parts)
                losses.append(torch.stack(parts).mean().item())
            else:
                schedule.step()
            optimizer.step()
            observed.step()
    parameters = sum(parameter.numel() for parameter in stage.submod.parameters())
    print(f"rank {rank} on {os.environ['SLURMD_NODENAME']} trained {parameters} parameters", flush=True)
    if rank == 0:
        print(f"reported as {observed.reported}", flush=True)
    if losses:
        models.ITERATIONS = ITERATIONS
        uncut = models.train(MODEL, samples)
        if not models.agree(losses, uncut):
            raise SystemExit(f"the losses are {losses}, and those of the uncut model {uncut}")
        print(f"losses from {losses[0]:.4f} to {losses[-1]:.4f}, as those of the uncut model", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
