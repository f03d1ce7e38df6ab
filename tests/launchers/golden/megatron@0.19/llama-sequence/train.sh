#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Blocks of the stages: 3, 5. Set data, learning rate and output yourself: ./train.sh --train-iters 1000 …
set -euo pipefail

# Tensor shards need their kernels and collectives in order.
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL=(
    --num-layers 8
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
    --pipeline-model-parallel-layout "Ettt|tttttL"
    --tensor-model-parallel-size 2
    --sequence-parallel
    --micro-batch-size 2
    --global-batch-size 16
    --bf16
    --optimizer sgd
    --sgd-momentum 0.9
    --weight-decay 0.0
)

exec torchrun --standalone --nproc-per-node=4 pretrain_gpt.py "${MODEL[@]}" "${PLAN[@]}" "$@"
