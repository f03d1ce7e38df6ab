#!/usr/bin/env bash
# Holds the objects for Kubernetes against the API's own schemas, and the compose file against what it may say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

store=$(tests/launchers/envelopes/install.sh --path)
if [[ ! -e $store/complete ]]; then
    echo "SKIPPED  manifests: what validates them is not installed (tests/launchers/envelopes/install.sh)"
    exit 0
fi
rendered=$(mktemp)
trap 'rm -f "$rendered"' EXIT
if command -v kubectl >/dev/null; then
    kubectl kustomize deploy/kustomize/base >"$rendered" || {
        echo "FAILED   kustomize does not render deploy/kustomize/base"
        exit 1
    }
    how="rendered by kustomize"
else
    how="one by one, since there is no kustomize"
    for file in deploy/kustomize/base/{namespace,migration,planner,worker}.yaml; do
        cat "$file"
        echo ---
    done >"$rendered"
fi
"$store/bin/python" tests/deploy/manifests.py "$rendered" "$how"
