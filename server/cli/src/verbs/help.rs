//! What the `--help` of client verbs teaches below the options: examples.

pub(crate) const PROFILE_RUN: &str = "\
Waits for the end and shows progress on standard error. Ctrl-C detaches; the profiling goes on.

What was measured before in the same environment, for whichever profile, is reused: repeating a
command under another --id costs nothing. Runs that do not fit are repeated at smaller micro-batch
sizes.

Examples:
  Measure a GPT-2 in bf16, for plans of any number of devices and any schedule:
    loadmaster profile run --model gpt2 --blocks 24 --hidden-size 1024 \\
      --heads 16 --precision bf16 --optimizer adam --micro-batch-size 4 \\
      --micro-batches 8
  Plan with tensor parallelism, too (data parallelism needs no runs of its own):
    loadmaster profile run --model gpt2 --parallelism tensor --degrees 2,4 \\
      --micro-batch-size 4 --micro-batches 8
  How many runs would that be?
    loadmaster profile run --model gpt2 --parallelism tensor --dry-run \\
      --micro-batch-size 4 --micro-batches 8
  Measure as CAPTURE's authors did, whole partitionings at a time:
    loadmaster profile run --model vgg11 --profiling-mode whole-pipeline \\
      --devices 16 --micro-batch-size 8 --micro-batches 4
  In a script: queue, and come back later:
    operation=$(loadmaster profile run --model vgg11 --no-wait \\
      --micro-batch-size 8 --micro-batches 4)
    loadmaster operation wait \"$operation\" -o name";

pub(crate) const PROFILE_RESUME: &str = "\
Queues the runs that were cancelled, or failed too often, and waits for them. What was measured
stays.

Examples:
  loadmaster profile resume vgg11-1a2b
  loadmaster profile resume vgg11-1a2b --no-wait";

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
  loadmaster profile label vgg11-1a2b stage-
  loadmaster profile list --filter 'labels.team=vision AND NOT labels:stage'";

pub(crate) const PROFILE_DELETE: &str = "\
What its runs measured stays, for the profiles that reuse it and for those to come. Refused while
plans were made from it or while it is being measured; the answer names them.

Examples:
  loadmaster profile delete vgg11-1a2b
  With all plans that were made from it, and what was reported of them:
    loadmaster profile delete vgg11-1a2b --with-plans";

pub(crate) const PROFILE_EXPORT: &str = "\
Examples:
  To a file, for another planner:
    loadmaster profile export vgg11-1a2b --file vgg11.json
  What was measured, and where:
    loadmaster profile export vgg11-1a2b | jq .provenance";

pub(crate) const PROFILE_IMPORT: &str = "\
The document is of the form loadmaster.profile/1: one that `profile export` wrote, or one made of
another tool's numbers, with measured stages or a per-layer table. The same document is stored
once.

Examples:
  loadmaster profile import vgg11.json
  loadmaster profile import opt-350m.json --id opt-350m-gh200
  Is it valid?
    my-profiler | loadmaster profile import - --dry-run
  Without storing it first: planning takes a document in place of a name:
    loadmaster plan predict --profile opt-350m.json --partition 13-13 \\
      --capacity 80GiB";

pub(crate) const PROFILE_MEASUREMENTS: &str = "\
Examples:
  loadmaster profile measurements vgg11-1a2b
  loadmaster profile measurements vgg11-1a2b --limit 0 -o json
  Stages that predictions are held against, at one micro-batch size:
    loadmaster profile measurements vgg11-1a2b \\
      --filter 'held_out = true AND micro_batch_size = 4'
  The devices that were fullest:
    loadmaster profile measurements vgg11-1a2b \\
      --order-by 'peak desc' --limit 5
  One of them, with every allocation:
    loadmaster profile measurements runs/12ab/measurements/0-0 -o json";

pub(crate) const PLAN_PREDICT: &str = "\
Nothing is run: the answer comes from a profile. A device must hold the upper end of the interval,
so that what fits by prediction fits when it runs; --margin 0 asks for the bare prediction. The
margin of seconds comes from stages that the profile timed besides; it is \"unknown\" where there
are none, and seconds whose margin is above 50 % are shown as \"unusable\". With --capacity or
--devices, exit code 5 reports that it does not fit, and exit code 8 that it is uncertain.

A partitioning is the layers of each stage, joined by dashes; d or t with a degree shares a stage
among that many devices by data or tensor parallelism: 8-8d2-7t4-7 takes 1 + 2 + 4 + 1 devices.

Examples:
  Does this cut fit four devices of 24 GiB?
    loadmaster plan predict --profile vgg11-1a2b --partition 8-8-7-7 \\
      --capacity 24GiB
  What do layers 3 to 9 need on four devices that share their tensors?
    loadmaster plan predict --profile gpt2-3c4d --stage 3..9t4
  Would 1F1B or recomputation make it fit?
    loadmaster plan predict --profile gpt2-3c4d --partition 7-7-7-6 \\
      --capacity 40GiB --schedule 1f1b --recompute layer
  And in chunks, if the whole model has no room on one device without them?
    loadmaster plan predict --profile gpt2-3c4d --partition 27 \\
      --capacity 40GiB --memory best --host-memory 256GiB
  A stored plan in chunks, of which one thing was changed by hand:
    loadmaster plan show 7f3c -o json | jq .stages[0].chunks > chunks.json
    loadmaster plan predict --plan 7f3c --chunks chunks.json
  A stored plan with twice its micro-batch size, for a script:
    loadmaster plan predict --plan 7f3c --micro-batch-size 16 -o json \\
      | jq .verdict";

pub(crate) const PLAN_RECOMMEND: &str = "\
The answer comes from a profile: nothing is run. It says what proves the plan, what came next,
what was rejected and why, what well-known rules need, and what shape and framework cost. The same
request always gives the same plan. Where nothing fits (exit code 5) it says which device lacks
how many bytes, and which options were tried and help. A plan that does not fit with the bytes of
its framework ends with exit code 5, one that is not certain to fit with 8. Both are stored.
Each warning starts with its severity: info, warning or error.

The micro-batch of a stage is shared by its replicas: with 2 replicas and --micro-batch-size 8
each takes 4. Where seconds decide, no device is given fewer samples than were profiled, unless
the request names its micro-batches.

Seconds carry a margin (3.44 s +-12.0 %), learnt from stages that the profile timed besides and
learnt nothing from; \"interval unknown\" stands where it has none, and \"unusable\" where it is above
50 %. \"proven by these predictions\" means that no other
plan that was asked for is predicted to be better: it is no promise that none trains faster.

Examples:
  The lowest peak memory on four devices of 2 GiB, one stage each:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB
  The fastest iteration of 256 samples that Megatron-LM can run on a cluster:
    loadmaster plan recommend --profile gpt2-3c4d --cluster pod1 \\
      --framework megatron@0.19 --objective min-iteration-time \\
      --global-batch 256
  Any degrees per stage (CAPTURE), and each stage recomputes or not:
    loadmaster plan recommend --profile gpt2-3c4d --devices 8x24GiB \\
      --shape per-stage-mesh --recompute none,layer --recompute-per-stage
  A search of ten minutes, with progress; Ctrl-C cancels it:
    loadmaster plan recommend --profile gpt2-3c4d --devices 64x80GiB \\
      --objective min-iteration-time --search-time 10m
  Memory against time: the whole front:
    loadmaster plan recommend --profile gpt2-3c4d --devices 8x24GiB \\
      --shape uniform-grid --objective pareto
  How few, or how cheap, devices train it at 2 seconds per iteration?
    loadmaster plan recommend --profile gpt2-3c4d --devices 16x24GiB \\
      --shape uniform-grid --objective min-devices --max-iteration 2s
    loadmaster plan recommend --profile gpt2-3c4d --cluster pod1 \\
      --shape uniform-grid --objective min-cost --price 'NVIDIA H200=4.50'
  How large a micro-batch fits? Which of these models? How many blocks?
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB \\
      --objective max-batch
    loadmaster plan recommend --candidate-profiles gpt2-s,gpt2-m,gpt2-l \\
      --devices 4x24GiB --objective max-model
    loadmaster plan recommend --profile gpt2-3c4d --devices 4x24GiB \\
      --objective max-model --grow blocks=1..48
  A model whose state is larger than the device; how many blocks may it have?
    loadmaster plan recommend --profile gpt2-3c4d --devices 1x24GiB \\
      --memory best --host-memory 200GiB
    loadmaster plan recommend --profile gpt2-3c4d --devices 1x24GiB \\
      --memory chunks --host-memory 200GiB --objective max-model \\
      --grow blocks=1..200
  Two stages on each device in turn (Megatron's virtual stages), made to fit:
    loadmaster plan recommend --profile gpt2-3c4d --devices 2x24GiB \\
      --virtual-stages 2 --actions recompute,cpu-offload --host-memory 64GiB
  As a paper searched:
    loadmaster plan recommend --profile vgg11-1a2b --devices 4x2GiB \\
      --search-mode mcap-bayesian
  A cut of your own as a plan, to validate or compare it; the third stage is tensor parallel:
    loadmaster plan recommend --profile gpt2-3c4d --devices 5x24GiB \\
      --partition 7-7-7t2-6";

pub(crate) const PLAN_SHOW: &str = "\
A plan that a trial or a report contradicts opens with that: measured seconds or bytes
outside of their predicted interval (of a tenth where none is known).

On a terminal the table is followed by pictures: the stages on the devices, the memory of each
device by component against its capacity, one iteration as a timeline, where the chunks of a plan
in chunks are and what its device holds step by step, and the front of a plan that has one.

Examples:
  loadmaster plan show 7f3c
  loadmaster plan show plans/7f3c -o json
  Where the chunks of a plan in chunks are, step by step; and its iteration:
  passes, what ranks exchange, both ways of the link, and steps on the host:
    loadmaster plan show 5c2d --picture=chunks
    loadmaster plan show 5c2d --picture=schedule
  Only the memory of the devices, also into a pipe; or no picture at all:
    loadmaster plan show 7f3c --picture=memory | less -R
    loadmaster plan show 7f3c --picture=none
  How would an iteration look under another schedule?
    loadmaster plan show 7f3c --schedule interleaved --virtual-stages 2
  As a page with all pictures and tables, and as an image of the front alone:
    loadmaster plan show 7f3c --output plan.html
    loadmaster plan show 7f3c --picture=front --output front.svg --force";

pub(crate) const PLAN_COMPARE: &str = "\
Memory and time of all plans are drawn on common scales. What makes their numbers incomparable,
other ledgers, profiles or global batches, is told as warnings.

Examples:
  loadmaster plan compare 7f3c 8a4d
  loadmaster plan compare 7f3c 8a4d 9b5e --output plans.html
  loadmaster plan compare 7f3c 8a4d -o json | jq .warnings";

pub(crate) const PLAN_LIST: &str = "\
Examples:
  loadmaster plan list
  loadmaster plan list --limit 10 -o yaml
  Plans of a profile, the fastest first:
    loadmaster plan list --filter 'profile = vgg11-1a2b' \\
      --order-by predicted_seconds
  Those of the last week that needed more than 20 GiB when they were trained:
    loadmaster plan list --since 7d --filter 'measured_peak>20GiB'
  For one of two frameworks, at a price:
    loadmaster plan list --order-by 'hourly_price, predicted_seconds desc' \\
      --filter 'framework=megatron OR framework=galvatron AND hourly_price:*'";

pub(crate) const PLAN_LABEL: &str = "\
Examples:
  loadmaster plan label 7f3c team=vision stage=release
  loadmaster plan label 7f3c stage-
  loadmaster plan list --filter 'labels.team=vision AND NOT labels:stage'";

pub(crate) const PLAN_DELETE: &str = "\
Refused while another plan names it among its alternatives, something was measured or reported of
it, or it is being trained; the answer names them.

Examples:
  loadmaster plan delete 7f3c
  With what was measured and reported of it; the runs stay in `loadmaster run list`:
    loadmaster plan delete 7f3c --with-trials
  A report with a wrong number, as `loadmaster plan reports` names it:
    loadmaster plan delete plans/7f3c/reports/0197
  A placement, as `loadmaster plan placements` names it:
    loadmaster plan delete placements/12ab";

pub(crate) const PLAN_EXPORT: &str = "\
Nothing is rounded: a plan that a framework cannot express is refused, stage by stage. What was
proved of an export with the framework's own code is said with it, and with which version that was:
a note tells where you name another. A plan that does not fit with the bytes that the framework adds
is written too, with exit code 5; exit code 8 means that it is uncertain.

Examples:
  loadmaster plan export --list
  Those that were seen to train, and what can start their processes in pods:
    loadmaster plan export --list \\
      --filter 'verified = trained AND manifests:jobset'
  Into a folder, for a version:
    loadmaster plan export 7f3c --framework megatron@0.19 --to megatron
  What a training is started with:
    loadmaster plan export 7f3c --framework megatron -o json | jq -r .command[]
  In the pods of a JobSet, near each other:
    loadmaster plan export 7f3c --framework deepspeed --to run \\
      --manifest jobset --image registry.example.com/train:1 \\
      --queue training --topology cloud.provider.com/topology-rack";

pub(crate) const PLAN_PLACE: &str = "\
Ranks that the plan has on one node stay on one node, and shards of the same tensors always do.
Among such orders of the nodes the one with the shortest simulated iteration is taken: proven, or
with its gap.

Examples:
  Inside a job of Slurm, on nodes of the plan's cluster:
    loadmaster plan place 7f3c --nodes \"$SLURM_JOB_NODELIST\"
  On nodes that no cluster describes, with four devices each:
    loadmaster plan place 7f3c --nodes n[1-2] --device-indices 0,1,2,3
  The files of a framework for those devices:
    loadmaster plan export 7f3c --framework megatron --placement 12ab --to job";

pub(crate) const PLAN_PLACEMENTS: &str = "\
Examples:
  loadmaster plan placements 7f3c
  Whatever was put on a node within a week, the slowest first:
    loadmaster plan placements --since 7d --filter nodes:gpu017 \\
      --order-by 'iteration_seconds desc'
  One of them, rank by rank:
    loadmaster plan placements placements/12ab -o json";

pub(crate) const PLAN_TRIAL: &str = "\
Waits for the end and shows progress on standard error. Ctrl-C detaches; the training goes on.

Examples:
  loadmaster plan trial 7f3c
  loadmaster plan trial 7f3c --iterations 20 --no-wait
  Train the plan and its two best alternatives, and take the one that measures best:
    loadmaster plan trial 7f3c --candidates 3
  Train two of its stages, each alone, where no worker could hold all of them:
    loadmaster plan trial 7f3c --stage 0 --stage 2";

pub(crate) const PLAN_REPORT: &str = "\
What is reported is shown with the plan and counts in `loadmaster plan errors`, bytes only where
their ledger is the prediction's: numbers of different ledgers are never compared.

Of Megatron-LM's log the first interval of each start is left out. It tells its memory behind the
first intervals, and with its --log-memory-interval later, too.

Examples:
  loadmaster plan report 7f3c --iteration 0.42s --iterations 200 \\
    --source \"megatron 0.15, job 123\"
  loadmaster plan report 7f3c --peak 71.2GiB,68.0GiB --ledger allocated \\
    --source \"torch.cuda.max_memory_allocated of job 123\"
  loadmaster plan report 7f3c --megatron-log train.log";

pub(crate) const PLAN_REPORTS: &str = "\
Examples:
  loadmaster plan reports 7f3c
  loadmaster plan reports plans/7f3c/reports/12ab
  loadmaster plan reports --limit 0 -o json";

pub(crate) const PLAN_ERRORS: &str = "\
Learnt from the newest 2,000 trials and the newest 2,000 reports. A correction needs three plans,
and is applied where `loadmaster plan recommend --correct` asks for it, never otherwise. What
memory actions and chunks copy is predicted to the byte; seconds waited for it may be 0, so their
errors are seconds.

Examples:
  loadmaster plan errors
  loadmaster plan errors --device-kind \"NVIDIA H200\" -o json
  Of one predictor since November, with the pairs:
    loadmaster plan errors --with-pairs -o yaml \\
      --filter 'predictor:component AND create_time > 2026-11-01'
  The seconds that were predicted too low by most, first:
    loadmaster plan errors --with-pairs -o json --order-by error \\
      --filter 'quantity = iteration-seconds'
  Waits for the host that were predicted too low by most, first:
    loadmaster plan errors --with-pairs -o json --order-by difference \\
      --filter 'quantity = waited-seconds AND link = host'";

pub(crate) const MODEL_LIST: &str = "\
Examples:
  loadmaster model list";

pub(crate) const MODEL_SHOW: &str = "\
Examples:
  loadmaster model show vgg11-1f3a
  loadmaster model show vgg11-1f3a -o layers > layers.json";

pub(crate) const MODEL_DELETE: &str = "\
Refused while profiles, plans or runs reference it; the error names them.

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
A Hugging Face configuration may be of the type gpt2, bert, llama, mistral, qwen2 or qwen3. Keys
that cannot be computed, and unknown ones, are refused by name. --ignore-unknown-keys plans without
unknown keys. Of a quantized checkpoint the unquantized model is planned. A list of layers looks
like this:
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
Chunks (PatrickStar) hold parameters and optimizer state in a few pieces of memory that move and
are shared as wholes. One list of chunks is for parameters, whose space their gradients take, one
for their fp32 copy, and one for each moment of the optimizer; a tensor has the same place in
every list. Atoms, a weight with its bias, are taken in order and never cut: what does not fit
into the last chunk opens the next. Of PatrickStar's chunks each rank owns whole ones, and dummies
fill up the last group; by default ranks own equal parts of what is in the chunks. Needs no
profile, and stores nothing.

Examples:
  The best chunk size for BERT with 10 billion parameters, on eight ranks:
    loadmaster model chunks --model bert --blocks 50 --hidden-size 4096 \\
      --heads 32 --sequence-length 1024 --ranks 8
  The same as the paper packs and shares it, and at a size of one's own:
    loadmaster model chunks --model bert --blocks 50 --hidden-size 4096 \\
      --heads 32 --sequence-length 1024 --ranks 8 --layout patrickstar \\
      --sizes grid-a
    loadmaster model chunks --model bert --blocks 50 --hidden-size 4096 \\
      --heads 32 --chunk-size 288M --layout patrickstar
  Of a small model, with chunks of which several fit a device:
    loadmaster model chunks --model gpt2 --max-chunk-size 48M
  The chunk size alone, for a script; M is 2^20 elements:
    loadmaster model chunks --model vgg11-1f3a --optimizer sgd -o name
  All that is known of each size:
    loadmaster model chunks --model gpt2 --precision fp32 -o json | jq .sizes";

pub(crate) const CLUSTER_IMPORT: &str = "\
What a file does not say comes from the options; the error names what is missing. Bandwidths that
neither says are assumed from the class of the link, as NCCL reckons, and shown as assumed. A
document or NCCL's topology also says how memory actions copy: links to the host, what devices
share, and copies into each other.

Examples:
  Written by hand; the example in deploy/clusters/ shows all that can be said:
    loadmaster cluster import deploy/clusters/two-kinds.yaml --id prod
  The nodes and switches of Slurm:
    loadmaster cluster import /etc/slurm/topology.conf --devices-per-node 8 \\
      --device-kind 'NVIDIA H100 80GB HBM3' --memory 80GiB --network 400Gb/s
  The devices and links of one node, for all nodes that are like it:
    nvidia-smi topo -m | loadmaster cluster import - --nodes 'gpu[001-016]' \\
      --device-kind 'NVIDIA H100 80GB HBM3' --memory 80GiB
  Look at it first:
    loadmaster cluster import topo.xml --device-kind 'NVIDIA A100-SXM4-80GB' \\
      --memory 80GiB --dry-run";

pub(crate) const CLUSTER_CREATE: &str = "\
Examples:
  loadmaster cluster create --id prod --nodes 'gpu[001-016]' \\
    --devices-per-node 8 --device-kind 'NVIDIA H100 80GB HBM3' --memory 80GiB \\
    --usable-memory 76GiB --network 400Gb/s";

pub(crate) const CLUSTER_UPDATE: &str = "\
The name stays, and the content is replaced. Plans and placements do not change: they contain the
devices and nodes that they were made for. Later commands use the new content.

Examples:
  loadmaster cluster update prod -f deploy/clusters/two-kinds.yaml
  loadmaster cluster update prod --nodes 'gpu[001-032]' \\
    --devices-per-node 8 --device-kind 'NVIDIA H100 80GB HBM3' --memory 80GiB
  Only if nobody else has changed it since:
    loadmaster cluster update prod -f prod.yaml \\
      --etag \"$(loadmaster cluster show prod -o json | jq -r .etag)\"";

pub(crate) const CLUSTER_DELETE: &str = "\
Refused while plans or placements reference it; the error names them. The id can be used again.

Examples:
  loadmaster cluster delete prod
  Plans and placements stay, and keep its name:
    loadmaster cluster delete prod --force";

pub(crate) const CLUSTER_DISCOVER: &str = "\
Each host of a connected worker is a node. Links between its devices are as `loadmaster cluster
measure` measured them last, or else as the driver describes them, or else assumed; each says
which. How memory actions copy is known where it was measured.

Examples:
  loadmaster cluster measure && loadmaster cluster discover --id lab \\
    --network 100Gb/s
  loadmaster cluster discover --device-kind 'NVIDIA H200' --dry-run";

pub(crate) const CLUSTER_MEASURE: &str = "\
Each worker's devices of a kind exchange tensors: every pair, then groups of 2, 4, 8, ... in
all-reduces. Then each device, one alone too, copies as memory actions do: to the host's memory
and back, and into the memory of each other CPU slot, alone, both ways at once and all at once;
and the host updates parameters as it does for trainings in chunks. Runs wait for the devices as
those of profiles do. Ctrl-C detaches; the measuring goes on.

Examples:
  loadmaster cluster measure
  loadmaster cluster measure --workers node1,node2 --devices 4";

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
Nodes with other numbers of devices, or devices of other kinds, are components of a heterogeneous
job. The comment says which plan is asked for, and what, so that Slurm's hooks in deploy/slurm can
compare.

Examples:
  loadmaster slurm request 7f3c
  Where Slurm has a name of its own for the GPUs, and blocks for its network:
    loadmaster slurm request 7f3c --gpu-type 'NVIDIA H200=h200' \\
      --topology block";

pub(crate) const SLURM_SCRIPT: &str = "\
The job asks for what the plan needs, writes the framework's files into loadmaster-ID beside where
it was submitted, learns which nodes it got, and starts the command for every rank with RANK,
WORLD_SIZE, MASTER_ADDR and the others that torchrun sets. Options of sbatch win over its lines.
The folder must be one that all nodes share, and `loadmaster` a program that they have.

Examples:
  loadmaster slurm script 7f3c --framework other -- python train.py > job.sh
  Where the framework's own script starts the ranks of a node:
    loadmaster slurm script 7f3c --framework megatron --per node -- \\
      bash loadmaster-7f3c/train.sh --train-iters 1000 > job.sh
  Submitted at once, with options of the site:
    loadmaster slurm script 7f3c --framework other -- python train.py \\
      | sbatch --partition train --time 12:00:00";

pub(crate) const SLURM_PLACE: &str = "\
Asks a task on every node what it got, with `loadmaster slurm node`, and the planner for the
fastest way to put the ranks there. `loadmaster slurm exec` reads the file.

Examples:
  loadmaster slurm place
  loadmaster slurm place 7f3c --framework deepspeed --placement shared/job.json
  Nodes that no cluster describes:
    loadmaster slurm place --device-kind 'NVIDIA H100' --memory 80GiB";

pub(crate) const SLURM_EXEC: &str = "\
Sets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR,
MASTER_PORT, what the framework needs, and CUDA_VISIBLE_DEVICES so that the device of a rank is the
one whose number is LOCAL_RANK. A task is known by its node and its number there: in which order
Slurm lays tasks out does not matter.

Examples:
  loadmaster slurm exec --placement shared/job.json -- python train.py
  Where the command starts the ranks of a node itself:
    loadmaster slurm exec --placement shared/job.json --per node -- \\
      torchrun --nnodes 4 --nproc-per-node 8 train.py";

pub(crate) const SLURM_NODE: &str = "\
Only the first task of a node prints; `loadmaster slurm place` starts it on all of them.

Examples:
  loadmaster slurm node";

pub(crate) const RUN_LIST: &str = "\
Examples:
  loadmaster run list --state failed
  loadmaster run list --operation 0197 --limit 0 -o json
  loadmaster run list --filter 'state=failed AND attempt_count>2' --since 12h
  loadmaster run list --order-by 'device_seconds desc' --limit 10";

pub(crate) const RUN_SHOW: &str = "\
Examples:
  loadmaster run show 0197";

pub(crate) const STATUS: &str = "\
The exit code is 0 if the planner responds.

Examples:
  loadmaster status
  loadmaster status --address planner.example:7433 -o json";

pub(crate) const WORKER_LIST: &str = "\
Examples:
  loadmaster worker list
  Who has such GPUs, and works?
    loadmaster worker list --filter 'device_kind:H200 AND state = alive'";

pub(crate) const WORKER_SHOW: &str = "\
Examples:
  loadmaster worker show node1";

pub(crate) const WORKER_CORDON: &str = "\
Examples:
  loadmaster worker cordon node1";

pub(crate) const WORKER_UNCORDON: &str = "\
Examples:
  loadmaster worker uncordon node1";

pub(crate) const WORKER_DELETE: &str = "\
Examples:
  loadmaster worker delete node1";

pub(crate) const OPERATION_LIST: &str = "\
Filters know name, state, done, profile, plan, model, device_kind, create_time and end_time. The
order is one, the newest first: the standard request (google.longrunning.ListOperationsRequest)
has no field for another.

Examples:
  loadmaster operation list
  What runs, and what becomes of it, until Ctrl-C:
    loadmaster operation list --filter 'done = false' -w";

pub(crate) const OPERATION_SHOW: &str = "\
Examples:
  loadmaster operation show 0197 -o json";

pub(crate) const OPERATION_WAIT: &str = "\
Examples:
  loadmaster operation wait operations/0197
  loadmaster operation wait 0197 --wait-timeout 30m -o json";

pub(crate) const OPERATION_CANCEL: &str = "\
Examples:
  loadmaster operation cancel 0197";

pub(crate) const OPERATION_DELETE: &str = "\
Examples:
  loadmaster operation delete 0197";

pub(crate) const HISTORY_PURGE: &str = "\
A resource is deleted when it is old enough, matches the filter, and no remaining resource
references it: a plan with reports or trials stays, and so does a measurement of a profile. A plan
is deleted with its placements, which must be as old. The result names the references of resources
that stay. The planner does the work, also after Ctrl-C. A planner that was started with
--purge-older-than purges from time to time.

Examples:
  Which resources would be deleted, and which references keep the others?
    loadmaster history purge --older-than 90d
  Delete them:
    loadmaster history purge --older-than 90d --force
  Plans of one team, without those that have the label `keep`:
    loadmaster history purge --older-than 30d --of plans --force \\
      --filter 'labels.team = vision AND NOT labels:keep'
  Failed and cancelled operations, after two weeks:
    loadmaster history purge --older-than 14d --force \\
      --filter 'state = failed OR state = cancelled' --of operations";
