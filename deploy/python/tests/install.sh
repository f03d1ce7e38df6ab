#!/usr/bin/env bash
# Installs what the tests of the Python package need: an environment, once per user, in
# ${XDG_CACHE_HOME:-~/.cache}/loadmaster/python-HASH (150 MB; HASH is of this script and its pins).
#
#   deploy/python/tests/install.sh            install it, unless it is there (half a minute)
#   deploy/python/tests/install.sh --path     print where it is, and change nothing
#
# Exit status 3 says that no Python was found that could be used: 3.10 to 3.12 generate the messages, too; 3.13 only
# runs the package. PYTHON=/path names one that is not on the PATH or in ~/.pyenv.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/pins.txt
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where environments are kept}/.cache}/loadmaster
store=$cache/python-$(cat "$here/install.sh" "$pins" | sha256sum | cut -c1-16)

say() { printf 'python: %s\n' "$*"; }
die() {
    printf 'python: error: %s\n' "$1" >&2
    exit "${2:-1}"
}

case ${1:-} in
--path) printf '%s\n' "$store" && exit ;;
'') ;;
*) die "there is no option '$1'; usage: install.sh [--path]" 2 ;;
esac
if [[ -e $store/complete ]]; then exit 0; fi

find_python() {
    local found candidates
    for version in 3.12 3.11 3.10 3.13; do
        candidates=("python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python)
        [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
        for found in "${candidates[@]}"; do
            [[ $("$found" -c 'import ensurepip, sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null) == "$version" ]] || continue
            python=$found && return
        done
    done
    die "there is no Python from 3.10 to 3.13 with venv; install one, or name it: PYTHON=/path" 3
}

find_python
mkdir -p "$cache"
exec 9>"$cache/.python-lock"
flock --nonblock 9 || {
    say "another installation of this user is at work; waiting for it …"
    flock 9
}
if [[ -e $store/complete ]]; then exit 0; fi
say "installing into $store (150 MB, once per user) …"
rm -rf "$store"
"$python" -m venv "$store"
wanted=$pins
if [[ $version == 3.13 ]]; then
    # grpcio-tools of that year has no wheel for it.
    wanted=$store/pins.txt
    grep -v -E '^(grpcio-tools|mypy-protobuf)==' "$pins" >"$wanted"
fi
"$store/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-input --retries 5 --timeout 60 \
    --requirement "$wanted" >"$store/pip.log" 2>&1 </dev/null || {
    tail -n 20 "$store/pip.log" >&2
    die "pip could not install what the tests need; run it again once the network (or pip's index) answers"
}
touch "$store/complete"
say "ready in $store"
