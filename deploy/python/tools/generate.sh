#!/usr/bin/env bash
# Writes src/loadmaster/_wire with the environment of the tests, unless it is of today's sources. Exit status 3 says that no
# Python was found that could be used; the reason is told.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/../tests/install.sh"
store=$("$here/../tests/install.sh" --path)
PATH=$store/bin:$PATH exec flock "$store" "$store/bin/python" -B "$here/generate.py"
