#!/usr/bin/env bash
# Makes `.libtorch` in the repository root point at a libtorch that the build and the ranks use.
#
# The files live once per user in ${XDG_CACHE_HOME:-~/.cache}/loadmaster, so a second clone downloads
# nothing. Once `.libtorch` is good it is kept; `rm .libtorch` makes the next run choose again.
# LOADMASTER_LIBTORCH=/path uses your own libtorch of the same version (with CUDA, say) instead.
set -euo pipefail

version=2.11.0 # the one that tch 0.24 binds
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
link=$(cd "$here/../.." && pwd)/.libtorch
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where downloads are kept}/.cache}/loadmaster
store=$cache/libtorch-$version
part=$store.partial # where a libtorch directory is put together, before it gets its name

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf 'setup:   %s\n' "$line" >&2; done
    exit 1
}

# A libtorch directory that the build can use: see seal() for the last file.
complete() {
    local file
    for file in include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so \
        lib/libtorch.so build-version; do
        [[ -e $1/$file ]] || return 1
    done
    [[ $(<"$1/build-version") == "$version" ]]
}

# Finishes a libtorch directory. torch-sys links `-ltorch`, but a libtorch.so of a CUDA build drags
# libtorch_cuda.so in. As a linker script it stands for libtorch_cpu.so alone, so one program runs
# with and without a GPU (it loads CUDA at run time when it wants it).
seal() {
    printf 'INPUT(-ltorch_cpu)\n' >"$1/lib/libtorch.so"
    printf '%s' "$version" >"$1/build-version"
}

# Moves the finished folder $1 to $2, in one step for whoever looks at $2.
publish() {
    rm -rf "$2.old"
    if [[ -e $2 ]]; then mv "$2" "$2.old"; fi
    mv "$1" "$2"
    rm -rf "$2.old"
}

# One set-up per user at a time. A kill releases the lock, and whoever holds it removes what an
# interrupted run left behind.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock --nonblock 9 || {
        say "another set-up of this user is at work; waiting for it …"
        flock 9
    }
    rm -rf "$part"
    trap 'rm -rf "$part"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

point() {
    # A folder of that name is not ours to replace.
    if [[ -e $link && ! -L $link ]]; then
        die "$link exists and is not a link" "Move it away: set-up links it to the libtorch in use."
    fi
    # A rename is atomic: a build that runs meanwhile sees the old link or the new one.
    ln -sfn "$1" "$link.$$" && mv -T "$link.$$" "$link"
}

check_machine() {
    local glibc
    [[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
        die "libtorch is fetched for x86_64 Linux only, and this is $(uname -s) on $(uname -m)" \
            "Get libtorch $version for this machine and name it: LOADMASTER_LIBTORCH=/path make setup"
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
    printf '2.28\n%s\n' "${glibc:-0}" | sort --check=quiet --version-sort ||
        die "libtorch $version needs glibc 2.28 or newer, and this system has ${glibc:-another C library}"
}

fetch() {
    local free
    mkdir -p "$part/wheels" "$part/tmp" "$part/tree"

    free=$(($(df --output=avail -k "$cache" | tail -n 1) / 1024))
    ((free > 1700)) ||
        die "$cache has $free MB free, and fetching libtorch needs 1700 MB for a moment (500 MB to stay)" \
            "Free some space, or put the cache elsewhere: XDG_CACHE_HOME=/path make setup"

    say "fetching libtorch $version (545 MB, once per user) into $store …"
    # The file is data for the loader, not a Python package of this machine: name the platform, so
    # that any Python will do. The temporary folder and the missing pip cache keep 530 MB off /tmp
    # and off the disk. Old pips know a platform only by its exact name, hence the list.
    local quiet=()
    [[ -t 1 ]] || quiet=(--quiet --quiet) # a progress bar is for a terminal only
    TMPDIR=$part/tmp PIP_REQUIRE_VIRTUALENV=0 python3 -m pip download \
        ${quiet[@]+"${quiet[@]}"} --no-cache-dir --disable-pip-version-check --retries 5 --timeout 60 \
        --require-hashes --requirement "$here/libtorch-wheels.txt" \
        --no-deps --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --dest "$part/wheels" ||
        die "pip could not fetch libtorch $version" \
            "Nothing is left half done: run it again once the network (or pip's index) answers." \
            "Or name a libtorch $version that you have: LOADMASTER_LIBTORCH=/path make setup"

    say "unpacking …"
    python3 "$here/unpack_libtorch.py" "$part/wheels" "$part/tree"
    seal "$part/tree"
    complete "$part/tree" || die "the libtorch wheels did not hold what the build needs"
    publish "$part/tree" "$store"
    say "libtorch $version is ready ($(du -shL "$store" | cut -f1) in $store)"
}

# The version a libtorch directory says it has: the zip archives have a file for it, an installed
# Python package has version.py, and both have it in the headers.
version_of() {
    local found=
    if [[ -f $1/build-version ]]; then
        found=$(head -n 1 "$1/build-version")
    elif [[ -f $1/version.py ]]; then
        found=$(sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$1/version.py")
    elif [[ -f $1/include/torch/headeronly/version.h ]]; then
        found=$(sed -n 's/^ *"\([0-9.]*\)".*/\1/p' "$1/include/torch/headeronly/version.h")
    fi
    printf '%s' "${found:-unknown}"
}

# The build gets a view of the user's libtorch: its headers, and links to its libraries but for the
# CUDA ones, because torch-sys links CUDA as soon as it sees libtorch_cuda.so in lib/.
adopt() {
    local own=$1 remedy found view file missing
    remedy="Name the folder of a libtorch $version (the one that holds include/ and lib/), or unset"
    [[ -d $own ]] || die "LOADMASTER_LIBTORCH=$own is not a folder" "$remedy LOADMASTER_LIBTORCH to fetch it."
    own=$(cd "$own" && pwd -P)
    for file in include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so; do
        [[ -e $own/$file ]] ||
            die "LOADMASTER_LIBTORCH=$own has no ${file%%/*}/ of libtorch: $file is missing (version found: $(version_of "$own"), wanted: $version)" \
                "$remedy LOADMASTER_LIBTORCH to fetch it."
    done
    found=$(version_of "$own")
    [[ ${found%%+*} == "$version" ]] ||
        die "LOADMASTER_LIBTORCH=$own is libtorch $found, and Loadmaster needs $version" \
            "$remedy LOADMASTER_LIBTORCH to fetch it."

    view=$cache/own-$(printf '%s' "$own" | sha256sum | cut -c1-16)
    if [[ $(readlink "$link") == "$view" ]] && complete "$view"; then return; fi
    lock
    mkdir -p "$part/lib"
    ln -s "$own/include" "$part/include"
    # An installed Python package keeps NVIDIA's libraries beside it, found by a path relative to
    # libtorch_cpu.so; through the view they are found beside that.
    for file in "$own"/lib/*.so* "$own"/../nvidia/cu*/lib/lib{cudart,cupti}.so.*; do
        case ${file##*/} in
        libtorch.so | libtorch_cuda*.so | libtorch_hip.so | \**) ;;
        *) [[ ! -e $file ]] || ln -sf "$file" "$part/lib/" ;;
        esac
    done
    seal "$part"
    # What is missing now would otherwise show up as a program that does not start.
    missing=$(ldd "$part/lib/libtorch_cpu.so" | sed -n 's/^[[:space:]]*\(.*\) => not found.*/\1/p' | paste -sd ' ')
    [[ -z $missing ]] ||
        die "the libtorch in $own does not load: $missing not found" \
            "Put these libraries into $own/lib, or unset LOADMASTER_LIBTORCH to fetch a libtorch with them."
    publish "$part" "$view"
    point "$view"
    say "using your libtorch $found in $own"
}

if [[ -n ${LOADMASTER_LIBTORCH:-} ]]; then
    adopt "$LOADMASTER_LIBTORCH"
    exit
fi
if complete "$link"; then exit; fi
if ! complete "$store"; then
    check_machine
    python3 -m pip --version >/dev/null 2>&1 ||
        die "python3 with pip is needed to fetch libtorch" "Install it: deploy/setup/packages.sh build"
    lock
    complete "$store" || fetch # somebody else may have done it while we waited
fi
point "$store"
