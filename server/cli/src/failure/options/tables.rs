//! Which option fills which field, command by command. A test holds the tables to the protocol and to the options.

use super::OptionTable;

type Part = &'static [(&'static str, &'static str)];

const MODEL: Part = &[
    ("model", "--model"),
    ("source", "--model"),
    ("source.zoo", "--model"),
    ("source.zoo.*.image_size", "--image-size"),
    ("source.zoo.*.classes", "--classes"),
    ("source.zoo.*.classifier_width", "--classifier-width"),
    ("source.zoo.*.cells", "--cells"),
    ("source.zoo.*.filters", "--filters"),
    ("source.zoo.*.blocks", "--blocks"),
    ("source.zoo.*.hidden_size", "--hidden-size"),
    ("source.zoo.*.heads", "--heads"),
    ("source.zoo.*.key_value_heads", "--key-value-heads"),
    ("source.zoo.*.feed_forward_size", "--feed-forward-size"),
    ("source.zoo.*.sequence_length", "--sequence-length"),
    ("source.zoo.*.positions", "--positions"),
    ("source.zoo.*.vocabulary_size", "--vocabulary-size"),
    ("source.zoo.*.rotary_base", "--rotary-base"),
    ("source.zoo.*.untied_head", "--untied-head"),
    ("source.zoo.*.tied_head", "--tied-head"),
    ("source.zoo.*.dropout", "--dropout"),
    ("source.zoo.*.latent_size", "--latent-size"),
    ("source.zoo.*.bottom_size", "--bottom-size"),
    ("source.hugging_face.sequence_length", "--sequence-length"),
    ("source.hugging_face.ignore_unknown_keys", "--ignore-unknown-keys"),
];

const MODEL_FILE: Part = &[
    ("source.hugging_face", "--model-file:"),
    ("source.hugging_face.config", "--model-file:"),
    ("source.layer_list", "--model-file:"),
    ("source.layer_list.document", "--model-file:"),
];

const TRAINING: Part = &[
    ("training.precision", "--precision"),
    ("training.gradient_precision", "--gradient-precision"),
    ("training.optimizer", "--optimizer"),
    ("training.optimizer.learning_rate", "--learning-rate"),
    ("training.optimizer.weight_decay", "--weight-decay"),
    ("training.optimizer.*.momentum", "--momentum"),
    ("training.optimizer.*.beta1", "--beta1"),
    ("training.optimizer.*.beta2", "--beta2"),
    ("training.optimizer.*.epsilon", "--epsilon"),
    ("training.schedule", "--schedule"),
    ("training.micro_batch_size", "--micro-batch-size"),
    ("training.micro_batch_count", "--micro-batches"),
    ("training.global_batch_size", "--global-batch-size"),
    ("training.recompute", "--recompute"),
    ("training.seed", "--seed"),
];

/// What a profile measures. Answers about any command name these, as what a profile lacks.
const MEASURED: Part = &[
    ("profiling_mode", "--profiling-mode"),
    ("parallelisms", "--parallelism*"),
    ("parallel_sizes", "--parallel-sizes*"),
    ("reuse_contended", "--reuse-contended"),
];
pub(crate) const PROFILED: OptionTable = &[MEASURED];

const CAMPAIGN: Part = &[
    ("device_count", "--device-count"),
    ("single_device_scaling", "--scale-from-single-devices"),
    ("micro_batch_sizes", "--profile-micro-batch-sizes*"),
    ("iteration_count", "--iterations"),
    ("ignore_stored_runs", "--ignore-stored-runs"),
    ("device_kind", "--device-kind"),
    ("min_capacity_bytes", "--min-capacity"),
    ("host_memory_bytes", "--host-memory"),
    ("custom_profiler", "--custom-profiler"),
    ("profile_id", "--id"),
];

const REQUEST_ID: Part = &[("request_id", "--request-id")];
const RUN_TIME_LIMIT: Part = &[("run_time_limit", "--run-time-limit")];
const ETAG: Part = &[("etag", "--etag")];
const DRY_RUN: Part = &[("validate_only", "--dry-run")];
const PAGE: Part = &[("page_size", "--limit"), ("page_token", "--limit")];
const FOUND: Part = &[("filter", "--filter"), ("order_by", "--order-by")];

/// Of commands whose only argument is a name.
pub(crate) const NAME: OptionTable = &[&[("name", "NAME")]];
/// Of lists of which all options are those of every list.
pub(crate) const LIST: OptionTable = &[FOUND, PAGE];

pub(crate) const HISTORY_PURGE: OptionTable = &[
    &[
        ("older_than", "--older-than"),
        ("filter", "--filter"),
        ("collections", "--collections*"),
        ("force", "--force"),
    ],
    REQUEST_ID,
];
pub(crate) const HISTORY_WATCH: OptionTable = &[&[("collections", "--collections*")]];

pub(crate) const PROFILE_RUN: OptionTable =
    &[MODEL, MODEL_FILE, TRAINING, MEASURED, CAMPAIGN, REQUEST_ID, RUN_TIME_LIMIT, DRY_RUN];
pub(crate) const PROFILE_LABEL: OptionTable = &[&[
    ("profile", "NAME"),
    ("profile.etag", "--etag"),
    ("profile.labels", "CHANGE"),
    ("update_mask", "CHANGE"),
]];
pub(crate) const PROFILE_DELETE: OptionTable = &[&[("name", "NAME")], ETAG];
pub(crate) const PROFILE_RESUME: OptionTable = &[&[("name", "NAME")], REQUEST_ID];
pub(crate) const PROFILE_MEASUREMENTS: OptionTable = &[&[("name", "NAME"), ("parent", "NAME")], FOUND, PAGE];
pub(crate) const PROFILE_IMPORT: OptionTable = &[&[("document", "PATH:"), ("profile_id", "--id")], DRY_RUN];

pub(crate) const RUN_LIST: OptionTable =
    &[&[("operation", "--operation"), ("state", "--state")], FOUND, PAGE];

pub(crate) const PLAN_EXPORT: OptionTable = &[&[
    ("name", "NAME"),
    ("framework", "--framework"),
    ("framework_version", "--framework"),
    ("variant", "--variant"),
    ("placement", "--placement"),
    ("manifest", "--manifest"),
    ("manifest_options", "--manifest"),
    ("manifest_options.image", "--image"),
    ("manifest_options.namespace", "--namespace"),
    ("manifest_options.name", "--job-name"),
    ("manifest_options.queue", "--queue"),
    ("manifest_options.required_topology", "--required-topology"),
    ("manifest_options.preferred_topology", "--preferred-topology"),
    ("manifest_options.stage_topology", "--stage-topology"),
]];
/// Of what plans are exported for: the fields of its filter are not the options of an export.
pub(crate) const PLAN_EXPORTERS: OptionTable = &[FOUND];
pub(crate) const PLAN_PLACE: OptionTable = &[
    &[
        ("plan", "PLAN"),
        ("nodes", "--nodes"),
        ("nodes.name", "--nodes"),
        ("nodes.device_indices", "--device-indices"),
        ("nodes.device_kind", "--device-kind"),
        ("nodes.memory_bytes", "--usable-memory"),
        ("node_list", "--nodes"),
        ("cluster", "--cluster"),
        ("other_profiles", "--other-profiles*"),
    ],
    DRY_RUN,
];
pub(crate) const PLAN_PLACEMENTS: OptionTable = &[&[("name", "NAME"), ("plan", "NAME")], FOUND, PAGE];

pub(crate) const SLURM_PLACE: OptionTable = &[&[
    ("name", "PLAN"),
    ("plan", "PLAN"),
    // Slurm names the nodes and their devices.
    ("nodes", "--cluster"),
    ("nodes.name", "--cluster"),
    ("nodes.device_kind", "--device-kind"),
    ("nodes.memory_bytes", "--usable-memory"),
    ("cluster", "--cluster"),
    ("framework", "--framework"),
    ("framework_version", "--framework"),
]];
pub(crate) const SLURM_SCRIPT: OptionTable =
    &[&[("name", "PLAN"), ("framework", "--framework"), ("framework_version", "--framework")]];
pub(crate) const SLURM_REQUEST: OptionTable = &[&[("name", "PLAN")]];

/// Of predictions and recommendations. A request file sets the fields that have no option.
const PROBLEM: Part = &[
    ("problem.profile", "--profile"),
    ("problem.profile_document", "--profile:"),
    ("problem.framework", "--framework"),
    ("problem.micro_batch_size", "--micro-batch-size"),
    ("problem.micro_batch_count", "--micro-batches"),
    ("problem.schedule", "--schedule"),
    ("problem.recompute", "--recompute"),
    ("problem.predictor", "--predictor"),
    ("problem.safety_margin", "--safety-margin"),
    ("memory.stage_memory_optimizations", "--stage-optimization:stage"),
    ("memory.mode", "--memory-mode"),
    ("memory.host_memory_bytes", "--host-memory"),
    ("memory.copy_bandwidth", "--copy-rates:"),
];
const DEVICES: Part = &[("problem.devices", "--devices*")];
const GPUS: Part = &[("problem.devices", "--gpus*")];

const PREDICTED: Part = &[
    ("pipeline_layout", "--pipeline-layout"),
    ("pipeline_layout.stages", "--pipeline-layout*"),
    ("stage", "--stage"),
    ("stage.stage_count", "--stage-count"),
    ("stage.stage_index", "--stage-index"),
    ("plan", "--plan"),
    ("device_capacity_bytes", "--capacity"),
    ("memory.chunked_training", "--chunks:"),
];
pub(crate) const PLAN_PREDICT: OptionTable = &[PROBLEM, DEVICES, PREDICTED];
/// Where devices are named by their kinds.
pub(crate) const PLAN_PREDICT_GPUS: OptionTable = &[PROBLEM, GPUS, PREDICTED];

const RECOMMENDED: Part = &[
    ("problem.cluster", "--cluster"),
    ("problem.other_profiles", "--other-profiles*"),
    ("problem.framework_version", "--framework"),
    ("problem.communication_overlap", "--communication-overlap"),
    ("problem.global_batch_size", "--global-batch-size"),
    ("problem.virtual_stage_count", "--virtual-stages"),
    ("problem.calibrate", "--calibrate"),
    ("objective.kind", "--objective"),
    ("objective.hourly_prices", "--hourly-price*"),
    ("constraints.parallelism_layout", "--layout"),
    ("constraints.pipeline_layout", "--pipeline-layout"),
    ("constraints.pipeline_layout.stages", "--pipeline-layout*"),
    ("constraints.data_parallel_sizes", "--data-parallel-sizes*"),
    ("constraints.tensor_parallel_sizes", "--tensor-parallel-sizes*"),
    ("constraints.state_shardings", "--state-sharding"),
    ("constraints.min_stage_count", "--pipeline-parallel-sizes"),
    ("constraints.max_stage_count", "--pipeline-parallel-sizes"),
    ("constraints.micro_batch_sizes", "--micro-batch-size*"),
    ("constraints.schedules", "--schedule"),
    ("constraints.recompute_policies", "--recompute"),
    ("constraints.max_iteration_time", "--max-iteration-time"),
    ("constraints.max_peak_bytes", "--max-peak"),
    ("constraints.allow_idle_devices", "--allow-idle-devices"),
    ("memory.optimizations", "--optimizations*"),
    ("search.mode", "--search-mode"),
    ("search.time_limit", "--search-time"),
];
pub(crate) const PLAN_RECOMMEND: OptionTable = &[PROBLEM, DEVICES, RECOMMENDED, DRY_RUN];
/// Where devices are named by their kinds.
pub(crate) const PLAN_RECOMMEND_GPUS: OptionTable = &[PROBLEM, GPUS, RECOMMENDED, DRY_RUN];

pub(crate) const PLAN_SHOW: OptionTable = &[&[
    ("name", "NAME"),
    ("schedule", "--schedule"),
    ("virtual_stage_count", "--virtual-stages"),
    ("max_pass_count", "--picture"),
    ("communication_overlap", "--communication-overlap"),
]];
pub(crate) const PLAN_COMPARE: OptionTable = &[&[("names", "PLAN")]];
pub(crate) const PLAN_LABEL: OptionTable =
    &[&[("plan", "NAME"), ("plan.etag", "--etag"), ("plan.labels", "CHANGE"), ("update_mask", "CHANGE")]];
pub(crate) const PLAN_DELETE: OptionTable = &[&[("name", "NAME"), ("force", "--with-trials")], ETAG];
pub(crate) const PLAN_TRIAL: OptionTable = &[
    &[
        ("name", "NAME"),
        ("iteration_count", "--iterations"),
        ("plan_count", "--candidates"),
        ("stage_indices", "--stage-indices*"),
    ],
    RUN_TIME_LIMIT,
    REQUEST_ID,
];
pub(crate) const PLAN_REPORT: OptionTable = &[
    &[
        ("parent", "PLAN"),
        ("report", "--iteration-time"),
        ("report.iteration_seconds", "--iteration-time"),
        ("report.stage_peaks", "--stage-peaks*"),
        ("report.stage_peaks.accounting", "--accounting"),
        ("report.iteration_count", "--iterations"),
        ("report.device_kind", "--device-kind"),
        ("report.source", "--source"),
    ],
    REQUEST_ID,
];
pub(crate) const REPORTS: OptionTable = &[&[("name", "NAME"), ("parent", "NAME")], FOUND, PAGE];
pub(crate) const PLAN_ERRORS: OptionTable = &[&[("device_kind", "--device-kind")], FOUND, PAGE];

pub(crate) const MODEL_CREATE: OptionTable = &[MODEL, MODEL_FILE, DRY_RUN];
pub(crate) const MODEL_IMPORT: OptionTable = &[
    &[
        ("source", "PATH"),
        ("source.hugging_face", "PATH:"),
        ("source.hugging_face.config", "PATH:"),
        ("source.hugging_face.sequence_length", "--sequence-length"),
        ("source.hugging_face.ignore_unknown_keys", "--ignore-unknown-keys"),
        ("source.layer_list", "PATH:"),
        ("source.layer_list.document", "PATH:"),
    ],
    DRY_RUN,
];

pub(crate) const MODEL_CHUNKS: OptionTable = &[
    MODEL,
    MODEL_FILE,
    &[
        // What is wrong with all of it is wrong with the model.
        ("spec", "--model"),
        ("spec.precision", "--precision"),
        ("spec.optimizer", "--optimizer"),
        ("spec.optimizer.kind", "--optimizer"),
        ("spec.optimizer.*.momentum", "--momentum"),
        ("spec.layout", "--chunk-layout"),
        ("spec.size_candidates", "--candidate-sizes"),
        ("spec.chunk_elements", "--chunk-size"),
        ("spec.chunk_bytes", "--chunk-size"),
        ("spec.max_chunk_elements", "--max-chunk-size"),
        ("spec.rank_count", "--ranks"),
        ("spec.group_chunk_count", "--chunks-per-group"),
        ("spec.max_size_count", "--limit"),
    ],
];

/// Of a cluster of equal nodes.
const EQUAL_NODES: Part = &[
    ("cluster", "--nodes"),
    ("cluster.kinds", "--device-kind"),
    ("cluster.kinds.memory_bytes", "--device-memory"),
    ("cluster.kinds.usable_memory_bytes", "--usable-memory"),
    ("cluster.kinds.hourly_price", "--hourly-price"),
    ("cluster.nodes", "--nodes"),
    ("cluster.nodes.devices", "--devices-per-node"),
    ("cluster.nodes.devices.kind", "--device-kind"),
    ("cluster.nodes.link", "--link-bandwidth"),
    ("cluster.nodes.link.latency_seconds", "--link-latency"),
    ("cluster.nodes.network", "--network-bandwidth"),
    ("cluster.nodes.network.latency_seconds", "--network-latency"),
];
/// Of a cluster from a file.
const CLUSTER_FILE: Part = &[
    ("file.format", "--format"),
    ("file.options.device_kind", "--device-kind"),
    ("file.options.memory_bytes", "--device-memory"),
    ("file.options.usable_memory_bytes", "--usable-memory"),
    ("file.options.hourly_price", "--hourly-price"),
    ("file.options.devices_per_node", "--devices-per-node"),
    ("file.options.node_list", "--nodes"),
    ("file.options.link_bytes_per_second", "--link-bandwidth"),
    ("file.options.network_bytes_per_second", "--network-bandwidth"),
    ("file.options.topology", "--topology-name"),
];
const CLUSTER_ID: Part = &[("cluster_id", "--id")];

pub(crate) const CLUSTER_IMPORT: OptionTable =
    &[&[("file", "PATH:"), ("file.document", "PATH:")], CLUSTER_FILE, CLUSTER_ID, DRY_RUN];
pub(crate) const CLUSTER_CREATE: OptionTable = &[EQUAL_NODES, CLUSTER_ID, DRY_RUN];
pub(crate) const CLUSTER_UPDATE: OptionTable = &[
    &[
        ("cluster.name", "NAME"),
        ("cluster.etag", "--etag"),
        ("update_mask", "NAME"),
        ("file", "--file:"),
        ("file.document", "--file:"),
    ],
    EQUAL_NODES,
    CLUSTER_FILE,
    DRY_RUN,
];
pub(crate) const CLUSTER_DELETE: OptionTable = &[&[("name", "NAME"), ("force", "--force")], ETAG];
pub(crate) const CLUSTER_DISCOVER: OptionTable = &[
    &[
        ("workers", "--workers*"),
        ("device_kind", "--device-kind"),
        ("network_bytes_per_second", "--network-bandwidth"),
    ],
    CLUSTER_ID,
    DRY_RUN,
];
pub(crate) const CLUSTER_MEASURE: OptionTable =
    &[&[("workers", "--workers*"), ("device_count", "--device-count")], RUN_TIME_LIMIT, REQUEST_ID];
pub(crate) const CLUSTER_LINKS: OptionTable = &[&[("parent", "--worker")], FOUND, PAGE];
