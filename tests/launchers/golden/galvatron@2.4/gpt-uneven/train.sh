#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 2, 4, 5, 1. Put these files into galvatron/models/gpt_hf. Replace meta_configs/gpt-1.5b.json there by model.json:
# Galvatron identifies models by name. Add the options of data and optimizer:
# ./train.sh --train-iters 1000 …
set -euo pipefail

# Run it on every node. torchrun reads both variables.
: "${PET_NODE_RANK:?is not set: 0 on the first node, 1 on the last}"
: "${PET_MASTER_ADDR:?is not set: the name of the first node}"
export PET_NODE_RANK PET_MASTER_ADDR

MODEL=(
    --model_size=gpt-1.5b
)
PLAN=(
    --galvatron_config_path=./galvatron_config.json
    --mixed_precision=bf16
    --reduce_in_fp32
)

exec torchrun --nnodes=2 --nproc-per-node=8 train_dist.py "${MODEL[@]}" "${PLAN[@]}" "$@"
