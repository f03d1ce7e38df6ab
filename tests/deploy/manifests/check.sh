#!/usr/bin/env bash
# Renders the Helm chart and the kustomize base, and holds what comes out against the API's own schemas and against each other; and lets
# Docker Compose read deploy/compose.yaml.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
store=$("$here/install.sh" --path)
if [[ ! -e $store/complete ]]; then
    echo "SKIPPED  manifests, compose: what renders and validates them is not installed (tests/deploy/manifests/install.sh)"
    exit 0
fi
PATH=$store/bin:$PATH PYTHONDONTWRITEBYTECODE=1 exec "$store/bin/python" "$here/check.py"
