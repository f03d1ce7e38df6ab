#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 3, 5. Put these files into galvatron/models/llama_hf. Replace meta_configs/llama-7b.json there by model.json:
# Galvatron identifies models by name. Add the options of data and optimizer:
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
