#!/bin/sh
# How rows.jsonl was made, by the planner of November 2026. Not to be made again: it is what somebody stored.
# Wants LOADMASTER_ADDRESS of a new planner with a worker `w` of `--cpu-slots 4x1GiB`, its database in PGHOST and
# PGDATABASE, and the programs in PATH.
set -x
cd "$(dirname "$0")" || exit
gpt2="--model gpt2 --blocks 2 --hidden-size 16 --heads 2 --sequence-length 8 --vocabulary-size 50"
# shellcheck disable=SC2086
loadmaster profile run --id tiny $gpt2 --micro-batch-size 2 --micro-batches 4 --devices 4 \
    --parallelism data,tensor --degrees 2
# shellcheck disable=SC2086
loadmaster profile run --id staged $gpt2 --micro-batch-size 2 --micro-batches 2 --devices 2 --campaign stages
loadmaster profile import ../../../deploy/profile/table.json --id table
loadmaster cluster import ../../../deploy/clusters/two-kinds.yaml --id two-kinds
loadmaster cluster import h200.yaml --id h200
loadmaster cluster measure
loadmaster cluster discover --id found

plan() { loadmaster plan recommend "$@" -o name; }
for objective in min-peak-memory min-iteration-time pareto min-devices max-batch; do
    plan --profile tiny --devices 4x1GiB --objective "$objective"
done
plan --profile tiny --cluster found --objective min-cost --price cpu=2 --correct
plan --profile table --cluster h200 --objective min-cost
plan --objective max-model --candidate-profiles tiny,staged --devices 4x1GiB
for shape in single-pipeline uniform-grid equal-devices per-stage-replicas per-stage-mesh; do
    plan --profile tiny --devices 4x1GiB --shape "$shape" --objective min-iteration-time
done
for launcher in megatron torchtitan deepspeed pipedream alpa torchgpipe; do
    plan --profile tiny --devices 2x1GiB --launcher "$launcher"
    plan --profile table --cluster h200 --launcher "$launcher" --objective min-iteration-time --allow-idle-devices
done
plan --profile staged --devices 2x1GiB --search-mode capture
plan --profile staged --devices 2x1GiB --search-mode mcap-brute-force
plan --profile staged --devices 2x1GiB --search-mode mcap-bayesian --search-seed 3
plan --profile tiny --devices 4x1GiB --search-mode amp --objective min-iteration-time --shape uniform-grid
plan --profile tiny --devices 4x1GiB --search-mode amp-annealing --objective min-iteration-time --shape uniform-grid
plan --profile tiny --devices 3x1GiB --merge-layers-to 3
plan --profile tiny --devices 3x1GiB,1x500MiB --memory-unit share --transfers blocking --margin 0.1
plan --profile tiny --devices 4x1GiB --pin 0@0 --cut-after 1 --max-stages 3 --recompute-per-stage \
    --recompute none,layer --allow-idle-devices
plan --profile tiny --devices 3x1GiB --partition 1-2-2
plan --profile table --cluster h200 --keep-together 1..2 --spanning anywhere --exclude h1/0 --allow-idle-devices

one=$(plan --profile tiny --devices 2x1GiB)
loadmaster plan validate "$one" --candidates 2
loadmaster plan report "$one" --iteration 0.5s --peak 2MiB,3MiB --ledger reserved --iterations 7 --source "job 7"
loadmaster plan report "$one" --peak 2MiB,3MiB --ledger allocated --iterations 1 --device-kind cpu
plan --profile tiny --devices 2x1GiB --correct

psql -Atq -f dump.sql > rows.jsonl
