#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages, 3 interleaved on each device: 2, 1, 3, 1, 2, 1. Set data, learning rate and output yourself: ./train.sh --train-iters 1000 …
set -euo pipefail

# Run it on every node. torchrun reads both variables.
: "${PET_NODE_RANK:?is not set: 0 on the first node, 1 on the last}"
: "${PET_MASTER_ADDR:?is not set: the name of the first node}"
export PET_NODE_RANK PET_MASTER_ADDR

MODEL=(
    --num-layers 10
    --hidden-size 64
    --ffn-hidden-size 176
    --num-attention-heads 4
    --group-query-attention
    --num-query-groups 2
    --seq-length 128
    --max-position-embeddings 128
    --position-embedding-type rope
    --rotary-base 10000
    --normalization RMSNorm
    --norm-epsilon 1e-5
    --swiglu
    --disable-bias-linear
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --untie-embeddings-and-output-weights
    --vocab-size 1000
)
PLAN=(
    --pipeline-model-parallel-size 2
    --pipeline-model-parallel-layout "Ett|t|ttt|t|tt|tL"
    --tensor-model-parallel-size 1
    --micro-batch-size 2
    --global-batch-size 16
    --bf16
    --recompute-granularity full
    --recompute-method block
    --recompute-num-layers 2
    --optimizer sgd
    --sgd-momentum 0.9
    --weight-decay 0.0
)

exec torchrun --nnodes=2 --nproc-per-node=2 pretrain_gpt.py "${MODEL[@]}" "${PLAN[@]}" "$@"
