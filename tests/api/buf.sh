#!/usr/bin/env bash
# Checks proto/loadmaster with `buf lint` by the rules of proto/buf.yaml.
#
# The script downloads buf from npm once per user, into ${XDG_CACHE_HOME:-~/.cache}/loadmaster/buf-VERSION (33 MB, 47 MB unpacked).
# Without a network it prints SKIPPED and succeeds. A download with another hash is an error.
set -euo pipefail

version=1.75.0
# `dist.integrity` of https://registry.npmjs.org/@bufbuild/buf-linux-x64/1.75.0
integrity=YGGJAx0lpMCE7aMWjNOJcfoEaG/e+iYHnTC4SZ0P5eS4IffMryA9Z4/bb1m1wNXAEJ8ATFMEZOAk/5x9VE47ig==
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?is not set: it contains the folder for downloads}/.cache}/loadmaster
buf=$cache/buf-$version

skip() {
    echo "SKIPPED: buf lint: $1"
    exit 0
}

install_buf() {
    local part sum
    [[ $(uname -sm) == "Linux x86_64" ]] || skip "the script installs buf on x86_64 Linux only, and this is $(uname -sm)"
    command -v curl >/dev/null || skip "curl is not installed"
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/buf.XXXXXX")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$part'" EXIT
    echo "buf: downloading buf $version (33 MB, once per user) …"
    curl --silent --show-error --fail --location --retry 3 --max-time 300 --output "$part/buf.tgz" \
        "https://registry.npmjs.org/@bufbuild/buf-linux-x64/-/buf-linux-x64-$version.tgz" ||
        skip "cannot download buf $version from registry.npmjs.org"
    sum=$(base64 --decode <<<"$integrity" | od -An -v -tx1 | tr -d ' \n')
    sha512sum --status --check <<<"$sum  $part/buf.tgz" || {
        echo "buf: error: the package of buf $version on registry.npmjs.org does not have the pinned SHA-512 hash" >&2
        exit 1
    }
    tar -xzf "$part/buf.tgz" -C "$part" package/bin/buf
    # A rename is atomic, so two runs at once do not disturb each other.
    mv "$part/package/bin/buf" "$buf"
}

[[ -x $buf ]] || install_buf
cd "$root"
echo "buf lint proto"
"$buf" lint proto
