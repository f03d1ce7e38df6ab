#!/usr/bin/env bash
# Makes step.ptx of step.cu, which is kept: a build needs no compiler for GPUs. Needs clang 14 (Debian's clang-14).
# For every GPU since Volta and every driver of CUDA 11 or newer.
set -euo pipefail
cd "$(dirname "$0")"
clang-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -std=c++17 -O3 \
    -Wall -Wextra -Werror -Wno-unknown-cuda-version -ffp-contract=off \
    -Xclang -target-feature -Xclang +ptx70 -S -o step.ptx step.cu
# A test tells whether it is of the file as it is now.
echo "// Of step.cu, SHA-256 $(sha256sum step.cu | cut -d' ' -f1)" >>step.ptx
