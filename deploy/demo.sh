#!/usr/bin/env bash
# Demonstrates Loadmaster on this machine without a GPU: it profiles a model, plans it for four CPU slots, trains the plan for a
# few iterations, and compares the predicted with the measured memory and time.
#
#   deploy/demo.sh [folder of the programs]     `make demo` builds them and calls this
#
# A peak that differs from its prediction by more than 0.5 % is a failure. Seconds are compared where every CPU slot has a core of
# its own and no other program used the cores. They never decide the exit status.
#
# The script stops every program that it started and removes their data. After a failure the logs stay.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
programs=$(cd "${1:-target/debug}" && pwd)
slots=4x2GiB
margin=0.005 # of predicted bytes at recorded sizes (`server/planning/predict`)
# Settings of the shell are for another planner: the demo has a database of its own to throw away.
unset DATABASE_URL DATABASE_URL_FILE "${!LOADMASTER_@}"

exec 3>&1 # for what the reader should see even while a program's output goes to a file

fail() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}
for program in loadmaster loadmaster-worker loadmaster-rank; do
    [[ -x $programs/$program ]] || fail "$programs/$program is not there; build it with: make binaries"
done

# --- what runs, and how it stops ------------------------------------------------------------------

data=$(mktemp -d "${TMPDIR:-/tmp}/loadmaster-demo.XXXXXX")
logs=$(mktemp -d "${TMPDIR:-/tmp}/loadmaster-demo-logs.XXXXXX")
chmod 711 "$data" # root's planner runs its database as another user, who has to get through here
groups=()         # process groups, in the order they were started

# Starts a program in a process group of its own (that is what `set -m` does), so that it can be
# stopped with all its children.
start() {
    set -m
    "$@" </dev/null 3>&- &
    set +m
    groups+=($!)
}

# Runs a program to its end. `wait` (unlike a program in the foreground) lets a signal through at once.
run() {
    start "$@"
    wait $!
}

# Whether process $1, or group -$1, still runs. `kill -0` would count the dead that nobody has reaped
# yet, which in a container without an init process may be never.
alive() {
    local file stat pid state group
    for file in /proc/[0-9]*/stat; do
        read -r stat 2>/dev/null <"$file" || continue # it may be gone by now
        pid=${stat%% *}
        read -r state _ group _ <<<"${stat##*) }" # after the name, which may hold anything
        if [[ $state != Z && ($pid == "$1" || -$group == "$1") ]]; then return 0; fi
    done
    return 1
}

stop() { # signal, process (or -group): gently first
    local _
    kill "-$1" -- "$2" 2>/dev/null || return 0
    for _ in {1..150}; do
        alive "$2" || return 0
        sleep 0.1
    done
    kill -KILL -- "$2" 2>/dev/null || true
}

finish() {
    local rc=$? i file
    trap '' INT TERM HUP # a second Ctrl-C must not leave something running
    trap - EXIT
    for ((i = ${#groups[@]} - 1; i >= 0; i--)); do stop TERM "-${groups[i]}"; done
    # A planner that had to be killed could not stop its database, which is not in its group.
    while IFS= read -r file; do
        stop INT "$(head -n 1 "$file")"
    done < <(find "$data" -name postmaster.pid 2>/dev/null)
    rm -rf "$data"

    case $rc in
    0) rm -rf "$logs" ;;
    129 | 130 | 143) # somebody stopped it, so there is nothing to explain
        rm -rf "$logs"
        echo "demo: stopped" >&3
        ;;
    *)
        for file in "$logs"/*.log; do
            if [[ -s $file ]]; then printf '\n--- end of %s\n' "$file" && tail -n 20 "$file"; fi
        done >&2
        printf '\ndemo: failed (exit status %s); the full logs are in %s\n' "$rc" "$logs" >&2
        ;;
    esac
    exit "$rc"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# --- helpers --------------------------------------------------------------------------------------

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[[ -t 1 ]] || step() { printf '\n%s\n' "$*"; }

# Waits until a check passes, for as long as the process is there to make it pass.
await() { # who process what check…
    local who=$1 process=$2 what=$3 deadline=$((SECONDS + 60))
    shift 3
    until "$@"; do
        alive "-$process" || fail "$who ended before it $what"
        ((SECONDS < deadline)) || fail "$who has not $what within 60 seconds"
        sleep 0.1
    done
}

# A client call, shown as the reader would type it.
client() {
    printf '$ loadmaster %s\n' "$*" >&3
    run "$programs/loadmaster" "$@"
}

# The first value of a number or of a truth in the JSON of a plan, behind a key: a trial's seconds are behind `validations`.
value() { # key field file
    tr -d ' \n' <"$3" | grep -o "\"$1\":.*" | grep -o "\"$2\":[-+0-9.eEa-z]*" | sed -n '1s/^[^:]*://p'
}

# The highest peak in the JSON of a plan: {"predictedPeak": {"bytes": "123", …}, …}. The peaks of other plans, which it
# was compared with, come after its certificate.
highest() { # field file
    tr -d ' \n' <"$2" | sed 's/"certificate":.*//' | grep -o "\"$1\":{[^}]*}" | grep -o '"bytes":"[0-9]*' | grep -o '[0-9]*$' |
        sort -n | tail -n 1
}

# --- the demo -------------------------------------------------------------------------------------

step "1. A planner, with a database of its own"
start "$programs/loadmaster" serve --data-dir "$data/planner" --listen 127.0.0.1:0 \
    --address-file "$data/address" >"$logs/planner.log" 2>&1
planner=${groups[-1]}
await "the planner" "$planner" answered test -s "$data/address"
LOADMASTER_ADDRESS=$(<"$data/address") # where the client verbs below connect
export LOADMASTER_ADDRESS
echo "planner at $LOADMASTER_ADDRESS"

step "2. A worker that offers four CPU slots of 2 GiB"
start "$programs/loadmaster-worker" --server "$LOADMASTER_ADDRESS" --name demo --cpu-slots "$slots" \
    --rank "$programs/loadmaster-rank" --work-dir "$data/work" --drain-timeout 5s >"$logs/worker.log" 2>&1
worker=${groups[-1]}
registered() { [[ $("$programs/loadmaster" worker list -o name 2>"$logs/client.log") == workers/* ]]; }
await "the worker" "$worker" registered registered
client worker list

step "3. Profile VGG11: each distinct layer trained alone, its allocations recorded"
client profile run --id demo --model vgg11 --image-size 32 --micro-batch-size 32 --micro-batches 4 -o name
profile=demo

step "4. Will it fit? Of training that was never run: another schedule, a stage on two devices"
client plan predict --profile "$profile" --pipeline-layout 8-8d2-7-7 --schedule 1f1b --recompute layer --capacity 2GiB

step "5. The plan with the lowest peak memory"
client plan recommend --profile "$profile" --devices "$slots" -o name >"$data/plan"
plan=$(<"$data/plan")
echo "$plan"

step "6. Train that plan, and compare"
cores=$(nproc)
code=0
client plan trial "$plan" >"$data/trial" || code=$?
# Ranks that share a core wait for each other. Predicted seconds do not contain these waits, so the trial does not contradict them.
if ((${slots%%x*} > cores)); then
    sed -i '/^measured .*: an iteration took /d' "$data/trial"
fi
cat "$data/trial"
((code == 0)) || exit "$code"

"$programs/loadmaster" plan show "$plan" -o json >"$data/plan.json"
predicted=$(highest predictedPeak "$data/plan.json") || fail "the plan has no predicted peak"
measured=$(highest measuredPeak "$data/plan.json") || fail "the plan has no measured peak"
printf '\ndemo: peak predicted %s measured %s error %s\n' "$predicted" "$measured" \
    "$(awk -v p="$predicted" -v m="$measured" 'BEGIN { printf "%.1f%%", 100 * (p - m) / m }')"

if ((${slots%%x*} > cores)); then
    echo "demo: seconds are not compared: ${slots%%x*} CPU slots share $cores cores"
elif [[ $(value validations contended "$data/plan.json") == true ]]; then
    echo "demo: seconds are not compared: other programs used the cores during the trial"
else
    awk -v p="$(value iteration iterationSeconds "$data/plan.json")" -v low="$(value iteration lowSeconds "$data/plan.json")" \
        -v high="$(value iteration highSeconds "$data/plan.json")" -v m="$(value validations iterationSeconds "$data/plan.json")" \
        'BEGIN { printf "demo: iteration predicted %.2f s (%.2f to %.2f s) measured %.2f s: %s its interval\n", p, low, high, m,
                 (m < low || m > high ? "outside of" : "inside") }'
fi

awk -v p="$predicted" -v m="$measured" -v margin="$margin" 'BEGIN { exit !((p - m) ^ 2 <= (margin * m) ^ 2) }' ||
    fail "the measured peak differs from the predicted one by more than $margin of it"
