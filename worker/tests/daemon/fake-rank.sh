#!/bin/sh
# Stands in for loadmaster-rank where tests provoke what a process can do to its daemon.
#
# FAKE_PROBE chooses what `probe` says. FAKE_RANK chooses what `train` and `links` do: one word for every stage,
# or words like `0:hang 1:segfault`. FAKE_DIR is a folder for the test: pids are written there, and
# `wait` goes on when a file `go` appears in it.

if [ "$1" = probe ]; then
    case "$FAKE_PROBE" in
    old-libtorch) version=2.10.0 ;;
    no-libtorch)
        echo "loadmaster-rank: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: No such file or directory" >&2
        exit 127
        ;;
    *) version=2.11.0 ;;
    esac
    echo "{\"loadmaster_version\":\"0.1.0\",\"libtorch_version\":\"$version\",\"cuda_version\":\"\",\"cuda_devices\":0}"
    exit 0
fi

# shellcheck disable=SC3045 # not POSIX, but in every shell that is a /bin/sh
ulimit -c 0
spec=$(cat)
stage=$(printf %s "$spec" | sed 's/.*"stage_index":\([0-9]*\).*/\1/')
shard=$(printf %s "$spec" | sed 's/.*"shard":\([0-9]*\).*/\1/')
if [ "$1" = links ]; then # a rank of no stage
    stage=0
    shard=$(printf %s "$spec" | sed 's/.*"index":\([0-9]*\).*/\1/')
fi
# The first device of a stage goes by the stage's name alone.
rank=$stage
if [ "$shard" != 0 ]; then rank=$stage.$shard; fi
behaviour=$FAKE_RANK
for word in $FAKE_RANK; do
    case $word in "$rank":*) behaviour=${word#*:} ;; esac
done
# Tests read a file as soon as it is there, so it has to be whole by then.
write() {
    cat >"$FAKE_DIR/$1.new"
    mv "$FAKE_DIR/$1.new" "$FAKE_DIR/$1"
}
if [ -n "$FAKE_DIR" ]; then
    printf %s "$spec" | write "spec-$rank.json"
    echo "$TMPDIR" | write "folder-$rank"
    printf '%s %s %s' "$OMP_NUM_THREADS" "$CUDA_VISIBLE_DEVICES" "$GLIBC_TUNABLES" | write "env-$rank"
    echo $$ | write "pid-$rank"
fi

progress() { echo "{\"event\":\"progress\",\"fraction\":$1,\"phase\":\"$2\"}"; }
measured() {
    progress 1.0 step
    echo "{\"event\":\"measured\",\"measurement\":{\"stage\":{\"first_layer\":0,\"last_layer\":0,\"data_degree\":1,\"tensor_degree\":1},\"stage_index\":$stage,\"shard\":$shard,\"stage_count\":2,\"solo\":false,\"micro_batch_size\":1,\"in_flight\":1,\"peak_allocated\":1000,\"peak_reserved\":null,\"static_bytes\":{\"parameters\":1,\"gradients\":1,\"optimizer\":1},\"capacity\":2000,\"iteration_seconds\":0.5,\"layers\":[],\"losses\":[],\"environment\":{\"device_kind\":\"cpu\",\"libtorch_version\":\"2.11.0\",\"cuda_version\":\"\",\"driver_version\":\"\",\"loadmaster_version\":\"0.1.0\",\"threads\":1}}}"
}

if [ "$behaviour" = loader ]; then
    echo "loadmaster-rank: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file" >&2
    exit 127
fi
progress 0.25 forward
case $behaviour in
measure) measured ;;
measure-slowly) # stage 0 ends after stage 1
    if [ "$stage" = 0 ]; then sleep 0.3; fi
    measured
    ;;
wait) # works until it is told to end, and says so all the time
    while [ ! -e "$FAKE_DIR/go" ]; do
        progress 0.5 backward
        sleep 0.05
    done
    measured
    ;;
out-of-memory)
    echo '{"event":"out_of_memory","out_of_memory":{"asked":300,"held":800,"allowed":1000,"ledger":"allocated","phase":"backward","layer":1}}'
    exit 77
    ;;
host-out-of-memory)
    echo '{"event":"out_of_memory","out_of_memory":{"asked":3145728,"held":0,"allowed":1048576,"ledger":"host","phase":"setup","layer":null}}'
    exit 77
    ;;
segfault)
    sleep 0.2 # its neighbour may be gone before
    kill -SEGV $$
    ;;
killed) kill -KILL $$ ;;
exit3)
    echo "cannot open the tensor cupboard" >&2
    exit 3
    ;;
error)
    echo '{"event":"error","message":"the loss is not a number"}'
    exit 1
    ;;
lost-neighbour) exit 76 ;;
wrong-libtorch)
    echo "built for libtorch 2.11.0, found 2.13.0" >&2
    exit 78
    ;;
mute) exit 0 ;;
garbage)
    echo "hello from a library that prints to standard output"
    head -c 20000000 /dev/zero | tr '\0' x # longer than any event
    echo
    measured
    ;;
hang) exec sleep 1000 ;;
family) # has children that outlive it
    sleep 1000 &
    echo $! | write "child-$stage"
    measured
    ;;
busy-family)
    sleep 1000 &
    echo $! | write "child-$stage"
    while :; do
        progress 0.5 backward
        sleep 0.05
    done
    ;;
*)
    echo "unknown behaviour $behaviour" >&2
    exit 64
    ;;
esac
