#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# One stage of 4 blocks. Set model, data, optimizer and output yourself: ./train.sh --output_dir out …
set -euo pipefail

# Run it on every node. torchrun reads both variables.
: "${PET_NODE_RANK:?is not set: 0 on the first node, 1 on the last}"
: "${PET_MASTER_ADDR:?is not set: the name of the first node}"
export PET_NODE_RANK PET_MASTER_ADDR

PLAN=(
    --per_device_train_batch_size=2
    --gradient_accumulation_steps=8
    --bf16
)

exec torchrun --nnodes=2 --nproc-per-node=2 train.py "${PLAN[@]}" "$@"
