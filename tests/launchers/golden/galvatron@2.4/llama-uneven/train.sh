#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 3, 5. Put these files into galvatron/models/llama_hf, and model.json into its meta_configs in place of
# llama-7b.json: Galvatron identifies models by name. Data and optimizer are yours:
# ./train.sh --train-iters 1000 …
set -euo pipefail

MODEL=(
    --model_size=llama-7b
)
PLAN=(
    --galvatron_config_path=./galvatron_config.json
    --mixed_precision=bf16
    --reduce_in_fp32
)

exec torchrun --standalone --nproc-per-node=4 train_dist.py "${MODEL[@]}" "${PLAN[@]}" "$@"
