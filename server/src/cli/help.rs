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
    0  done                                  5  it does not fit (NO_FEASIBLE_PLAN)
    1  the planner or the work failed        6  profile missing or incomplete
    2  command line or a value is wrong         (PROFILE_LACKS, PROFILE_INCOMPLETE)
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

What was measured before in the same environment, for whichever profile, is reused: repeating a command
under another --id costs nothing. Runs that do not fit are repeated at smaller micro-batch sizes.

Examples:
  Measure a GPT-2 in bf16, for plans of any number of devices and any schedule:
    loadmaster profile run --model gpt2 --blocks 24 --hidden-size 1024 --heads 16 \\
      --precision bf16 --optimizer adam --micro-batch-size 4 --micro-batches 8
  Plan with tensor parallelism, too (data parallelism needs no runs of its own):
    loadmaster profile run --model gpt2 --parallelism tensor --degrees 2,4 \\
      --micro-batch-size 4 --micro-batches 8
  How many runs would that be?
    loadmaster profile run --model gpt2 --parallelism tensor --dry-run \\
      --micro-batch-size 4 --micro-batches 8
  Measure as CAPTURE's authors did, whole partitionings at a time:
    loadmaster profile run --model vgg11 --campaign paper --devices 16 \\
      --micro-batch-size 8 --micro-batches 4
  In a script: queue, and come back later:
    operation=$(loadmaster profile run --model vgg11 --no-wait \\
      --micro-batch-size 8 --micro-batches 4)
    loadmaster operation wait \"$operation\" -o name";

pub(super) const PROFILE_RESUME: &str = "\
Queues the runs that were cancelled, or failed too often, and waits for them. What was measured stays.

Examples:
  loadmaster profile resume vgg11-1a2b
  loadmaster profile resume vgg11-1a2b --no-wait";

pub(super) const PROFILE_LIST: &str = "\
Examples:
  loadmaster profile list
  loadmaster profile list --limit 0 -o name";

pub(super) const PROFILE_SHOW: &str = "\
Examples:
  loadmaster profile show vgg11-1a2b
  loadmaster profile show profiles/vgg11-1a2b -o json";

pub(super) const PROFILE_EXPORT: &str = "\
Examples:
  To a file, for another planner:
    loadmaster profile export vgg11-1a2b --file vgg11.json
  What was measured, and where:
    loadmaster profile export vgg11-1a2b | jq .provenance";

pub(super) const PROFILE_IMPORT: &str = "\
The document is of the form loadmaster.profile/1: one that `profile export` wrote, or one made of another
tool's numbers, with measured stages or a per-layer table. The same document is stored once.

Examples:
  loadmaster profile import vgg11.json
  loadmaster profile import opt-350m.json --id opt-350m-gh200
  Is it valid?
    my-profiler | loadmaster profile import - --dry-run
  Without storing it first: planning takes a document in place of a name:
    loadmaster plan predict --profile opt-350m.json --partition 13-13 --capacity 80GiB";

pub(super) const PROFILE_MEASUREMENTS: &str = "\
Examples:
  loadmaster profile measurements vgg11-1a2b
  loadmaster profile measurements vgg11-1a2b --limit 0 -o json";

pub(super) const PLAN_PREDICT: &str = "\
Nothing is run: the answer comes from a profile. A device must hold the upper end of the interval,
so that what fits by prediction fits when it runs; --margin 0 asks for the bare prediction. With
--capacity or --devices, exit code 5 says that it does not fit.

A partitioning is the layers of each stage, joined by dashes; d or t with a degree shares a stage
among that many devices by data or tensor parallelism: 8-8d2-7t4-7 takes 1 + 2 + 4 + 1 devices.

Examples:
  Does this cut fit four devices of 24 GiB?
    loadmaster plan predict --profile vgg11-1a2b --partition 8-8-7-7 --capacity 24GiB
  What do layers 3 to 9 need on four devices that share their tensors?
    loadmaster plan predict --profile gpt2-3c4d --stage 3..9t4
  Would 1F1B or recomputation make it fit?
    loadmaster plan predict --profile gpt2-3c4d --partition 7-7-7-6 --capacity 40GiB \\
      --schedule 1f1b --recompute layer
  A stored plan with twice its micro-batch size, for a script:
    loadmaster plan predict --plan 7f3c --micro-batch-size 16 -o json | jq .verdict";

pub(super) const PLAN_RECOMMEND: &str = "\
Examples:
  Four devices of 2 GiB:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB
  Four devices of 2 GiB, then two of 4 GiB, in pipeline order:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB,2x4GiB
  Would a larger micro-batch fit? Exit code 5 says no:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB \\
      --micro-batch-size 16 --dry-run
  A cut of your own as a plan, to validate or compare it; the third stage is tensor parallel:
    loadmaster plan recommend --profile gpt2-3c4d --devices 5x24GiB --partition 9-9-9t2-9
  Under another schedule and recompute policy than was profiled (component predictor):
    loadmaster plan recommend --profile gpt2-3c4d --devices 4x24GiB \\
      --schedule 1f1b --recompute stage";

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
  loadmaster model create --model gpt2 --blocks 48 --hidden-size 1600 --heads 25 --dry-run
  loadmaster model create --model llama --blocks 8 --hidden-size 1024 --heads 16 --key-value-heads 4
  loadmaster model create --model amoebanet_d --cells 36 --filters 544";

pub(super) const MODEL_IMPORT: &str = "\
A Hugging Face configuration may be of the type gpt2, bert, llama, mistral, qwen2 or qwen3; what cannot be
computed is refused by its key. A list of layers looks like this:
  family: mine
  input: {kind: image, channels: 3, height: 32, width: 32}
  layers:
    - {name: conv1, kind: conv2d, in_channels: 3, out_channels: 8, kernel: 3, stride: 1, padding: 1}
    - {name: relu1, kind: relu}
    - {name: flatten, kind: flatten}
    - {name: fc1, kind: linear, in_features: 8192, out_features: 10}

Examples:
  loadmaster model import config.json --sequence-length 2048
  loadmaster model import layers.yaml --dry-run
  Profile it without storing it first:
    loadmaster profile run --model-file config.json --micro-batch-size 1 --micro-batches 4";

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
