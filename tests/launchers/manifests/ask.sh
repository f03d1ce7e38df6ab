#!/usr/bin/env bash
# Asks about exports in envelopes: golden and damaged manifests, random ones of each envelope, and a cluster of Ray.
#
#     tests/launchers/manifests/ask.sh BENCH RANDOM SECONDS
#
# With SECONDS ("" for none) each envelope is asked about for so long, and Ray, which takes a minute, is not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bench=$1 random=$2 seconds=$3
envelopes=(jobset trainjob pytorchjob leaderworkerset job)

store=$("$here/install.sh" --path)
if [[ ! -e $store/complete ]]; then
    for envelope in "${envelopes[@]}" ray; do
        echo "SKIPPED: envelope $envelope: what validates it is not installed: \`make launchers\` installs it (0.4 GB)"
    done
    exit 0
fi

failed=0
"$store/bin/python" "$here/check.py" || failed=1
for envelope in "${envelopes[@]}"; do
    "$bench" exports --manifest "$envelope" --plans "$random" 2>/dev/null |
        "$store/bin/python" "$here/check.py" "$envelope" ${seconds:+--seconds "$seconds"} || failed=1
done
if [[ -z $seconds ]]; then
    "$store/bin/python" "$here/ray_cluster.py" || failed=1
    "$bench" exports --manifest ray --plans "$random" 2>/dev/null |
        "$store/bin/python" "$here/ray_cluster.py" - --seconds 60 || failed=1
fi
exit "$failed"
