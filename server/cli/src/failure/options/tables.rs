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
    ("training.micro_batches", "--micro-batches"),
    ("training.global_batch_size", "--global-batch-size"),
    ("training.recompute", "--recompute"),
    ("training.seed", "--seed"),
];

const CAMPAIGN: Part = &[
    ("campaign", "--campaign"),
    ("devices", "--devices"),
    ("parallelisms", "--parallelism*"),
    ("degrees", "--degrees*"),
    ("scale_by_pipeline", "--scale-by-pipeline"),
    ("micro_batch_sizes", "--profile-micro-batch-sizes*"),
    ("iterations", "--iterations"),
    ("fresh", "--fresh"),
    ("reuse_contended", "--reuse-contended"),
    ("device_kind", "--device-kind"),
    ("min_capacity_bytes", "--min-capacity"),
    ("host_memory_bytes", "--host-memory"),
    ("command", "--command"),
    ("profile_id", "--id"),
];

/// Of a training in chunks that is asked for, with what the request calls its choices.
macro_rules! chunks {
    ($choices:literal) => {
        &[
            ("memory_mode", "--memory"),
            // What is wrong with all of it is wrong with training so.
            ($choices, "--memory"),
            (concat!($choices, ".policy"), "--chunk-policy"),
            (concat!($choices, ".chunk_elements"), "--chunk-size*"),
            (concat!($choices, ".orders"), "--chunk-order*"),
            (concat!($choices, ".host_copies"), "--host-copy*"),
            (concat!($choices, ".embeddings"), "--chunk-embedding*"),
            (concat!($choices, ".activations"), "--chunk-activations*"),
            (concat!($choices, ".on_device"), "--chunks-on-device"),
            ("host_update_rate", "--host-update"),
        ]
    };
}

const REQUEST_ID: Part = &[("request_id", "--request-id")];
const RUN_DEADLINE: Part = &[("run_deadline_seconds", "--run-deadline")];
const DRY_RUN: Part = &[("validate_only", "--dry-run")];
const PAGE: Part = &[("page_size", "--limit"), ("page_token", "--limit")];
const FOUND: Part = &[("filter", "--filter"), ("order_by", "--order-by")];

/// Of commands whose only argument is a name.
pub(crate) const NAME: OptionTable = &[&[("name", "NAME")]];
/// Of a worker that is drained.
pub(crate) const WORKER_DRAIN: OptionTable = &[&[("name", "NAME"), ("undo", "--undo")]];
/// Of lists of which all options are those of every list.
pub(crate) const LIST: OptionTable = &[FOUND, PAGE];

pub(crate) const HISTORY_PRUNE: OptionTable =
    &[&[("older_than", "--older-than"), ("filter", "--filter"), ("collections", "--of*")], DRY_RUN];

pub(crate) const PROFILE_RUN: OptionTable =
    &[MODEL, MODEL_FILE, TRAINING, CAMPAIGN, REQUEST_ID, RUN_DEADLINE, DRY_RUN];
pub(crate) const PROFILE_LABEL: OptionTable =
    &[&[("profile", "NAME"), ("profile.labels", "CHANGE"), ("update_mask", "CHANGE")]];
pub(crate) const PROFILE_RESUME: OptionTable = &[&[("name", "NAME")], REQUEST_ID];
pub(crate) const PROFILE_MEASUREMENTS: OptionTable = &[&[("parent", "NAME")], FOUND, PAGE];
pub(crate) const PROFILE_IMPORT: OptionTable = &[&[("document", "PATH:"), ("profile_id", "--id")], DRY_RUN];

pub(crate) const RUN_LIST: OptionTable =
    &[&[("operation", "--operation"), ("state", "--state")], FOUND, PAGE];

pub(crate) const PLAN_EXPORT: OptionTable = &[&[
    ("name", "NAME"),
    ("launcher", "--launcher"),
    ("launcher_version", "--launcher"),
    ("variant", "--variant"),
    ("binding", "--binding"),
    ("envelope", "--envelope"),
    ("envelope_options", "--envelope"),
    ("envelope_options.image", "--image"),
    ("envelope_options.namespace", "--namespace"),
    ("envelope_options.name", "--job-name"),
    ("envelope_options.queue", "--queue"),
    ("envelope_options.required_topology", "--topology"),
    ("envelope_options.preferred_topology", "--prefer-topology"),
    ("envelope_options.stage_topology", "--stage-topology"),
]];
/// Of what plans are exported for: the fields of its filter are not the options of an export.
pub(crate) const PLAN_EXPORTERS: OptionTable = &[FOUND];
pub(crate) const PLAN_BIND: OptionTable = &[
    &[
        ("plan", "PLAN"),
        ("nodes", "--nodes"),
        ("nodes.name", "--nodes"),
        ("nodes.device_indices", "--device-indices"),
        ("nodes.device_kind", "--device-kind"),
        ("nodes.memory_bytes", "--memory"),
        ("node_list", "--nodes"),
        ("cluster", "--cluster"),
        ("other_profiles", "--other-profile"),
    ],
    DRY_RUN,
];
pub(crate) const PLAN_BINDINGS: OptionTable = &[&[("name", "NAME"), ("plan", "NAME")], FOUND, PAGE];

pub(crate) const SLURM_BIND: OptionTable = &[&[
    ("name", "PLAN"),
    ("plan", "PLAN"),
    // Slurm names the nodes and their devices.
    ("nodes", "--cluster"),
    ("nodes.name", "--cluster"),
    ("nodes.device_kind", "--device-kind"),
    ("nodes.memory_bytes", "--memory"),
    ("cluster", "--cluster"),
    ("launcher", "--launcher"),
    ("launcher_version", "--launcher"),
]];
pub(crate) const SLURM_SCRIPT: OptionTable =
    &[&[("name", "PLAN"), ("launcher", "--launcher"), ("launcher_version", "--launcher")]];
pub(crate) const SLURM_REQUEST: OptionTable = &[&[("name", "PLAN")]];

pub(crate) const PLAN_PREDICT: OptionTable = &[
    &[
        ("profile", "--profile"),
        ("profile_document", "--profile:"),
        ("partitioning", "--partition"),
        ("partitioning.stages", "--partition*"),
        ("stage", "--stage"),
        ("stage.stage_count", "--stage-count"),
        ("stage.stage_index", "--stage-index"),
        ("plan", "--plan"),
        ("micro_batch_size", "--micro-batch-size"),
        ("micro_batches", "--micro-batches"),
        ("schedule", "--schedule"),
        ("recompute", "--recompute"),
        ("devices", "--devices"),
        ("capacity_bytes", "--capacity"),
        ("predictor", "--predictor"),
        ("margin", "--margin"),
        ("launcher", "--launcher"),
        ("stage_actions", "--action:stage"),
        ("chunks", "--chunks:"),
    ],
    chunks!("chunk_choices"),
    &[("host_memory_bytes", "--host-memory"), ("copy_pace", "--copy-rates:")],
];

pub(crate) const PLAN_RECOMMEND: OptionTable = &[
    &[
        ("profile", "--profile"),
        ("profile_document", "--profile:"),
        ("devices", "--devices*"),
        ("cluster", "--cluster"),
        ("other_profiles", "--other-profiles*"),
        ("hourly_prices", "--price*"),
        ("objective", "--objective"),
        ("shape", "--shape"),
        ("launcher", "--launcher"),
        ("launcher_version", "--launcher-version"),
        ("transfers", "--transfers"),
        ("memory_unit", "--memory-unit"),
        ("candidate_profiles", "--candidate-profiles*"),
        ("micro_batch_size", "--micro-batch-size"),
        ("micro_batches", "--micro-batches"),
        ("global_batch_size", "--global-batch"),
        ("schedule", "--schedule"),
        ("recompute", "--recompute"),
        ("margin", "--margin"),
        ("predictor", "--predictor"),
        ("correct", "--correct"),
        ("search_mode", "--search-mode"),
        ("search_seed", "--search-seed"),
        ("search_seconds", "--deadline"),
        ("alternatives", "--alternatives"),
        ("brief", "--brief"),
        ("merge_layers_to", "--merge-layers-to"),
        ("partitioning", "--partition"),
        ("partitioning.stages", "--partition*"),
        ("stage_actions", "--action:stage"),
        ("copy_pace", "--copy-rates:"),
        ("memory_ways", "--actions*"),
        ("memory_blocks", "--swap*"),
        ("smallest_block_bytes", "--smallest-block"),
        ("host_memory_bytes", "--host-memory"),
    ],
    chunks!("chunks"),
    &[("grow", "--grow")],
    &[
        ("constraints.data_degrees", "--data-degrees*"),
        ("constraints.tensor_degrees", "--tensor-degrees*"),
        ("constraints.micro_batch_sizes", "--micro-batch-sizes*"),
        ("constraints.schedules", "--schedule"),
        ("virtual_stages", "--virtual-stages"),
        ("constraints.recompute", "--recompute"),
        ("constraints.recompute_per_stage", "--recompute-per-stage"),
        ("constraints.min_stages", "--min-stages"),
        ("constraints.max_stages", "--max-stages"),
        ("constraints.pins", "--pin*"),
        ("constraints.keep_together", "--keep-together*"),
        ("constraints.cut_after", "--cut-after*"),
        ("constraints.excluded_devices", "--exclude*"),
        ("constraints.spanning", "--spanning"),
        ("constraints.max_iteration_seconds", "--max-iteration"),
        ("constraints.max_peak_bytes", "--max-peak"),
        ("constraints.allow_idle_devices", "--allow-idle-devices"),
    ],
    DRY_RUN,
];

pub(crate) const PLAN_SHOW: OptionTable = &[&[
    ("name", "NAME"),
    ("schedule", "--schedule"),
    ("virtual_stages", "--virtual-stages"),
    ("max_passes", "--picture"),
    ("transfers", "--transfers"),
]];
pub(crate) const PLAN_COMPARE: OptionTable = &[&[("names", "PLAN")]];
pub(crate) const PLAN_LABEL: OptionTable =
    &[&[("plan", "NAME"), ("plan.labels", "CHANGE"), ("update_mask", "CHANGE")]];
pub(crate) const PLAN_DELETE: OptionTable = &[&[("name", "NAME"), ("with_trials", "--with-trials")]];
pub(crate) const PLAN_VALIDATE: OptionTable = &[
    &[
        ("name", "NAME"),
        ("iterations", "--iterations"),
        ("candidates", "--candidates"),
        ("stages", "--stage"),
    ],
    RUN_DEADLINE,
    REQUEST_ID,
];
pub(crate) const PLAN_REPORT: OptionTable = &[
    &[
        ("plan", "PLAN"),
        ("observation", "--iteration"),
        ("observation.iteration_seconds", "--iteration"),
        ("observation.stage_peaks", "--peak*"),
        ("observation.stage_peaks.ledger", "--ledger"),
        ("observation.iterations", "--iterations"),
        ("observation.device_kind", "--device-kind"),
        ("observation.source", "--source"),
    ],
    REQUEST_ID,
];
pub(crate) const OBSERVATIONS: OptionTable = &[&[("plan", "PLAN")], FOUND, PAGE];
pub(crate) const PLAN_ERRORS: OptionTable =
    &[&[("device_kind", "--device-kind"), ("with_pairs", "--with-pairs")], FOUND];

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
        ("spec.layout", "--layout"),
        ("spec.sizes", "--sizes"),
        ("spec.chunk_elements", "--chunk-size"),
        ("spec.chunk_bytes", "--chunk-size"),
        ("spec.max_chunk_elements", "--max-chunk-size"),
        ("spec.ranks", "--ranks"),
        ("spec.group_chunks", "--group-chunks"),
        ("spec.limit", "--limit"),
    ],
];

const CLUSTER_ID: Part = &[("cluster_id", "--id")];

pub(crate) const CLUSTER_IMPORT: OptionTable = &[
    &[
        ("file", "PATH:"),
        ("file.document", "PATH:"),
        ("file.format", "--format"),
        ("file.options.device_kind", "--device-kind"),
        ("file.options.memory_bytes", "--memory"),
        ("file.options.usable_memory", "--usable-memory"),
        ("file.options.usable_memory_bytes", "--usable-memory"),
        ("file.options.hourly_price", "--hourly-price"),
        ("file.options.devices_per_node", "--devices-per-node"),
        ("file.options.nodes", "--nodes"),
        ("file.options.link_bytes_per_second", "--link"),
        ("file.options.network_bytes_per_second", "--network"),
        ("file.options.topology", "--topology"),
    ],
    CLUSTER_ID,
    DRY_RUN,
];
pub(crate) const CLUSTER_CREATE: OptionTable = &[
    &[
        ("cluster", "--nodes"),
        ("cluster.kinds", "--device-kind"),
        ("cluster.kinds.memory_bytes", "--memory"),
        ("cluster.kinds.usable_memory", "--usable-memory"),
        ("cluster.kinds.usable_memory_bytes", "--usable-memory"),
        ("cluster.kinds.hourly_price", "--hourly-price"),
        ("cluster.nodes", "--nodes"),
        ("cluster.nodes.devices", "--devices-per-node"),
        ("cluster.nodes.devices.kind", "--device-kind"),
        ("cluster.nodes.link", "--link"),
        ("cluster.nodes.link.latency_seconds", "--link-latency"),
        ("cluster.nodes.network", "--network"),
        ("cluster.nodes.network.latency_seconds", "--network-latency"),
    ],
    CLUSTER_ID,
    DRY_RUN,
];
pub(crate) const CLUSTER_DISCOVER: OptionTable = &[
    &[("workers", "--workers*"), ("device_kind", "--device-kind"), ("network_bytes_per_second", "--network")],
    CLUSTER_ID,
    DRY_RUN,
];
pub(crate) const CLUSTER_MEASURE: OptionTable =
    &[&[("workers", "--workers*"), ("devices", "--devices")], RUN_DEADLINE, REQUEST_ID];
pub(crate) const CLUSTER_LINKS: OptionTable = &[&[("worker", "--worker")], FOUND, PAGE];
