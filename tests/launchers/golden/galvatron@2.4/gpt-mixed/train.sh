#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 5, 7. Put these files into galvatron/models/gpt_hf. Replace meta_configs/gpt-1.5b.json there by model.json:
# Galvatron identifies models by name. Add the options of data and optimizer:
# ./train.sh --train-iters 1000 …
set -euo pipefail

MODEL=(
    --model_size=gpt-1.5b
)
PLAN=(
    --galvatron_config_path=./galvatron_config.json
    --mixed_precision=bf16
    --reduce_in_fp32
)

exec torchrun --standalone --nproc-per-node=8 train_dist.py "${MODEL[@]}" "${PLAN[@]}" "$@"
