#!/bin/bash
# Runs in a fresh Debian that has just booted: installs the packages as a user would, and looks at what comes of it.
set -u
cd /opt/loadmaster-test
export HOME=/root MANWIDTH=200

pass() { printf 'ok       %s\n' "$*"; }
fail() { printf 'FAILED   %s\n' "$*"; }
check() { # WHAT COMMAND…
    local what=$1
    shift
    if "$@" >&2; then pass "$what"; else fail "$what"; fi
}
says() { # WHAT PATTERN COMMAND…
    local what=$1 pattern=$2 said
    shift 2
    said=$("$@" 2>&1)
    if [[ $said == *$pattern* ]]; then pass "$what"; else fail "$what: $said"; fi
}

# Whatever it prints, for a minute at most.
until_it_works() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1 || ((SECONDS > end)); do sleep 0.05; done
}

begin=$(date +%s%N)
dpkg -i loadmaster_*.deb >&2 || fail "the planner's package cannot be installed"
until_it_works loadmaster worker list
took=$((($(date +%s%N) - begin) / 1000000))
if loadmaster worker list >&2; then pass "package installed, service answers after $took ms (goal: 30000)"; else fail "no planner answers"; fi
says "the planner told systemd that it is ready" "active" systemctl is-active loadmaster
says "systemd says what the planner does" "serving on 127.0.0.1:7433" systemctl show --property=StatusText loadmaster
says "systemd would notice a planner that hangs" "WatchdogUSec=1min" systemctl show --property=WatchdogUSec loadmaster
says "pages are shown" "<title>Overview" curl --silent http://127.0.0.1:7434/
says "it is not root" "loadmaster" ps -o user:32= -p "$(systemctl show --property=MainPID --value loadmaster)"
says "its exposure in this systemd" "OK" systemd-analyze security --no-pager --threshold=30 loadmaster

dpkg -i loadmaster-worker_*.deb >&2 || fail "the worker's package cannot be installed"
cat >/etc/default/loadmaster-worker <<'SETTINGS'
LOADMASTER_ADDRESS=http://127.0.0.1:7433
LOADMASTER_CPU_SLOTS=2x512MiB
LD_LIBRARY_PATH=/opt/libtorch/lib
SETTINGS
systemctl start loadmaster-worker >&2
until_it_works sh -c "loadmaster worker list | grep alive"
says "the worker told systemd that it is ready" "active" systemctl is-active loadmaster-worker
says "the worker is connected" "connected" systemctl show --property=StatusText loadmaster-worker
check "a model is profiled by training it" loadmaster profile run --id fresh --model gpt2 --blocks 2 --hidden-size 32 --heads 4 \
    --sequence-length 16 --vocabulary-size 100 --micro-batch-size 2 --micro-batches 2
says "and planned" "plans/" loadmaster plan recommend --profile fresh --devices 2x512MiB -o name

says "there are manual pages" "The best plan for a profile" man --pager=cat loadmaster-plan-recommend
says "and the worker's" "Offers this node" man --pager=cat loadmaster-worker
says "bash completes verbs" "recommend" bash -c \
    '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/loadmaster
     COMP_LINE="loadmaster plan rec" COMP_POINT=19 COMP_WORDS=(loadmaster plan rec) COMP_CWORD=2
     _loadmaster loadmaster rec plan; echo "${COMPREPLY[@]}"'
says "and names of the planner" "fresh" bash -c \
    '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/loadmaster
     COMP_LINE="loadmaster profile show " COMP_POINT=24 COMP_WORDS=(loadmaster profile show "") COMP_CWORD=3
     _loadmaster loadmaster "" show; echo "${COMPREPLY[@]}"'
check "the package has completions for zsh and fish" grep -q LOADMASTER_COMPLETE \
    /usr/share/zsh/vendor-completions/_loadmaster /usr/share/fish/vendor_completions.d/loadmaster.fish

systemctl restart loadmaster
until_it_works loadmaster profile show fresh
check "what was measured survives a restart" loadmaster profile show fresh
systemctl stop loadmaster-worker loadmaster
says "both stop by themselves" "Result=success" systemctl show --property=Result loadmaster
says "and the worker" "Result=success" systemctl show --property=Result loadmaster-worker
dpkg --purge loadmaster-worker loadmaster >&2 || fail "the packages cannot be removed"
if [[ -e /usr/bin/loadmaster || -e /etc/default/loadmaster || -e /usr/lib/systemd/system/loadmaster.service ]]; then
    fail "something is left behind"
else
    pass "nothing of the packages is left behind"
fi
journalctl --unit loadmaster --unit loadmaster-worker --no-pager --lines=60 >&2
echo done
