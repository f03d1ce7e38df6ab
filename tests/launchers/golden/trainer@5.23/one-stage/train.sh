#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# One stage of 4 blocks. Set model, data, optimizer and output yourself: ./train.sh --output_dir out …
set -euo pipefail

PLAN=(
    --per_device_train_batch_size=2
    --gradient_accumulation_steps=8
    --bf16
)

exec torchrun --standalone --nproc-per-node=4 train.py "${PLAN[@]}" "$@"
