#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing: packages.sh build|run|slurm|browser|shells|go …
#   build  what compiling needs      run    what a planner and its workers need
#   slurm  what the tests of Slurm's jobs start as root; without /etc/slurm/slurm.conf Debian starts nothing of it
#   browser  what the tests of the pages look at them with
#   shells   beside bash the shells whose completion is tested
#   go       Go, protoc and the libraries of a generated Go client
# It looks for the programs, not for the packages, so programs from elsewhere count, and a second
# run has nothing to do.
set -euo pipefail

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: error: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf 'setup:   %s\n' "$line" >&2; done
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

rust=1.95
missing=()

need_build() {
    local found
    have cargo || die "cargo is not installed" "Get Rust $rust or newer from https://rustup.rs, then run this again."
    found=$(cargo --version | cut -d ' ' -f 2)
    printf '%s\n%s\n' "$rust" "$found" | sort --check=quiet --version-sort ||
        die "cargo $found is too old: Loadmaster needs Rust $rust" "Update it: rustup update stable"
    have make || missing+=(make)
    have c++ && have cc || missing+=(g++) # torch-sys compiles C++, ring C
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip) # fetches libtorch, no more
}

need_run() {
    # The embedded database of a planner is a private server of these binaries.
    local bin
    for bin in /usr/lib/postgresql/*/bin; do
        [[ -x $bin/initdb && -x $bin/postgres ]] || continue
        [[ $(basename "$(dirname "$bin")") -lt 13 ]] || return 0
    done
    missing+=(postgresql)
}

need_slurm() {
    local program
    ((EUID == 0)) || die "Slurm's daemons start jobs as root only, and so do the tests that use them"
    for program in slurmctld slurmd; do
        have "$program" || missing+=("$program")
    done
    have sbatch || missing+=(slurm-client)
}

need_browser() {
    have chromium || missing+=(chromium)
    have chromedriver || missing+=(chromium-driver)
}

need_shells() {
    have zsh || missing+=(zsh)
    have fish || missing+=(fish)
}

need_go() {
    local sources=/usr/share/gocode/src
    have go && have gofmt || missing+=(golang-go)
    have protoc || missing+=(protobuf-compiler)
    have protoc-gen-go || missing+=(protoc-gen-go-1-5)
    have protoc-gen-go-grpc || missing+=(protoc-gen-go-grpc)
    [[ -d $sources/google.golang.org/grpc ]] || missing+=(golang-google-grpc-dev)
    [[ -d $sources/google.golang.org/genproto/googleapis/longrunning ]] || missing+=(golang-google-genproto-dev)
    [[ -d $sources/google.golang.org/protobuf ]] || missing+=(golang-google-protobuf-dev)
    # Debian's grpc also accepts version 1.3, which cannot read generated messages of today. 1.4 added this file.
    [[ -e $sources/github.com/golang/protobuf/proto/registry.go ]] || missing+=(golang-github-golang-protobuf-1-5-dev)
}

# Debian's server package creates a cluster and starts it on port 5432. Nobody asked for that one:
# it is switched off while we install, and the setting is put back for whoever wants it later.
without_main_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf before rc=0
    apt_install postgresql-common || return
    before=$(<"$conf")
    printf 'create_main_cluster = false\n' | as_root tee -a "$conf" >/dev/null
    "$@" || rc=$?
    printf '%s\n' "$before" | as_root tee "$conf" >/dev/null
    return "$rc"
}

as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }
apt_install() {
    # A machine that has just booted may still be updating itself: wait for its lock.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq \
        install --yes --no-install-recommends "$@" </dev/null >"$log" 2>&1
}

(($#)) || die "which packages? usage: packages.sh build|run|slurm|browser|shells|go …"
for group in "$@"; do
    case $group in
    build) need_build ;;
    run) need_run ;;
    slurm) need_slurm ;;
    browser) need_browser ;;
    shells) need_shells ;;
    go) need_go ;;
    *) die "there is no group of packages called '$group'; there are build, run, slurm, browser, shells and go" ;;
    esac
done
if ((${#missing[@]} == 0)); then exit 0; fi

if ! have apt-get; then
    die "these are missing: ${missing[*]} (as Debian calls them), and there is no apt-get to install them" \
        "Install a C++ compiler, Python's pip and the PostgreSQL server (13 or newer) as your system does."
fi
wants_server=
if [[ " ${missing[*]} " == *" postgresql "* ]]; then wants_server=1; fi
by_hand="apt-get install --yes --no-install-recommends ${missing[*]}"
if ((EUID != 0)) && ! sudo -n true 2>/dev/null; then
    die "these packages are missing, and installing them needs root: ${missing[*]}" "sudo $by_hand" \
        ${wants_server:+"(Debian then starts a server on port 5432 too, which Loadmaster leaves alone.)"}
fi

say "installing ${missing[*]} …"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root apt-get -o DPkg::Lock::Timeout=300 -qq update </dev/null >"$log" 2>&1 ||
    say "warning: apt-get update failed; trying with the package lists that are there"
${wants_server:+without_main_cluster} apt_install "${missing[@]}" || {
    tail -n 20 "$log" >&2
    die "apt-get could not install ${missing[*]}" "Try it by hand: $by_hand"
}
