//! What `--help` teaches below the options: examples, and on the first page the exit codes.

pub(super) const ROOT: &str = "\
Start here:
  loadmaster serve                  (a planner with a database of its own)
  loadmaster-worker --server http://127.0.0.1:7433 --cpu-slots 4x2GiB
  loadmaster profile run --model vgg11 --image-size 32 \\
    --micro-batch-size 8 --micro-batches 4 --devices 4
  loadmaster plan recommend --profile PROFILE --devices 4x2GiB
  loadmaster plan validate PLAN

Exit codes:
    0  done                                  5  no plan fits the devices (NO_FEASIBLE_PLAN)
    1  the planner or the work failed        6  profile missing or incomplete
    2  command line or a value is wrong         (PROFILE_MISSING, PROFILE_INCOMPLETE)
    3  not found                             7  out of time
    4  not allowed                         130  interrupted with Ctrl-C; slow work goes on

Environment:
  LOADMASTER_ADDRESS, LOADMASTER_TIMEOUT   defaults of --address and --timeout
  NO_COLOR, CLICOLOR, CLICOLOR_FORCE       colours; there are none where output is not a terminal
  LC_ALL, LC_CTYPE, LANG                   without UTF-8 in them, tables and bars are drawn in ASCII";

pub(super) const SERVE: &str = "\
Examples:
  With a private Postgres, for this machine alone:
    loadmaster serve
  With a Postgres of yours, for workers on other machines:
    DATABASE_URL=postgres://db/loadmaster loadmaster serve --listen 10.0.0.1:7433
  On a free port, for a script that reads it from a file:
    loadmaster serve --listen 127.0.0.1:0 --address-file address";

pub(super) const MIGRATE: &str = "\
Examples:
  DATABASE_URL=postgres://db/loadmaster loadmaster migrate";

pub(super) const VERSION: &str = "\
Examples:
  loadmaster version
  loadmaster version -o json";

pub(super) const COMPLETION: &str = "\
Examples:
  loadmaster completion bash > ~/.local/share/bash-completion/completions/loadmaster
  loadmaster completion zsh > \"${fpath[1]}/_loadmaster\"
  loadmaster completion fish > ~/.config/fish/completions/loadmaster.fish";

pub(super) const PROFILE_RUN: &str = "\
Waits for the end and shows progress on standard error. Ctrl-C detaches; the profiling goes on.

Examples:
  Measure a small VGG11 for pipelines of 4 devices:
    loadmaster profile run --model vgg11 --image-size 32 \\
      --micro-batch-size 8 --micro-batches 4 --devices 4
  Measure a GPT-2 in bf16:
    loadmaster profile run --model gpt2 --blocks 24 --hidden-size 1024 --heads 16 \\
      --precision bf16 --optimizer adam \\
      --micro-batch-size 4 --micro-batches 8 --devices 8
  Measure as CAPTURE's authors did, whole partitionings at a time:
    loadmaster profile run --model vgg11 --campaign paper \\
      --micro-batch-size 8 --micro-batches 4 --devices 4
  In a script: queue, and come back later:
    operation=$(loadmaster profile run --model vgg11 --no-wait \\
      --micro-batch-size 8 --micro-batches 4 --devices 4)
    loadmaster operation wait \"$operation\" -o name";

pub(super) const PROFILE_LIST: &str = "\
Examples:
  loadmaster profile list
  loadmaster profile list --limit 0 -o name";

pub(super) const PROFILE_SHOW: &str = "\
Examples:
  loadmaster profile show vgg11-1a2b
  loadmaster profile show profiles/vgg11-1a2b -o json";

pub(super) const PROFILE_MEASUREMENTS: &str = "\
Examples:
  loadmaster profile measurements vgg11-1a2b
  loadmaster profile measurements vgg11-1a2b --limit 0 -o json";

pub(super) const PLAN_RECOMMEND: &str = "\
Examples:
  Four devices of 2 GiB:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB
  Four devices of 2 GiB, then two of 4 GiB, in pipeline order:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB,2x4GiB
  Would a larger micro-batch fit? Exit code 5 says no:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB \\
      --micro-batch-size 16 --dry-run";

pub(super) const PLAN_SHOW: &str = "\
Examples:
  loadmaster plan show 7f3c
  loadmaster plan show plans/7f3c -o json";

pub(super) const PLAN_LIST: &str = "\
Examples:
  loadmaster plan list
  loadmaster plan list --limit 10 -o yaml";

pub(super) const PLAN_VALIDATE: &str = "\
Waits for the end and shows progress on standard error. Ctrl-C detaches; the training goes on.

Examples:
  loadmaster plan validate 7f3c
  loadmaster plan validate 7f3c --iterations 20 --no-wait";

pub(super) const MODEL_LIST: &str = "\
Examples:
  loadmaster model list";

pub(super) const MODEL_SHOW: &str = "\
Examples:
  loadmaster model show vgg11-1f3a";

pub(super) const MODEL_CREATE: &str = "\
Examples:
  loadmaster model create --model vgg11 --image-size 32
  loadmaster model create --model gpt2 --blocks 48 --hidden-size 1600 --heads 25 --dry-run";

pub(super) const RUN_LIST: &str = "\
Examples:
  loadmaster run list --state parked
  loadmaster run list --operation 0197 --limit 0 -o json";

pub(super) const RUN_SHOW: &str = "\
Examples:
  loadmaster run show 0197";

pub(super) const WORKER_LIST: &str = "\
Examples:
  loadmaster worker list";

pub(super) const WORKER_SHOW: &str = "\
Examples:
  loadmaster worker show node1";

pub(super) const WORKER_DRAIN: &str = "\
Examples:
  loadmaster worker drain node1";

pub(super) const OPERATION_LIST: &str = "\
Examples:
  loadmaster operation list";

pub(super) const OPERATION_SHOW: &str = "\
Examples:
  loadmaster operation show 0197 -o json";

pub(super) const OPERATION_WAIT: &str = "\
Examples:
  loadmaster operation wait operations/0197
  loadmaster operation wait 0197 --wait-timeout 30m -o json";

pub(super) const OPERATION_CANCEL: &str = "\
Examples:
  loadmaster operation cancel 0197";

pub(super) const OPERATION_DELETE: &str = "\
Examples:
  loadmaster operation delete 0197";
