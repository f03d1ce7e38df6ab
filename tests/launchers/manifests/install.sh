#!/usr/bin/env bash
# Installs what the tests ask about envelopes: validation of Kubernetes' own objects, JSON schemas, CEL and Ray; once per
# user, in ${XDG_CACHE_HOME:-~/.cache}/loadmaster/envelopes-HASH (0.4 GB; HASH is of this script and its pins).
#
#   tests/launchers/manifests/install.sh            install what is missing
#   tests/launchers/manifests/install.sh --path     print where the environment is, and change nothing
#
# PYTHON=/path/to/python3 names the interpreter where python3 is not the one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where the environment is kept}/.cache}/loadmaster
store=$cache/envelopes-$(cat "$here/install.sh" "$here/pins.txt" | sha256sum | cut -c1-16)

case ${1:-} in
--path) printf '%s\n' "$store" && exit ;;
'') ;;
*) echo "install.sh: there is no option '$1'; usage: install.sh [--path]" >&2 && exit 2 ;;
esac
if [[ -e $store/complete ]]; then exit 0; fi

mkdir -p "$cache"
exec 9>"$cache/.envelopes-lock"
flock 9
if [[ -e $store/complete ]]; then exit 0; fi
echo "envelopes: installing into $store (0.4 GB, once per user)"
"${PYTHON:-python3}" -m venv "$store"
nice -n 10 "$store/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-input \
    --requirement "$here/pins.txt"
touch "$store/complete"
