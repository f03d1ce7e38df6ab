"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

In train.py, with batches of 2 samples:

    accelerator = loadmaster_plan.accelerator()
"""

from typing import Any

from accelerate import Accelerator


def accelerator(**settings: Any) -> Accelerator:
    """The plan; `settings` are the accelerator's others."""
    return Accelerator(gradient_accumulation_steps=8, mixed_precision="bf16", **settings)
