#!/usr/bin/env bash
# Hands exported plans to the launchers' own code and compares what that makes of them with the plans: the golden ones,
# and random ones of each framework; and what Kubernetes and Ray make of manifests. What is not installed is named as skipped,
# which is no failure.
#
#     tests/launchers/ask.sh [--random N] [--seconds S] [--target DIR] [LAUNCHER@VERSION …]
#
# With --seconds no golden export is asked about, and of random ones as many as each launcher answers in that time.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
random=100 seconds="" target=$here/../../target/debug
while [[ ${1:-} == --* ]]; do
    case $1 in
        --random) random=$2 ;;
        --seconds) seconds=$2 ;;
        --target) target=$2 ;;
        *) echo "ask.sh: $1 is no option; there are --random N, --seconds S and --target DIR" >&2 && exit 2 ;;
    esac
    shift 2
done
failed=0
# Envelopes are every launcher's: they are asked about unless launchers are named.
(($#)) || "$here/manifests/ask.sh" "$target/bench" "$random" "$seconds" || failed=1

launchers=("$@")
if ((${#launchers[@]} == 0)); then
    launchers=("$here"/golden/*@*)
    launchers=("${launchers[@]##*/}")
fi

store=$("$here/install.sh" --path)
if [[ ! -e $store/complete ]]; then
    for launcher in "${launchers[@]}"; do
        echo "SKIPPED: $launcher: it is not installed, so nobody asked it about exports: \`make launchers\` installs all (6.6 GB)"
    done
    exit "$failed"
fi

[[ -n $seconds ]] || python3 "$here/oracles/check_golden.py" "${launchers[@]}" || failed=1
for launcher in "${launchers[@]}"; do
    for variant in "" hybrid; do
        # Ways of a launcher to say a plan are those that it has golden exports of.
        [[ -z $variant ]] || compgen -G "$here/golden/$launcher/*+$variant" >/dev/null || continue
        "$target/bench" exports "$launcher" --plans "$random" ${variant:+--variant "$variant"} |
            python3 "$here/oracles/check_random.py" "$launcher" ${seconds:+--seconds "$seconds"} || failed=1
    done
done
exit "$failed"
