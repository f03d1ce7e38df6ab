"""Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.

The model of the plan, registered under the name that plan.toml contains.
"""

import dataclasses

from torchtitan.config import JobConfig  # plan.toml names this module as one that extends it
from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec
from torchtitan.models.llama3.model.args import RoPEScalingArgs
from torchtitan.protocols.train_spec import register_train_spec

__all__ = ["JobConfig"]

MODEL = TransformerModelArgs(
    dim=64,
    n_layers=8,
    n_heads=4,
    n_kv_heads=2,
    multiple_of=176,  # the width of the MLP is 8/3 of dim, rounded up to a multiple of this
    vocab_size=1000,
    norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling_args=RoPEScalingArgs(scaling_factor=1.0),  # none: factor 1 leaves the frequencies as they are
)

register_train_spec("loadmaster", dataclasses.replace(get_train_spec(), model_args={"plan": MODEL}))
