"""A training command without a framework: it allocates what it claims, and measures what it allocated.

For trying out the path from a worker's configuration to a plan, and for its test. Each rank is a process
of its own that holds byte arrays for the parameters, gradients, optimizer state and activations of its
layers, in the order in which a pipeline stage would, and reads its peak from tracemalloc: the *allocated*
ledger. A device's capacity is enforced. Sizes are made up (`layer_bytes`); everything else is real.
"""

import sys
import time
import tracemalloc
from multiprocessing import get_context

import loadmaster_run

KIB = 1 << 10


def layer_bytes(layer, micro_batch_size):
    """Made-up bytes of a layer: parameters, and activations of one micro-batch."""
    return (64 + 16 * (layer % 3)) * KIB, (8 + 4 * (layer % 2)) * KIB * micro_batch_size


class Device:
    """Allocates for a rank, within its capacity."""

    def __init__(self, run, rank):
        self.run, self.rank, self.phase = run, rank, "setup"

    def take(self, size, layer):
        held = tracemalloc.get_traced_memory()[0]
        if held + size > self.rank.capacity_bytes:
            self.run.out_of_memory(
                self.rank, phase=self.phase, layer=layer, asked_bytes=size, held_bytes=held
            )
            sys.exit(loadmaster_run.EXIT_OUT_OF_MEMORY)
        # A byte array of zeroes may not be there yet: write to it.
        return bytearray(b"\xa5" * KIB) * (size // KIB)


def train(device, layers, sizes, in_flight, micro_batches):
    """One iteration: as many micro-batches between forward and backward as the schedule allows."""
    gradients = []
    for _ in range(0, micro_batches, in_flight):
        device.phase = "forward"
        kept = [[device.take(sizes[layer][1], layer) for layer in layers] for _ in range(in_flight)]
        device.phase = "backward"
        for micro_batch in kept:
            if not gradients:
                gradients = [device.take(sizes[layer][0], layer) for layer in layers]
            for activation in reversed(micro_batch):
                activation[:1] = b"\x00"
            micro_batch.clear()
    device.phase = "step"


def work(number):
    """One rank, from its parameters to its report."""
    run = loadmaster_run.read()
    rank = run.rank(number)
    device = Device(run, rank)
    micro_batch_size = run.training["micro_batch_size"]
    layers = list(rank.stage.layers)
    sizes = {layer: layer_bytes(layer, micro_batch_size) for layer in layers}
    run.progress(rank, 0.0, "setup")
    tracemalloc.start()
    parameters = [device.take(sizes[layer][0], layer) for layer in layers]
    state = [device.take(sizes[layer][0], layer) for layer in layers]
    with run.measuring(rank):
        if hasattr(tracemalloc, "reset_peak"):  # Python 3.9; before it the peak covers the start as well
            tracemalloc.reset_peak()
        for iteration in range(run.iterations):
            train(device, layers, sizes, rank.stage.in_flight, run.training["micro_batches"])
            run.progress(rank, (iteration + 1) / run.iterations, "step")
    peak = tracemalloc.get_traced_memory()[1]
    static = sum(len(array) for array in parameters)
    run.report(
        rank,
        peak_bytes=peak,
        ledger="allocated",
        parameter_bytes=static,
        gradient_bytes=static,
        optimizer_bytes=sum(len(array) for array in state),
        framework="stand-in",
        framework_version="1",
    )


def main():
    run = loadmaster_run.read()
    context = get_context("fork")
    ranks = [context.Process(target=work, args=(rank.rank,)) for rank in run.ranks]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    # Out of memory is the answer of one rank; the others did what they could.
    codes = [rank.exitcode for rank in ranks]
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print("stand-in: %.3f s, exit code %d" % (time.monotonic() - started, code), file=sys.stderr)
    sys.exit(code)
