#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 2, 4, 5, 1. Set data, learning rate and output yourself: ./train.sh --train-iters 1000 …
set -euo pipefail

# Run it on every node. torchrun reads both variables.
: "${PET_NODE_RANK:?is not set: 0 on the first node, 1 on the last}"
: "${PET_MASTER_ADDR:?is not set: the name of the first node}"
export PET_NODE_RANK PET_MASTER_ADDR
# Tensor shards need their kernels and collectives in order.
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL=(
    --num-layers 12
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
    --pipeline-model-parallel-size 4
    --pipeline-model-parallel-layout "Ett|tttt|ttttt|tL"
    --tensor-model-parallel-size 2
    --use-distributed-optimizer
    --micro-batch-size 2
    --global-batch-size 32
    --bf16
    --optimizer adam
    --adam-beta1 0.9
    --adam-beta2 0.95
    --adam-eps 1e-8
    --weight-decay 0.1
)

exec torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py "${MODEL[@]}" "${PLAN[@]}" "$@"
