#!/usr/bin/env bash
# Written by Loadmaster for plans/golden. Do not edit. Export the plan instead.
# Set data, optimizer and output yourself: ./train.sh --training.steps 1000 …
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

exec torchrun --standalone --nproc-per-node=8 -m torchtitan.train --job.config_file=plan.toml "$@"
