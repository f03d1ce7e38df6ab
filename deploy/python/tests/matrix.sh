#!/usr/bin/env bash
# Installs the Python package under every Python and protobuf that it is for, in throw-away environments, tests what was
# installed, and prints a line for each. A Python that is not there is named as skipped.
#
#     deploy/python/tests/matrix.sh [--target DIR]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/../../../target/debug
if [[ ${1:-} == --target ]]; then programs=$(cd "$2" && pwd); fi
pythons=(3.10 3.11 3.12 3.13)
protobufs=(4.25.8 5.29.5 6.33.5 7.36.2)

"$here/../tools/generate.sh" || {
    (($? == 3)) && echo "SKIPPED: the Python package: no Python from 3.10 to 3.12 to generate its messages with" && exit
    exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$here/.."
# pip writes beside what it builds. As in a source distribution, the messages are there already.
mkdir "$folder/source"
cp -r pyproject.toml README.md setup.py src "$folder/source"
failed=0
for version in "${pythons[@]}"; do
    python=
    for found in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        if [[ $("$found" -c 'import ensurepip, sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null) == "$version" ]]; then
            python=$found && break
        fi
    done
    if [[ -z $python ]]; then
        echo "SKIPPED: Python $version: it is not installed"
        continue
    fi
    "$python" -m venv "$folder/$version"
    if ! "$folder/$version/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
        --wheel-dir "$folder/wheels/$version" "$folder/source"; then
        echo "FAILED: Python $version: it makes no wheel"
        failed=1
        continue
    fi
    for protobuf in "${protobufs[@]}"; do
        log=$folder/log
        if "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
            "$folder/wheels/$version"/loadmaster-*.whl "protobuf==$protobuf" pytest 'setuptools>=70.1' >"$log" 2>&1 &&
            env -u PYTHONPATH PYTHONDONTWRITEBYTECODE=1 LOADMASTER_PROGRAMS="$programs" \
                "$folder/$version/bin/python" -m pytest --quiet --ignore tests/test_observe.py >"$log" 2>&1 </dev/null; then
            echo "passed: Python $version, protobuf $protobuf: $(tail -n 1 "$log")"
        else
            cat "$log"
            echo "FAILED: Python $version, protobuf $protobuf"
            failed=1
        fi
    done
done
exit "$failed"
