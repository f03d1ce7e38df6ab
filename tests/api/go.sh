#!/usr/bin/env bash
# Generates a Go client from proto/loadmaster/v1 and compiles deploy/go/example with it.
#
#     tests/api/go.sh [--run TARGET_DIR]
#
# --run starts the planner of TARGET_DIR, imports deploy/profile/table.json and runs the example. The generated code is in a temporary
# folder. Go keeps compiled packages in ${XDG_CACHE_HOME:-~/.cache}/loadmaster/go-build. If the Debian packages cannot be installed, the
# script prints SKIPPED and succeeds.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=
case ${1:-} in
--run) programs=$(cd "${2:?--run needs the folder of the programs}" && pwd) ;;
'') ;;
*) echo "go.sh: there is no option '$1'; usage: go.sh [--run TARGET_DIR]" >&2 && exit 2 ;;
esac
fail() {
    printf 'go: error: %s\n' "$1" >&2
    exit 1
}

"$root/deploy/setup/packages.sh" go || {
    echo "SKIPPED: Go client: the packages of Go, protoc and gRPC cannot be installed"
    exit 0
}

work=$(mktemp -d "${TMPDIR:-/tmp}/loadmaster-go.XXXXXX")
planner=
finish() {
    local rc=$?
    trap '' INT TERM HUP
    if [[ -n $planner ]]; then
        kill "$planner" 2>/dev/null || true
        wait "$planner" || true
    fi
    rm -rf "$work"
    exit "$rc"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- generate and compile -------------------------------------------------------------------------

mkdir "$work/src"
# Debian has no cloud.google.com/go/longrunning, which is go_package of this file. genproto has the same types.
longrunning=Mgoogle/longrunning/operations.proto=google.golang.org/genproto/googleapis/longrunning
# proto/buf.yaml gives the reason of the one unused import.
(cd "$root/proto" && protoc -I. --go_out="$work/src" --go_opt="$longrunning" --go-grpc_out="$work/src" --go-grpc_opt="$longrunning" \
    loadmaster/v1/*.proto 2> >(grep -v 'warning: Import loadmaster/v1/run.proto is unused' >&2))

unformatted=$(gofmt -l "$root/deploy/go")
[[ -z $unformatted ]] || fail "not formatted: $unformatted. Run gofmt -w deploy/go."
# Debian's libraries are a GOPATH without module files.
export GO111MODULE=off GOFLAGS='' GOPATH=$work:/usr/share/gocode GOCACHE=${XDG_CACHE_HOME:-$HOME/.cache}/loadmaster/go-build
cd "$root/deploy/go/example"
go vet . loadmaster.dev/loadmaster/v1
go build -o "$work/example" .
echo "go: deploy/go/example compiles with the generated client ($(go version | cut -d ' ' -f 3), $(protoc --version))"
[[ -n $programs ]] || exit 0

# --- run ------------------------------------------------------------------------------------------

# The shell may contain settings of another planner.
unset DATABASE_URL DATABASE_URL_FILE "${!LOADMASTER_@}"
chmod 711 "$work" # The database of root's planner runs as another user.
# The limit ends a planner that does not stop.
timeout --kill-after=20 300 "$programs/loadmaster" serve --listen 127.0.0.1:0 --address-file "$work/address" --no-web \
    --data-dir "$work/data" </dev/null >"$work/planner.log" 2>&1 &
planner=$!
until [[ -s $work/address ]]; do
    kill -0 "$planner" 2>/dev/null || {
        cat "$work/planner.log" >&2
        fail "the planner did not start"
    }
    sleep 0.1
done
export LOADMASTER_ADDRESS
LOADMASTER_ADDRESS=$(<"$work/address")
profile=$("$programs/loadmaster" profile import "$root/deploy/profile/table.json" --output name)
"$work/example" "${LOADMASTER_ADDRESS#http://}" "$profile" node7 | tee "$work/output"

# Line 1 has the plan, and one line of each stage has its devices.
plan=$(sed -n '1s/^plan: //p' "$work/output")
[[ $plan == plans/* ]] || fail "the example printed no plan"
"$programs/loadmaster" plan show "$plan" >/dev/null
stages=$(sed 1d "$work/output")
[[ -n $stages ]] || fail "the example printed no stage"
! grep -v -x -E 'stage [0-9]+: node node7, devices [0-9]+ to [0-9]+' <<<"$stages" ||
    fail "a stage has no devices of node7"
echo "go: the example printed a plan and its devices"
