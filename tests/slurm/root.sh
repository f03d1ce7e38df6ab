#!/usr/bin/env bash
# Makes a folder with a Debian whose Slurm knows blocks of nodes and segments of jobs (24.11; Debian 12 has 22.05), once per user, as
# root: ${XDG_CACHE_HOME:-~/.cache}/loadmaster/slurm-SUITE-N (180 MB, a minute). Tests start its programs there by chroot.
#
#   tests/slurm/root.sh            make it, unless it is there
#   tests/slurm/root.sh --path     print where it is, and change nothing
set -euo pipefail
suite=trixie
cache=${XDG_CACHE_HOME:-${HOME:?is not set, and says where the folder is kept}/.cache}/loadmaster
# The number is another one where what is in it changes.
root=$cache/slurm-$suite-1

case ${1:-} in
--path) printf '%s\n' "$root" && exit ;;
'') ;;
*) echo "root.sh: there is no option '$1'; there is --path" >&2 && exit 2 ;;
esac
if [[ -e $root/complete ]]; then exit 0; fi
((EUID == 0)) || { echo "root.sh: only root makes a Debian, and starts Slurm's daemons in it" >&2 && exit 1; }
command -v mmdebstrap >/dev/null || apt-get install --yes --quiet --no-install-recommends mmdebstrap >/dev/null || {
    echo "root.sh: mmdebstrap is not there and cannot be installed: apt-get install mmdebstrap" >&2
    exit 1
}
mkdir -p "$cache"
exec 9>"$cache/.slurm-lock"
flock 9
if [[ -e $root/complete ]]; then exit 0; fi
rm -rf --one-file-system "$root"
# Its log says why, if it fails.
mmdebstrap --quiet --variant=minbase --include=slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins "$suite" "$root" >&2
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
touch "$root/complete"
