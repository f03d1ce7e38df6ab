//! Texts of `--help` below the options of client verbs: explanations and examples.

pub(crate) const PROFILE_RUN: &str = "\
The command waits for the end, and shows progress on standard error. Ctrl-C detaches; the profiling
continues.

Measurements of other profiles are reused if layer, device kind and software versions are equal. So
the same command with another --id takes no time. Runs that run out of memory are repeated at
smaller micro-batch sizes.

Examples:
  Profile a GPT-2 in bf16, for plans of any number of devices and any schedule:
    loadmaster profile run --model gpt2 --blocks 24 --hidden-size 1024 \\
      --heads 16 --precision bf16 --optimizer adam --micro-batch-size 4 \\
      --micro-batches 8
  Also for tensor parallelism (data parallelism needs no runs of its own):
    loadmaster profile run --model gpt2 --parallelism tensor \\
      --parallel-sizes 2,4 --micro-batch-size 4 --micro-batches 8
  Print how many runs that takes:
    loadmaster profile run --model gpt2 --parallelism tensor --dry-run \\
      --micro-batch-size 4 --micro-batches 8
  Measure whole pipelines, as in the paper of CAPTURE:
    loadmaster profile run --model vgg11 --profiling-mode whole-pipeline \\
      --device-count 16 --micro-batch-size 8 --micro-batches 4
  In a script: start, and wait later:
    operation=$(loadmaster profile run --model vgg11 --no-wait \\
      --micro-batch-size 8 --micro-batches 4)
    loadmaster operation wait \"$operation\" -o name";

pub(crate) const PROFILE_RESUME: &str = "\
Queues the runs that were cancelled or failed too often, and waits for them. Measurements stay.

Examples:
  loadmaster profile resume vgg11-1a2b";

pub(crate) const PROFILE_LIST: &str = "\
Examples:
  loadmaster profile list
  loadmaster profile list --limit 0 -o name
  loadmaster profile list --filter 'state = complete AND model:vgg'
  loadmaster profile list --since 7d --order-by 'end_time desc'";

pub(crate) const PROFILE_SHOW: &str = "\
Examples:
  loadmaster profile show vgg11-1a2b
  loadmaster profile show profiles/vgg11-1a2b -o json";

pub(crate) const PROFILE_LABEL: &str = "\
Examples:
  loadmaster profile label vgg11-1a2b team=vision stage=release
  loadmaster profile label vgg11-1a2b stage-";

pub(crate) const PROFILE_DELETE: &str = "\
The measurements stay: other profiles reuse them. A profile with plans, or with running work, is not
deleted; the error names them.

Examples:
  loadmaster profile delete vgg11-1a2b
  With all plans that were made from it, and their reports:
    loadmaster profile delete vgg11-1a2b --with-plans";

pub(crate) const PROFILE_EXPORT: &str = "\
Examples:
  Into a file, for another planner:
    loadmaster profile export vgg11-1a2b --to vgg11.json
  The origin of its measurements:
    loadmaster profile export vgg11-1a2b | jq .provenance";

pub(crate) const PROFILE_IMPORT: &str = "\
The document has the format loadmaster.profile/1. `profile export` writes it, or you make one from
the numbers of another tool, with measured stages or a per-layer table. Equal documents are stored
once.

Examples:
  loadmaster profile import vgg11.json
  loadmaster profile import opt-350m.json --id opt-350m-gh200
  Check it without storing it:
    my-profiler | loadmaster profile import - --dry-run
  Use it without storing it: planning verbs take a document in place of a name:
    loadmaster plan predict --profile opt-350m.json --pipeline-layout 13-13 \\
      --capacity 80GiB";

pub(crate) const PROFILE_MEASUREMENTS: &str = "\
Examples:
  loadmaster profile measurements vgg11-1a2b
  Stages that no predictor is fitted to, at one micro-batch size:
    loadmaster profile measurements vgg11-1a2b \\
      --filter 'held_out = true AND micro_batch_size = 4'
  The highest peaks:
    loadmaster profile measurements vgg11-1a2b \\
      --order-by 'peak desc' --limit 5
  One measurement, with every allocation:
    loadmaster profile measurements runs/12ab/measurements/0-0 -o json";

pub(crate) const PLAN_PREDICT_SHORT: &str = include_str!("help/plan-predict-short.txt");

pub(crate) const PLAN_PREDICT: &str = include_str!("help/plan-predict.txt");

pub(crate) const PLAN_RECOMMEND_SHORT: &str = include_str!("help/plan-recommend-short.txt");

pub(crate) const PLAN_RECOMMEND: &str = include_str!("help/plan-recommend.txt");

pub(crate) const PLAN_SHOW: &str = "\
A plan that a trial or a report contradicts starts with that: measured seconds or bytes outside the
predicted interval.

On a terminal, pictures follow the table: the stages on the devices, the memory of each device
against its capacity, and one iteration as a timeline. Some plans also have the residency of chunks,
or a Pareto front.

Examples:
  loadmaster plan show 7f3c
  The residency of chunks step by step, and the timeline of the iteration:
    loadmaster plan show 5c2d --picture=chunks
    loadmaster plan show 5c2d --picture=schedule
  The memory of the devices through a pipe, or no picture:
    loadmaster plan show 7f3c --picture=memory | less -R
    loadmaster plan show 7f3c --picture=none
  The iteration under another pipeline schedule:
    loadmaster plan show 7f3c --schedule interleaved --virtual-stages 2
  As a page with all pictures and tables, and as an image of the front:
    loadmaster plan show 7f3c --output plan.html
    loadmaster plan show 7f3c --picture=front --output front.svg --overwrite";

pub(crate) const PLAN_COMPARE: &str = "\
Memory and time of all plans are drawn on common scales. Warnings name what makes numbers
incomparable: other memory accountings, profiles or global batch sizes.

Examples:
  loadmaster plan compare 7f3c 8a4d
  loadmaster plan compare 7f3c 8a4d 9b5e --output plans.html
  loadmaster plan compare 7f3c 8a4d -o json | jq .warnings";

pub(crate) const PLAN_LIST: &str = "\
Examples:
  loadmaster plan list
  Plans of a profile, the fastest first:
    loadmaster plan list --filter 'profile = vgg11-1a2b' \\
      --order-by predicted_seconds
  Plans of the last week whose measured peak was above 20 GiB:
    loadmaster plan list --since 7d --filter 'measured_peak>20GiB'
  Plans for one of two frameworks that have a price:
    loadmaster plan list --order-by 'hourly_price, predicted_seconds desc' \\
      --filter 'framework=megatron OR framework=galvatron AND hourly_price:*'";

pub(crate) const PLAN_LABEL: &str = "\
Examples:
  loadmaster plan label 7f3c team=vision stage=release
  loadmaster plan label 7f3c stage-";

pub(crate) const PLAN_DELETE: &str = "\
A plan stays while another plan lists it as an alternative, while it is trained, or while it has
trials or reports; the error names them.

Examples:
  loadmaster plan delete 7f3c
  With its reports; the runs of its trials stay in `loadmaster run list`:
    loadmaster plan delete 7f3c --with-trials
  A report, as `loadmaster plan reports` names it:
    loadmaster plan delete plans/7f3c/reports/0197
  A placement, as `loadmaster plan placements` names it:
    loadmaster plan delete placements/12ab";

pub(crate) const PLAN_EXPORT: &str = "\
Exports are exact: a plan that the framework cannot express is an error that names each stage. Notes
name the framework's version that the export was tested with. A plan that does not fit with the
bytes that the framework adds is written too: exit code 5, or 8 if that is uncertain.

Examples:
  loadmaster plan export --list
  Frameworks whose exports were trained, with manifests for a JobSet:
    loadmaster plan export --list \\
      --filter 'verified = trained AND manifests:jobset'
  Into a folder, for a version:
    loadmaster plan export 7f3c --framework megatron@0.19 --to megatron
  The command that starts the training:
    loadmaster plan export 7f3c --framework megatron -o json | jq -r .command[]
  In the pods of a JobSet, within one rack:
    loadmaster plan export 7f3c --framework deepspeed --to run \\
      --manifest jobset --image registry.example.com/train:1 --queue training \\
      --required-topology cloud.provider.com/topology-rack";

pub(crate) const PLAN_PLACE: &str = "\
Ranks of one node of the plan stay on one node, and the shards of a tensor-parallel group always do.
Of the remaining orders of nodes, the planner takes the one with the shortest simulated iteration:
optimal, or with its optimality gap.

Examples:
  Inside a Slurm job, on nodes of the plan's cluster:
    loadmaster plan place 7f3c --nodes \"$SLURM_JOB_NODELIST\"
  On nodes that no cluster describes, with four devices each:
    loadmaster plan place 7f3c --nodes n[1-2] --device-indices 0,1,2,3
  The files of a framework for these devices:
    loadmaster plan export 7f3c --framework megatron --placement 12ab --to job";

pub(crate) const PLAN_PLACEMENTS: &str = "\
Examples:
  loadmaster plan placements 7f3c
  All placements on a node within a week, the slowest first:
    loadmaster plan placements --since 7d --filter nodes:gpu017 \\
      --order-by 'iteration_seconds desc'
  One placement, rank by rank:
    loadmaster plan placements placements/12ab -o json";

pub(crate) const PLAN_TRIAL: &str = "\
The command waits for the end, and shows progress on standard error. Ctrl-C detaches; the training
continues.

Examples:
  loadmaster plan trial 7f3c
  loadmaster plan trial 7f3c --iterations 20 --no-wait
  Train the plan and its two best alternatives, and print the best:
    loadmaster plan trial 7f3c --candidates 3
  Train two of its stages, each alone, where no worker can train all of them:
    loadmaster plan trial 7f3c --stage-indices 0,2";

pub(crate) const PLAN_REPORT: &str = "\
A report is shown with its plan, and it counts in `loadmaster plan errors`. Bytes count only in the
memory accounting of the prediction.

Of Megatron-LM's log, the first interval of each start is left out. Megatron-LM logs its memory
after the first intervals, and regularly with its option --log-memory-interval.

Examples:
  loadmaster plan report 7f3c --iteration-time 0.42s --iterations 200 \\
    --source \"megatron 0.15, job 123\"
  loadmaster plan report 7f3c --stage-peaks 71.2GiB,68.0GiB \\
    --accounting allocated \\
    --source \"torch.cuda.max_memory_allocated of job 123\"
  loadmaster plan report 7f3c --megatron-log train.log";

pub(crate) const PLAN_REPORTS: &str = "\
Examples:
  loadmaster plan reports 7f3c
  loadmaster plan reports plans/7f3c/reports/12ab";

pub(crate) const PLAN_ERRORS: &str = "\
Errors come from the newest 2,000 trials and the newest 2,000 reports. A calibration factor needs
three plans. Only `loadmaster plan recommend --calibrate` applies it. Bytes that memory
optimizations copy are predicted exactly. The time that a device waits for a copy may be 0, so its
errors are in seconds.

Examples:
  loadmaster plan errors
  loadmaster plan errors --device-kind \"NVIDIA H200\" -o json
  Errors of one predictor since November, with the pairs:
    loadmaster plan errors --pairs -o yaml \\
      --filter 'predictor:component AND create_time > 2026-11-01'
  Iterations, the most underestimated first:
    loadmaster plan errors --pairs -o json --order-by error \\
      --filter 'quantity = iteration-seconds'";

pub(crate) const MODEL_LIST: &str = "Examples:\n  loadmaster model list";

pub(crate) const MODEL_SHOW: &str = "\
Examples:
  loadmaster model show vgg11-1f3a
  loadmaster model show vgg11-1f3a -o layers > layers.json";

pub(crate) const MODEL_DELETE: &str = "\
A model that profiles, plans or runs reference is not deleted; the error names them.

Examples:
  loadmaster model delete vgg11-1f3a";

pub(crate) const MODEL_CREATE: &str = "\
Examples:
  loadmaster model create --model vgg11 --image-size 32
  loadmaster model create --model gpt2 --blocks 48 --hidden-size 1600 \\
    --heads 25 --dry-run
  loadmaster model create --model llama --blocks 8 --hidden-size 1024 \\
    --heads 16 --key-value-heads 4
  loadmaster model create --model amoebanet_d --cells 36 --filters 544";

pub(crate) const MODEL_IMPORT: &str = "\
A Hugging Face configuration may have the model type gpt2, bert, llama, mistral, qwen2 or qwen3. An
unsupported or unknown key is an error that names it; --ignore-unknown-keys ignores unknown keys. A
quantized checkpoint is imported as its unquantized model. A list of layers looks like this:
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
    loadmaster profile run --model-file config.json --micro-batch-size 1 \\
      --micro-batches 4";

pub(crate) const MODEL_CHUNKS: &str = "\
Chunks (PatrickStar) hold parameters and optimizer state in equal blocks of memory, which are moved
and sharded as wholes. One list of chunks holds parameters, and later their gradients. Another one
holds their fp32 copies, and one more each moment of the optimizer. A tensor has the same place in
all lists. Parameter groups (a weight with its bias) are never split: a group that does not fit into
the last chunk opens the next.

With --chunk-layout patrickstar each rank owns whole chunks, and padding chunks complete the last
group. By default each rank owns an equal part of every chunk. The command needs no profile, and
stores nothing.

Examples:
  The best chunk size for BERT with 10 billion parameters, on eight ranks:
    loadmaster model chunks --model bert --blocks 50 --hidden-size 4096 \\
      --heads 32 --sequence-length 1024 --ranks 8
  The same with the layout and the chunk sizes of the paper:
    loadmaster model chunks --model bert --blocks 50 --hidden-size 4096 \\
      --heads 32 --sequence-length 1024 --ranks 8 \\
      --chunk-layout patrickstar --candidate-sizes grid-a
  Of a given chunk size, or up to one:
    loadmaster model chunks --model gpt2 --chunk-size 48M
    loadmaster model chunks --model gpt2 --max-chunk-size 48M
  The chunk size alone, for a script; M is 2^20 elements:
    loadmaster model chunks --model vgg11-1f3a --optimizer sgd -o name";

pub(crate) const CLUSTER_IMPORT: &str = "\
Options add facts that the file does not contain; an error names missing ones. Other bandwidths are
assumed from the class of the link, as in NCCL, and marked as assumed. A cluster document or an NCCL
topology also describes copies to CPU memory and between devices, which memory optimizations need.

Examples:
  Written by hand; the example in deploy/clusters/ has all fields:
    loadmaster cluster import deploy/clusters/two-kinds.yaml --id prod
  The nodes and switches of Slurm:
    loadmaster cluster import /etc/slurm/topology.conf --devices-per-node 8 \\
      --device-kind 'NVIDIA H100 80GB HBM3' --device-memory 80GiB \\
      --network-bandwidth 400Gb/s
  The devices and links of one node, for several equal nodes:
    nvidia-smi topo -m | loadmaster cluster import - --nodes 'gpu[001-016]' \\
      --device-kind 'NVIDIA H100 80GB HBM3' --device-memory 80GiB
  Show it without storing it:
    loadmaster cluster import topo.xml --device-kind 'NVIDIA A100-SXM4-80GB' \\
      --device-memory 80GiB --dry-run";

pub(crate) const CLUSTER_CREATE: &str = "\
Links and networks without a bandwidth get the usual one of their kind, marked as assumed.

Examples:
  loadmaster cluster create --id prod --nodes 'gpu[001-016]' \\
    --devices-per-node 8 --device-kind 'NVIDIA H100 80GB HBM3' \\
    --device-memory 80GiB --usable-memory 76GiB --network-bandwidth 400Gb/s";

pub(crate) const CLUSTER_UPDATE: &str = "\
The name stays, and the content is replaced. Plans and placements do not change: they contain the
devices and nodes that they were made for. Later commands use the new content.

Examples:
  loadmaster cluster update prod -f deploy/clusters/two-kinds.yaml
  loadmaster cluster update prod --nodes 'gpu[001-032]' \\
    --devices-per-node 8 --device-kind 'NVIDIA H100 80GB HBM3' \\
    --device-memory 80GiB
  Only if it has not changed meanwhile:
    loadmaster cluster update prod -f prod.yaml \\
      --etag \"$(loadmaster cluster show prod -o json | jq -r .etag)\"";

pub(crate) const CLUSTER_DELETE: &str = "\
A cluster that plans or placements reference is not deleted; the error names them. A deleted id can
be used for a new cluster.

Examples:
  loadmaster cluster delete prod
  Plans and placements stay, and keep its name:
    loadmaster cluster delete prod --force";

pub(crate) const CLUSTER_DISCOVER: &str = "\
Each host of a connected worker is a node. Links between its devices have the bandwidth of the
newest `loadmaster cluster measure`, else that of the driver, else an assumed one; the output names
the origin. Copies to CPU memory and between devices are known where they were measured.

Examples:
  loadmaster cluster measure && loadmaster cluster discover --id lab \\
    --network-bandwidth 100Gb/s
  loadmaster cluster discover --device-kind 'NVIDIA H200' --dry-run";

pub(crate) const CLUSTER_MEASURE: &str = "\
Devices of one kind exchange tensors: every pair, then groups of 2, 4, 8, ... in all-reduces. Each
device then copies to CPU memory and back, and each CPU slot into the memory of the others: alone,
in both directions, and all at once. The CPU optimizer step is timed too. Runs wait for free
devices, as profiling runs do. Ctrl-C detaches; the measurement continues.

Examples:
  loadmaster cluster measure
  loadmaster cluster measure --workers node1,node2 --device-count 4";

pub(crate) const CLUSTER_LINKS: &str = "\
Examples:
  loadmaster cluster links --limit 1
  loadmaster cluster links --worker node1 -o json";

pub(crate) const CLUSTER_LIST: &str = "\
Examples:
  loadmaster cluster list
  loadmaster cluster list --filter 'device_kind:H200' -o name";

pub(crate) const CLUSTER_SHOW: &str = "\
Examples:
  loadmaster cluster show prod
  loadmaster cluster show prod -o json";

pub(crate) const SLURM_REQUEST: &str = "\
Nodes with different numbers or kinds of devices become components of a heterogeneous job. The
comment names the plan and its resources; Slurm's hooks in deploy/slurm compare them with the job.

Examples:
  loadmaster slurm request 7f3c
  With a site's name of the GPU type, and a network with blocks:
    loadmaster slurm request 7f3c --gpu-types 'NVIDIA H200=h200' \\
      --topology-plugin block";

pub(crate) const SLURM_SCRIPT: &str = "\
The job requests the resources of the plan, and writes the framework's files into the folder
loadmaster-ID beside its place of submission. It places the ranks on the allocated nodes, and
starts the command for each rank, with RANK, WORLD_SIZE, MASTER_ADDR and the other variables of
torchrun. Options of sbatch override its lines. All nodes must share the folder, and have
`loadmaster` installed.

Examples:
  loadmaster slurm script 7f3c --framework other -- python train.py > job.sh
  Where the framework's own script starts the ranks of a node:
    loadmaster slurm script 7f3c --framework megatron --command-per node -- \\
      bash loadmaster-7f3c/train.sh --train-iters 1000 > job.sh
  Submitted at once, with options of the site:
    loadmaster slurm script 7f3c --framework other -- python train.py \\
      | sbatch --partition train --time 12:00:00";

pub(crate) const SLURM_PLACE: &str = "\
Starts `loadmaster slurm node` on every node of the job, and requests the fastest placement of the
ranks on the devices. `loadmaster slurm exec` reads the file.

Examples:
  loadmaster slurm place
  loadmaster slurm place 7f3c --framework deepspeed \\
    --placement-file shared/job.json
  Nodes that no cluster describes:
    loadmaster slurm place --device-kind 'NVIDIA H100' --usable-memory 80GiB";

pub(crate) const SLURM_EXEC: &str = "\
Sets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR,
MASTER_PORT, the variables of the framework, and CUDA_VISIBLE_DEVICES, so that LOCAL_RANK is the
number of a rank's device. A task finds its rank by its node and its number there, so the order of
Slurm's tasks does not matter.

Examples:
  loadmaster slurm exec --placement-file shared/job.json -- python train.py
  Where the command starts the ranks of a node itself:
    loadmaster slurm exec --placement-file shared/job.json \\
      --command-per node -- torchrun --nnodes 4 --nproc-per-node 8 train.py";

pub(crate) const SLURM_NODE: &str = "\
Only the first task of a node prints. `loadmaster slurm place` starts it on all nodes.

Examples:
  loadmaster slurm node";

pub(crate) const RUN_LIST: &str = "\
Examples:
  loadmaster run list --state failed
  loadmaster run list --operation 0197
  loadmaster run list --filter 'state=failed AND attempt_count>2' --since 12h
  loadmaster run list --order-by 'device_seconds desc' --limit 10";

pub(crate) const RUN_SHOW: &str = "Examples:\n  loadmaster run show 0197";

pub(crate) const STATUS: &str = "\
The exit code is 0 if the planner responds.

Examples:
  loadmaster status
  loadmaster status --address planner.example:7433 -o json";

pub(crate) const WORKER_LIST: &str = "\
Examples:
  loadmaster worker list
  Connected workers with H200 GPUs:
    loadmaster worker list --filter 'device_kind:H200 AND state = alive'";

pub(crate) const WORKER_SHOW: &str = "Examples:\n  loadmaster worker show node1";

pub(crate) const WORKER_CORDON: &str = "Examples:\n  loadmaster worker cordon node1";

pub(crate) const WORKER_UNCORDON: &str = "Examples:\n  loadmaster worker uncordon node1";

pub(crate) const WORKER_DELETE: &str = "Examples:\n  loadmaster worker delete node1";

pub(crate) const OPERATION_LIST: &str = "\
Fields of filters: name, state, done, profile, plan, model, device_kind, create_time and end_time.
Operations are listed newest first: the standard request (google.longrunning.ListOperationsRequest)
has no field for another order.

Examples:
  loadmaster operation list
  Running operations and their changes, until Ctrl-C:
    loadmaster operation list --filter 'done = false' -w";

pub(crate) const OPERATION_SHOW: &str = "Examples:\n  loadmaster operation show 0197 -o json";

pub(crate) const OPERATION_WAIT: &str = "\
Examples:
  loadmaster operation wait operations/0197
  loadmaster operation wait 0197 --wait-timeout 30m -o json";

pub(crate) const OPERATION_CANCEL: &str = "Examples:\n  loadmaster operation cancel 0197";

pub(crate) const OPERATION_DELETE: &str = "Examples:\n  loadmaster operation delete 0197";

pub(crate) const HISTORY_PURGE: &str = "\
A resource is deleted when it is old enough, matches the filter, and no remaining resource
references it. So a plan with reports or trials stays, and so does a measurement of a profile. A
plan is deleted with its placements, which must be as old. The result names the references of
resources that stay. The purge continues after Ctrl-C. `loadmaster serve --purge-older-than` purges
regularly.

Examples:
  Show which resources would be deleted, and which references keep the others:
    loadmaster history purge --older-than 90d
  Delete them:
    loadmaster history purge --older-than 90d --force
  Plans of one team, without those that have the label `keep`:
    loadmaster history purge --older-than 30d --collections plans \\
      --force --filter 'labels.team = vision AND NOT labels:keep'
  Failed and cancelled operations, after two weeks:
    loadmaster history purge --older-than 14d --force \\
      --filter 'state = failed OR state = cancelled' --collections operations";

pub(crate) const HISTORY_WATCH: &str = "\
The planner compares the 50 newest rows of each collection, rows in progress, and all workers. There
is at most one line per second and collection. The command first prints the newest change of each
collection, and reconnects when the planner restarts.

Examples:
  loadmaster history watch
  A line of JSON for each change of runs or operations:
    loadmaster history watch --collections runs,operations -o json";
