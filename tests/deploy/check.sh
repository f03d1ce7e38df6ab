#!/usr/bin/env bash
# Uses what installs Loadmaster for real: units, packages, a Debian that boots. check.sh [--release]; as root, on Debian or Ubuntu.
# Prints a line for each promise, and SKIPPED with a name for what this machine cannot be asked.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

profile=dev
if [[ ${1:-} == --release ]]; then profile=release; fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/loadmaster
suite=bookworm
# What a fresh machine has, and the database that the package recommends.
base=$cache/debian-$suite-1.tar
work=$(mktemp -d /var/tmp/loadmaster-deploy.XXXXXX)
planner=""
# Ends the planner that was started, if any; whether it ended well.
ended() {
    local ending=$planner
    planner=""
    [[ -n $ending ]] || return 0
    kill "$ending" 2>/dev/null || true
    wait "$ending"
}
trap 'ended || true; rm -rf --one-file-system "$work"' EXIT
failed=0

pass() { printf 'ok       %s\n' "$*"; }
fail() {
    printf 'FAILED   %s\n' "$*"
    failed=1
}
skip() { printf 'SKIPPED  %s\n' "$*"; }

if command -v systemd-analyze >/dev/null; then
    for unit in loadmaster loadmaster-worker; do
        said=$(systemd-analyze security --offline=true --threshold=30 "deploy/systemd/$unit.service" 2>&1 | tail -1) &&
            pass "exposure of $unit.service is at most 3.0: ${said#*: }" || fail "exposure of $unit.service: $said"
    done
else
    skip "exposure of the units: there is no systemd-analyze"
fi

packages=$(deploy/packages/build.sh --profile "$profile")
if readelf --dynamic target/packages/loadmaster-rank | grep -E 'R(UN)?PATH' | grep -vq '\[$ORIGIN/../lib/loadmaster\]'; then
    fail "the packaged rank looks for libtorch where only the builder has it"
else
    pass "the packaged rank looks for libtorch beside itself alone"
fi
pass "packages are built: $(xargs -n1 basename <<<"$packages" | xargs)"

# What `cargo install` makes answers by itself, anywhere: nothing of the sources is read when it runs.
installed() {
    local options=() status=1
    [[ $profile == release ]] || options=(--debug)
    cargo install --quiet --locked "${options[@]}" --path server --target-dir target --root "$work/cargo" || return
    mkdir -m 711 "$work/served" && chmod 711 "$work"
    (cd / && exec env -u DATABASE_URL "$work/cargo/bin/loadmaster" serve --no-web --data-dir "$work/served/data" \
        --listen 127.0.0.1:0 --address-file "$work/served/address") </dev/null >"$work/served/log" 2>&1 &
    planner=$!
    for _ in {1..300}; do
        [[ ! -s $work/served/address ]] && kill -0 "$planner" 2>/dev/null || break
        sleep 0.1
    done
    if [[ -s $work/served/address ]]; then
        (cd / && "$work/cargo/bin/loadmaster" --address "$(<"$work/served/address")" worker list -o json) >/dev/null && status=0
    fi
    ended || status=1
    ((status == 0)) || cat "$work/served/log"
    return "$status"
}
installed && pass "cargo install --path server makes a planner that answers: $("$work/cargo/bin/loadmaster" --version)" ||
    fail "what cargo install --path server makes does not answer"

"$here/manifests/install.sh" >&2 || true
"$here/manifests/check.sh" || failed=1

if ((EUID != 0)); then
    skip "a Debian that boots, and images: only root may start them"
    exit "$failed"
fi
if ! command -v mmdebstrap >/dev/null || ! command -v systemd-nspawn >/dev/null; then
    apt-get install --yes --quiet --no-install-recommends mmdebstrap systemd-container >/dev/null 2>&1 || {
        skip "a Debian that boots: mmdebstrap and systemd-container cannot be installed"
        exit "$failed"
    }
fi
if [[ ! -s $base ]]; then
    mkdir -p "$cache"
    mmdebstrap --quiet --variant=minbase \
        --include=systemd,systemd-sysv,dbus,man-db,bash-completion,postgresql,curl,libstdc++6 "$suite" "$base.part.tar"
    mv "$base.part.tar" "$base"
fi
mkdir "$work/root"
tar -xf "$base" -C "$work/root"
mkdir "$work/root/opt/loadmaster-test" "$work/root/opt/libtorch"
xargs -I{} cp {} "$work/root/opt/loadmaster-test/" <<<"$packages"
cp "$here/inside.sh" "$work/root/opt/loadmaster-test/"
cat >"$work/root/etc/systemd/system/loadmaster-test.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/opt/loadmaster-test/inside.sh
ExecStopPost=/usr/bin/systemctl --no-block poweroff
StandardOutput=file:/opt/loadmaster-test/said
StandardError=file:/opt/loadmaster-test/errors
TimeoutStartSec=300
[Install]
WantedBy=default.target
UNIT
ln -s ../loadmaster-test.service "$work/root/etc/systemd/system/multi-user.target.wants/loadmaster-test.service"
libtorch=$(readlink -f .libtorch)
timeout 400 systemd-nspawn --boot --quiet --register=no --keep-unit --private-network \
    --bind-ro="$libtorch:/opt/libtorch" --directory="$work/root" </dev/null >"$work/boot" 2>&1 || true
if [[ ! -s $work/root/opt/loadmaster-test/said ]]; then
    tail -n 20 "$work/boot"
    skip "a Debian that boots: systemd-nspawn starts none here"
    exit "$failed"
fi
cat "$work/root/opt/loadmaster-test/said"
if ! grep -q '^done$' "$work/root/opt/loadmaster-test/said" || grep -q '^FAILED' "$work/root/opt/loadmaster-test/said"; then
    cat "$work/root/opt/loadmaster-test/errors"
    failed=1
fi

"$here/images.sh" "$base" "$work" || failed=1
exit "$failed"
