#!/usr/bin/env bash
# Installs the launchers that the tests ask what they make of an exported plan: one environment with
# all of them, once per user, in ${XDG_CACHE_HOME:-~/.cache}/loadmaster/launchers-HASH (6.5 GB; HASH
# is of this script and its pins, so a change of either makes a new environment).
#
#   tests/launchers/install.sh            install what is missing (some minutes the first time)
#   tests/launchers/install.sh --path     print where the environment is, and change nothing
#
# It can be interrupted at any time: the next run goes on at the step where it stopped.
# PYTHON=/path/to/python3.12 names the interpreter where python3.12 is not on the PATH.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/pins.txt # every version that pip resolved once, so that it resolves the same again
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where the launchers are kept}/.cache}/loadmaster
store=$cache/launchers-$(cat "$here/install.sh" "$pins" | sha256sum | cut -c1-16)

say() { printf 'launchers: %s\n' "$*"; }
die() {
    printf 'launchers: error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf 'launchers:   %s\n' "$line" >&2; done
    exit 1
}

case ${1:-} in
--path) printf '%s\n' "$store" && exit ;;
'') ;;
*) die "there is no option '$1'" "usage: install.sh [--path]" ;;
esac
if [[ -e $store/complete ]]; then exit 0; fi

# Megatron-Core needs Python 3.12; a newer one has no wheels of some of the older launchers.
find_python() {
    local found candidates=("${PYTHON:-}")
    [[ -n ${PYTHON:-} ]] || candidates=(python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python3.12)
    for found in "${candidates[@]}"; do
        [[ $("$found" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null) == 3.12 ]] || continue
        "$found" -c 'import ensurepip, sysconfig; open(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
            die "$found lacks venv or its C headers, which some launchers are built with" \
                "Install them (Debian: python3.12-venv python3.12-dev), or name another: PYTHON=/path"
        python=$found && return
    done
    die "the launchers need Python 3.12, and ${PYTHON:-python3.12} is not one" \
        "Install it (pyenv install 3.12, or your system's python3.12), or name it: PYTHON=/path/to/python3.12"
}

check_machine() {
    local free
    [[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
        die "the launchers are installed on x86_64 Linux only, and this is $(uname -s) on $(uname -m)"
    command -v c++ >/dev/null || die "a C++ compiler is needed to build parts of DeepSpeed and Hetu-Galvatron" \
        "Install it: deploy/setup/packages.sh build"
    free=$(($(df --output=avail -k "$cache" | tail -n 1) / 1024))
    ((free > 9000)) ||
        die "$cache has $free MB free, and the launchers need 9000 MB for a moment (6500 MB to stay)" \
            "Free some space (older environments: $cache/launchers-*), or put it elsewhere: XDG_CACHE_HOME=/path"
}

# step NAME COMMAND…: runs what was not finished before. What pip says is kept, and shown if it failed.
step() {
    local name=$1 began=$SECONDS log=$store/steps/$1.log
    shift
    [[ ! -e $store/steps/$name.done ]] || return 0
    say "$name …"
    # Nobody waits for an installation as for a test: leave the cores to others. The folder for
    # downloads and the missing cache keep the wheels off /tmp and off the disk.
    env -u PYTHONPATH TMPDIR="$store/tmp" PIP_REQUIRE_VIRTUALENV=0 PATH="$store/bin:$PATH" \
        TORCH_EXTENSIONS_DIR="$store/extensions" nice -n 10 "$@" >"$log" 2>&1 </dev/null || {
        tail -n 20 "$log" >&2
        die "could not install $name" \
            "What is finished is kept: run it again once the cause is gone ($log says all)."
    }
    touch "$store/steps/$name.done"
    say "$name took $((SECONDS - began)) s"
}
pip_install() {
    local name=$1
    shift
    step "$name" "$store/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --progress-bar off \
        --no-input --retries 5 --timeout 60 "$@"
}
pip() { pip_install "$@" --constraint "$pins"; }
# Into a folder of its own, for it needs other versions of what is installed already.
pip_aside() { pip_install "$1" --no-deps --target "$store/$1" "${@:2}"; }

find_python
mkdir -p "$cache"
check_machine
exec 9>"$cache/.launchers-lock"
flock --nonblock 9 || {
    say "another installation of this user is at work; waiting for it …"
    flock 9
}
if [[ -e $store/complete ]]; then exit 0; fi
mkdir -p "$store/steps" "$store/tmp"
say "installing into $store (6.5 GB, once per user)"

step venv "$python" -m venv "$store"
# torch imports only with the libraries of NVIDIA beside it: most of the space is theirs.
pip torch torch==2.15.0 setuptools wheel
pip torchtitan-0.3 torchtitan==0.3.0
# Without dependencies: what these ask for besides are CUDA builds, or versions that exclude each other.
pip megatron-accelerate-torchgpipe --no-deps megatron-core==0.19.2 accelerate==1.15.0 torchgpipe==0.0.7 \
    regex pybind11
pip deepspeed-colossalai-galvatron --no-deps --no-build-isolation \
    deepspeed==0.19.8 colossalai==0.5.0 hetu-galvatron==2.4.0
pip what-they-import scipy h5py sentencepiece six attrs yacs hjson ninja msgpack psutil py-cpuinfo pydantic tqdm \
    einops transformers==5.23.0 omegaconf
# No launcher of ours: what the Python package's wrapper is tested with. Without its second name, pytorch-lightning.
pip lightning --no-deps lightning==2.6.6 lightning-utilities torchmetrics
pip_aside torchtitan-0.2 torchtitan==0.2.2
pip_aside colossalai-imports \
    transformers==4.51.3 tokenizers==0.21.4 huggingface_hub==0.36.0 peft==0.13.2 galore_torch==1.0 \
    bitsandbytes==0.48.2 rich==14.2.0 click==8.3.1 fabric==3.2.2 contexttimer==0.3.3 markdown-it-py==4.0.0 \
    mdurl==0.1.2 pygments==2.19.2 invoke==2.2.1 paramiko==4.0.0 decorator==5.2.1
# DeepSpeed compiles a helper when it is first asked for: now, rather than in the first test.
step deepspeed-helper env DS_ACCELERATOR=cpu "$store/bin/python" -c \
    'from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as B; B().load()'

rm -rf "$store/tmp"
touch "$store/complete"
say "ready in $store"
