#!/usr/bin/env bash
# Tests the Python package in one environment, which is installed once per user; where there is no Python for it, that is said,
# and no failure.
#
#     deploy/python/tests/check.sh [--slow] [--target DIR]
#
# --slow adds the tests that train with frameworks. DIR has the project's programs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$here/../../../target/debug
which=(-m "not slow")
while (($#)); do
    case $1 in
    --slow) which=() ;;
    --target) programs=$(cd "$2" && pwd) && shift ;;
    *) echo "check.sh: $1 is no option; there are --slow and --target DIR" >&2 && exit 2 ;;
    esac
    shift
done

"$here/../tools/generate.sh" || {
    (($? == 3)) && echo "SKIPPED: the Python package: no Python from 3.10 to 3.12 to generate its messages with" && exit
    exit 1
}
store=$("$here/install.sh" --path)
cd "$here/.."
PATH=$store/bin:$PATH PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 MYPY_CACHE_DIR=$store/mypy LOADMASTER_PROGRAMS=$programs \
    "$store/bin/python" -m pytest --quiet "${which[@]}" </dev/null
