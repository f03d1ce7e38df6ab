"""How a torch.distributed script answers a Loadmaster worker. Copy it and put your own model in.

In the worker's configuration (deploy/worker.toml)::

    [custom_profilers.example]
    argv = ["torchrun", "--standalone", "--nproc-per-node={ranks}", "/opt/loadmaster/command/example_torchrun.py"]
    accounting = "reserved"

One process per rank. The plan of the run is in `run.stages`; who this process is, in `rank`. The model here is
a stack of linear layers cut by torch.distributed point-to-point calls; a Megatron script would build its
own model from `run.training` and `run.stages` (pipeline sizes, tensor degree) and keep the rest as it is.
"""

import os

import torch
import torch.distributed as dist

import loadmaster_run

WIDTH = 1024


def main():
    run = loadmaster_run.read()
    rank = run.rank()
    # Shares of the run that this script cannot do must fail loudly, or the numbers would be of something else.
    if any(stage.devices > 1 for stage in run.stages):
        raise SystemExit("this example trains stages of one device; split yours by stage.data_degree and stage.tensor_degree")
    device = torch.device("cuda", rank.cuda_index)
    torch.cuda.set_device(device)
    # A slot may be a share of a GPU: keep to it, as Loadmaster's own ranks do.
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, rank.capacity_bytes / total), device)
    dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

    training = run.training
    batch, micro_batches = training["micro_batch_size"], training["micro_batches"]
    with run.fitting(rank):  # reports out of memory
        layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in rank.stage.layers)).to(device)
    optimizer = torch.optim.Adam(layers.parameters())
    # Solo runs ask for one stage alone: its neighbours' tensors are made up.
    first = run.solo or rank.rank == 0
    last = run.solo or rank.rank == len(run.ranks) - 1

    def iteration():
        optimizer.zero_grad(set_to_none=True)
        kept = []
        for _ in range(micro_batches):  # GPipe: all forward passes, then all backward passes
            x = torch.randn(batch, WIDTH, device=device)
            if not first:
                dist.recv(x, rank.rank - 1)
            x.requires_grad_(not (first and not run.solo))
            y = layers(x)
            if not last:
                dist.send(y.detach(), rank.rank + 1)
            kept.append((x, y))
        for x, y in kept:
            if last and not run.solo:
                y.square().mean().backward()
            else:
                gradient = torch.ones_like(y)
                if not last:
                    dist.recv(gradient, rank.rank + 1)
                y.backward(gradient)
            if not first:
                dist.send(x.grad, rank.rank - 1)
        optimizer.step()

    run.progress(rank, 0.0, "setup")
    with run.fitting(rank):
        for _ in range(run.warm_up_iterations):  # creates the optimizer's state
            iteration()
    with run.measuring(rank):  # resets and reads the allocator's peak, times, and reports out of memory
        for done in range(run.iterations):
            iteration()
            run.progress(rank, (done + 1) / run.iterations, "step")
    bytes_of = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)  # noqa: E731
    run.report(
        rank,
        parameter_bytes=bytes_of(layers.parameters()),
        gradient_bytes=bytes_of(p.grad for p in layers.parameters()),
        optimizer_bytes=bytes_of(
            t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)
        ),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
