#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages, 2 interleaved on each device: 2, 2, 2, 2. Set data, learning rate and output yourself: ./train.sh --train-iters 1000 …
set -euo pipefail

MODEL=(
    --hybrid-layer-pattern "*-*-|*-*-|*-*-|*-*-"
    --hidden-size 64
    --ffn-hidden-size 256
    --num-attention-heads 4
    --seq-length 128
    --max-position-embeddings 128
    --position-embedding-type learned_absolute
    --normalization LayerNorm
    --norm-epsilon 1e-5
    --attention-dropout 0.1
    --hidden-dropout 0.1
    --vocab-size 1000
)
PLAN=(
    --pipeline-model-parallel-size 2
    --tensor-model-parallel-size 1
    --micro-batch-size 2
    --global-batch-size 8
    --bf16
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 4
    --optimizer sgd
    --sgd-momentum 0.9
    --weight-decay 0.0
)

exec torchrun --standalone --nproc-per-node=2 pretrain_hybrid.py "${MODEL[@]}" "${PLAN[@]}" "$@"
