#!/usr/bin/env bash
# Builds the Debian packages of the planner with its command line and of the worker: build.sh [--profile release|dev]
# cargo-deb is installed once per user. Prints where the packages are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

profile=release folder=release
if [[ ${1:-} == --profile ]]; then profile=$2; fi
if [[ $profile == dev ]]; then folder=debug; fi
target=${CARGO_TARGET_DIR:-target}

deploy/setup/packages.sh build >&2
tool=${XDG_CACHE_HOME:-$HOME/.cache}/loadmaster/cargo-deb
if [[ ! -x $tool/bin/cargo-deb ]]; then
    cargo install cargo-deb --version 3.8.0 --locked --quiet --root "$tool" >&2
fi
cargo build --locked --profile "$profile" -p loadmaster -p loadmaster-worker -p loadmaster-rank >&2

made=$target/packages
rm -rf "$made"
mkdir -p "$made/completions"
# Ranks look for libtorch beside them and where LD_LIBRARY_PATH says, and nowhere that only this machine has.
if ! command -v patchelf >/dev/null; then
    if ((EUID != 0)) || ! apt-get install --yes --quiet --no-install-recommends patchelf >/dev/null 2>&1; then
        echo "build.sh: patchelf is missing: apt-get install patchelf" >&2
        exit 1
    fi
fi
cp "$target/$folder/loadmaster-rank" "$made/loadmaster-rank"
# shellcheck disable=SC2016 # The loader expands it.
patchelf --set-rpath '$ORIGIN/../lib/loadmaster' "$made/loadmaster-rank"
"$target/$folder/loadmaster" man --to "$made/man"
"$target/$folder/loadmaster-worker" --man >"$made/man/loadmaster-worker.1.new"
"$target/$folder/loadmaster" completion bash >"$made/completions/loadmaster.bash"
"$target/$folder/loadmaster" completion zsh >"$made/completions/_loadmaster"
"$target/$folder/loadmaster" completion fish >"$made/completions/loadmaster.fish"
for package in loadmaster loadmaster-worker; do
    # The verb `loadmaster worker` has a page of the worker's name, which is the daemon's.
    if [[ $package == loadmaster-worker ]]; then
        mv "$made/man/loadmaster-worker.1.new" "$made/man/loadmaster-worker.1"
    fi
    "$tool/bin/cargo-deb" deb --no-build --profile "$profile" --quiet -p "$package" --output "$made" >/dev/null
done
ls "$made"/*.deb
