"""Pins what loadmaster_run.py reads and writes, with a torch that is made up: run by the worker's tests."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest

import loadmaster_run


def run_data(results, ledger="reserved"):
    device = {"id": "gpu0", "backend": "cuda", "kind": "NVIDIA H200", "cuda_index": 0, "capacity_bytes": 1000}
    return {
        "format": "loadmaster.run/1",
        "run": "runs/one",
        "results": results,
        "ledger": ledger,
        "deadline_seconds": 60.0,
        "iterations": 4,
        "warm_up_iterations": 1,
        "training": {"micro_batch_size": 2},
        "model": {},
        "solo": False,
        "stage_count": 1,
        "stages": [
            {"stage_index": 0, "first_layer": 2, "last_layer": 4, "data_degree": 2, "tensor_degree": 1,
             "recompute": "none", "in_flight": 1, "ranks": [0, 1]}
        ],
        "ranks": [
            {"rank": 0, "stage_index": 0, "shard": 0, "device": device},
            {"rank": 1, "stage_index": 0, "shard": 1, "device": dict(device, id="cpu0", cuda_index=None)},
        ],
        "a key of a later release": 1,
    }


def fake_torch(peaks):
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        synchronize=lambda index: None,
        reset_peak_memory_stats=lambda index: None,
        max_memory_allocated=lambda index: peaks["allocated"],
        max_memory_reserved=lambda index: peaks["reserved"],
        memory_allocated=lambda index: 300,
        memory_reserved=lambda index: 400,
    )
    torch = types.ModuleType("torch")
    torch.cuda, torch.__version__ = cuda, "2.11.0"
    torch.version = types.SimpleNamespace(cuda="13.0")
    return torch


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


class Helper(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        sys.modules.pop("torch", None)
        self.addCleanup(sys.modules.pop, "torch", None)

    def run_of(self, **changes):
        path = os.path.join(self.folder, "run.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(run_data(self.folder), **changes), file)
        return loadmaster_run.read(path)

    def written(self, rank):
        with open(os.path.join(self.folder, "rank-%d.json" % rank), encoding="utf-8") as file:
            return json.load(file)

    def test_a_run_is_read_and_ranks_know_their_stage(self):
        run = self.run_of()
        os.environ["RANK"] = "1"
        self.addCleanup(os.environ.pop, "RANK")
        rank = run.rank()
        self.assertEqual((rank.rank, rank.shard, list(rank.stage.layers)), (1, 1, [2, 3, 4]))
        with self.assertRaisesRegex(loadmaster_run.RunError, "rank 2"):
            run.rank(2)
        with self.assertRaisesRegex(loadmaster_run.RunError, "loadmaster.run/9"):
            self.run_of(format="loadmaster.run/9")

    def test_torchs_peak_is_read_in_the_ledger_of_the_configuration(self):
        sys.modules["torch"] = fake_torch({"allocated": 100, "reserved": 200})
        for ledger, peak in (("reserved", 200), ("allocated", 100)):
            run = self.run_of(ledger=ledger)
            rank = run.rank(0)
            with run.measuring(rank):
                pass
            run.report(rank, parameter_bytes=7, losses=[1.5, float("nan")])
            report = self.written(0)
            self.assertEqual((report["peak_bytes"], report["ledger"]), (peak, ledger))
            self.assertEqual((report["peak_reserved_bytes"], report["cuda_version"]), (200, "13.0"))
            self.assertEqual((report["framework"], report["losses"]), ("torch", [1.5, None]))
            self.assertEqual(os.listdir(self.folder).count("rank-0.json.new"), 0)

    def test_out_of_memory_is_reported_with_the_bytes_that_torch_names(self):
        sys.modules["torch"] = fake_torch({"allocated": 100, "reserved": 200})
        run = self.run_of()
        rank = run.rank(0)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run.progress(rank, 0.5, "backward")
        self.assertEqual(out.getvalue(), "loadmaster: progress 0.5000 backward\n")
        with self.assertRaises(SystemExit) as end:
            with run.measuring(rank):
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has …")
        self.assertEqual(end.exception.code, 77)
        lack = self.written(0)["out_of_memory"]
        self.assertEqual((lack["asked_bytes"], lack["held_bytes"], lack["phase"]), (3 << 29, 400, "backward"))
        self.assertEqual(lack["allowed_bytes"], 1000)

    def test_out_of_memory_before_the_measured_iterations_is_reported_too(self):
        run = self.run_of()
        rank = run.rank(1)
        with self.assertRaises(SystemExit) as end:
            with run.fitting(rank):
                raise MemoryError
        self.assertEqual(end.exception.code, 77)
        self.assertEqual(self.written(1)["out_of_memory"]["phase"], "setup")

    def test_another_error_goes_on_and_a_missing_number_is_named(self):
        run = self.run_of()
        rank = run.rank(1)
        with self.assertRaisesRegex(ValueError, "mine"):
            with run.measuring(rank):
                raise ValueError("mine")
        with self.assertRaisesRegex(loadmaster_run.RunError, "peak_bytes is missing"):
            run.report(rank)
        with self.assertRaisesRegex(loadmaster_run.RunError, "iteration_seconds is missing"):
            run.report(rank, peak_bytes=5)
        with self.assertRaisesRegex(loadmaster_run.RunError, "ledger is 'total'"):
            run.report(rank, peak_bytes=5, iteration_seconds=0.5, ledger="total")
        with self.assertRaisesRegex(loadmaster_run.RunError, "phase is 'lunch'"):
            run.progress(rank, 0.5, "lunch")


if __name__ == "__main__":
    unittest.main()
