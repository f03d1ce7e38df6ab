#!/usr/bin/env bash
# Builds the images on a Debian of this machine's own and runs them: images.sh BASE-TAR WORK-FOLDER; as root.
set -euo pipefail
base=$1 work=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v buildah >/dev/null; then
    apt-get install --yes --quiet --no-install-recommends buildah >/dev/null 2>&1 || {
        echo "SKIPPED  images: buildah cannot be installed"
        exit 0
    }
fi
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
storage=(--root "$work/images" --runroot "$work/images-run")
build() { buildah "${storage[@]}" "$@"; }

scratch=$(build from scratch)
build add --quiet "$scratch" "$base" / >/dev/null
build commit --quiet "$scratch" base >/dev/null
build rm "$scratch" >/dev/null
for name in planner worker; do
    if ! build build --quiet --build-arg BASE=localhost/base --build-arg LIBTORCH=/opt/libtorch/lib \
        --file "deploy/container/$name.Containerfile" --tag "$name" . >"$work/$name.log" 2>&1; then
        tail -n 20 "$work/$name.log"
        if grep -q 'Could not resolve\|Temporary failure' "$work/$name.log"; then
            echo "SKIPPED  image of the $name: there is no way to Debian's packages"
            exit 0
        fi
        echo "FAILED   image of the $name"
        exit 1
    fi
    echo "ok       the image of the $name is built"
done

# A shared network: chroot isolation has no other. The planner's own Postgres, since the base has one.
port=$((20000 + RANDOM % 10000))
planner=$(build from localhost/planner)
worker=$(build from localhost/worker)
build run --env LOADMASTER_LISTEN=127.0.0.1:$port --env LOADMASTER_WEB=127.0.0.1:$((port + 1)) "$planner" -- \
    /usr/bin/loadmaster serve --data-dir /var/lib/loadmaster >"$work/planner.run" 2>&1 &
serving=$!
build run --volume "$(readlink -f .libtorch):/opt/libtorch:ro" "$worker" -- \
    /usr/bin/loadmaster-worker --server "http://127.0.0.1:$port" --cpu-slots 2x512MiB --name contained >"$work/worker.run" 2>&1 &
working=$!
# What a container runs does not end with buildah.
descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        descendants "$child"
        echo "$child"
    done
}
stop() {
    local all
    all=$(descendants "$working" && descendants "$serving")
    kill $all 2>/dev/null || true
    wait || true
}
trap stop EXIT
ask() { build run "$planner" -- /usr/bin/loadmaster --address "http://127.0.0.1:$port" "$@"; }
end=$((SECONDS + 60))
until ask worker list 2>/dev/null | grep -q alive || ((SECONDS > end)); do sleep 0.5; done
if ask profile run --id contained --model gpt2 --blocks 2 --hidden-size 32 --heads 4 --sequence-length 16 --vocabulary-size 100 \
    --micro-batch-size 2 --micro-batches 2 >"$work/profile.run" 2>&1; then
    echo "ok       in containers a planner and a worker profile a model by training it"
else
    echo "FAILED   containers: $(tail -n 5 "$work/profile.run" "$work/planner.run" "$work/worker.run")"
    exit 1
fi
