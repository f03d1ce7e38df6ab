"""Options of the package's calls: keywords are fields of requests, words values of enums, texts as `2GiB` bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Union

from google.protobuf.message import Message

ActivationPlaceWord = Literal["device", "host"]
CampaignWord = Literal["paper", "stages", "minimal", "imported"]
ChunkLayoutWord = Literal["patrickstar", "aligned"]
ChunkMovesWord = Literal["dropped", "exclusive"]
ChunkOrderWord = Literal["micro-batch", "layer"]
ChunkOwnersWord = Literal["parts", "whole"]
ChunkSizesWord = Literal["grid-a", "grid-b", "breakpoints"]
ChunkUpdateWord = Literal["on-arrival", "after-backward"]
EmbeddingPlaceWord = Literal["chunk", "host"]
EnvelopeWord = Literal["torchrun", "jobset", "trainjob", "pytorchjob", "leaderworkerset", "job", "ray"]
EvictionWord = Literal["belady", "lru", "fifo"]
ExportVariantWord = Literal["usual", "hybrid"]
HostCopyWord = Literal["kept", "made"]
LauncherWord = Literal["megatron", "megatron-bridge", "torchtitan", "torch-pipelining", "deepspeed", "colossal-ai", "accelerate", "galvatron", "alpa", "nnscaler", "pipedream", "torchgpipe", "trainer", "other"]
MemoryBlockWord = Literal["activations", "inputs", "versions", "weights", "gradients", "optimizer"]
MemoryModeWord = Literal["plain", "chunks", "best"]
MemoryPlaceWord = Literal["host", "peers"]
MemoryUnitWord = Literal["bytes", "share"]
MemoryWayWord = Literal["recompute", "host", "peer"]
NodeSpanningWord = Literal["never", "whole-nodes", "anywhere"]
ObjectiveWord = Literal["min-peak-memory", "min-iteration-time", "pareto", "min-devices", "min-cost", "max-batch", "max-model"]
ParallelismWord = Literal["none", "data", "tensor"]
PlanShapeWord = Literal["single-pipeline", "uniform-grid", "equal-devices", "per-stage-replicas", "per-stage-mesh"]
PrecisionWord = Literal["fp32", "bf16"]
PredictorKindWord = Literal["component", "capture", "table"]
RecomputePolicyWord = Literal["none", "stage", "layer"]
ResidencyRuleWord = Literal["belady", "lru", "fifo", "static"]
ScheduleWord = Literal["gpipe", "1f1b", "pipedream"]
SearchModeWord = Literal["exact", "capture", "mcap-brute-force", "mcap-bayesian", "amp", "amp-annealing", "mpress"]
StepKernelWord = Literal["one-pass", "tensor-wise"]
TransfersWord = Literal["overlapping", "blocking"]


class RecommendOptions(TypedDict, total=False):
    """Fields of RecommendPlanRequest."""

    devices: Union[str, Sequence[Union["DeviceGroupFields", Message]]]
    micro_batch_size: int
    micro_batches: int
    shape: Union[PlanShapeWord, str, int]
    validate_only: bool
    schedule: Union[ScheduleWord, str, int]
    recompute: Union[RecomputePolicyWord, str, int]
    predictor: Union[PredictorKindWord, str, int]
    margin: float
    partitioning: Union[str, "PartitioningFields", Message]
    merge_layers_to: int
    profile_document: str
    objective: Union[ObjectiveWord, str, int]
    constraints: Union["ConstraintsFields", Message]
    launcher: Union[LauncherWord, str, int]
    launcher_version: str
    cluster: str
    other_profiles: Sequence[str]
    candidate_profiles: Sequence[str]
    memory_unit: Union[MemoryUnitWord, str, int]
    search_mode: Union[SearchModeWord, str, int]
    search_seconds: float
    alternatives: int
    search_seed: int
    global_batch_size: int
    correct: bool
    brief: bool
    stage_actions: Sequence[Union["StageActionsFields", Message]]
    copy_pace: Union["CopyPaceFields", Message]
    memory_ways: Sequence[Union[MemoryWayWord, str, int]]
    memory_blocks: Sequence[Union[MemoryBlockWord, str, int]]
    host_memory_bytes: Union[int, str]
    smallest_block_bytes: Union[int, str]
    hourly_prices: Mapping[str, float]
    transfers: Union[TransfersWord, str, int]
    memory_mode: Union[MemoryModeWord, str, int]
    chunks: Union["ChunkChoicesFields", Message]
    host_update_rate: float
    grow: Union["GrownModelFields", Message]
    virtual_stages: int


class PredictOptions(TypedDict, total=False):
    """Fields of PredictMemoryRequest."""

    partitioning: Union[str, "PartitioningFields", Message]
    stage: Union["SoloStageFields", Message]
    plan: str
    micro_batch_size: int
    micro_batches: int
    schedule: Union[ScheduleWord, str, int]
    recompute: Union[RecomputePolicyWord, str, int]
    devices: Union[str, Sequence[Union["DeviceGroupFields", Message]]]
    capacity_bytes: Union[int, str]
    predictor: Union[PredictorKindWord, str, int]
    margin: float
    profile_document: str
    launcher: Union[LauncherWord, str, int]
    stage_actions: Sequence[Union["StageActionsFields", Message]]
    chunks: Union["ChunkedStageFields", Message]
    memory_mode: Union[MemoryModeWord, str, int]
    chunk_choices: Union["ChunkChoicesFields", Message]
    host_memory_bytes: Union[int, str]
    host_update_rate: float
    copy_pace: Union["CopyPaceFields", Message]


class ExportOptions(TypedDict, total=False):
    """Fields of ExportPlanRequest."""

    launcher: Union[LauncherWord, str, int]
    variant: Union[ExportVariantWord, str, int]
    envelope: Union[EnvelopeWord, str, int]
    envelope_options: Union["EnvelopeOptionsFields", Message]


class BindOptions(TypedDict, total=False):
    """Fields of BindPlanRequest."""

    nodes: Sequence[Union["GivenNodeFields", Message]]
    cluster: str
    other_profiles: Sequence[str]
    validate_only: bool


class ValidateOptions(TypedDict, total=False):
    """Fields of ValidatePlanRequest."""

    iterations: int
    request_id: str
    run_deadline_seconds: int
    candidates: int
    stages: Sequence[int]


class ProfileOptions(TypedDict, total=False):
    """Fields of RunProfileRequest."""

    training: Union["TrainingSpecFields", Message]
    campaign: Union[CampaignWord, str, int]
    devices: int
    micro_batch_sizes: Sequence[int]
    iterations: int
    device_kind: str
    min_capacity_bytes: Union[int, str]
    profile_id: str
    request_id: str
    validate_only: bool
    run_deadline_seconds: int
    command: str
    parallelisms: Sequence[Union[ParallelismWord, str, int]]
    degrees: Sequence[int]
    fresh: bool
    reuse_contended: bool
    scale_by_pipeline: bool
    host_memory_bytes: Union[int, str]


class PruneOptions(TypedDict, total=False):
    """Fields of PruneHistoryRequest."""

    filter: str
    collections: Sequence[str]
    validate_only: bool
    page_size: int


class ChunkChoicesFields(TypedDict, total=False):
    """Fields of ChunkChoices."""

    layouts: Sequence[Union[ChunkLayoutWord, str, int]]
    chunk_elements: Sequence[int]
    orders: Sequence[Union[ChunkOrderWord, str, int]]
    host_copies: Sequence[Union[HostCopyWord, str, int]]
    on_device: int
    ahead: int
    behind: int
    staging: int
    kernel: Union[StepKernelWord, str, int]
    embeddings: Sequence[Union[EmbeddingPlaceWord, str, int]]
    activations: Sequence[Union[ActivationPlaceWord, str, int]]
    residencies: Sequence[Union[ResidencyRuleWord, str, int]]
    sizes: Union[ChunkSizesWord, str, int]


class ChunkedStageFields(TypedDict, total=False):
    """Fields of ChunkedStage."""

    layout: Union[ChunkLayoutWord, str, int]
    chunk_elements: int
    order: Union[ChunkOrderWord, str, int]
    host_copy: Union[HostCopyWord, str, int]
    staging: int
    moves: Union[ChunkMovesWord, str, int]
    update: Union[ChunkUpdateWord, str, int]
    kernel: Union[StepKernelWord, str, int]
    on_device: Sequence[int]
    planned: Union["ChunkVisitsFields", Message]
    paged: Union["ChunkPagingFields", Message]
    host_memory_bytes: Union[int, str]
    embedding: Union[EmbeddingPlaceWord, str, int]
    owners: Union[ChunkOwnersWord, str, int]


class ChunkPagingFields(TypedDict, total=False):
    """Fields of ChunkPaging."""

    eviction: Union[EvictionWord, str, int]
    ahead: int
    behind: int


class ChunkVisitsFields(TypedDict, total=False):
    """Fields of ChunkVisits."""

    visits: Sequence[Union["ChunkVisitFields", Message]]


class ChunkVisitFields(TypedDict, total=False):
    """Fields of ChunkVisit."""

    chunk: int
    gradients: bool
    fetched: int
    needed: int
    leaves: int
    freed: int


class ConstraintsFields(TypedDict, total=False):
    """Fields of Constraints."""

    data_degrees: Sequence[int]
    tensor_degrees: Sequence[int]
    micro_batch_sizes: Sequence[int]
    schedules: Sequence[Union[ScheduleWord, str, int]]
    recompute: Sequence[Union[RecomputePolicyWord, str, int]]
    recompute_per_stage: bool
    min_stages: int
    max_stages: int
    pins: Sequence[Union["LayerPinFields", Message]]
    keep_together: Sequence[Union["LayerRangeFields", Message]]
    cut_after: Sequence[int]
    excluded_devices: Sequence[str]
    spanning: Union[NodeSpanningWord, str, int]
    max_iteration_seconds: float
    max_peak_bytes: Union[int, str]
    allow_idle_devices: bool


class CopyPaceFields(TypedDict, total=False):
    """Fields of CopyPace."""

    host_bytes_per_second: float
    peer_bytes_per_second: float


class DeviceGroupFields(TypedDict, total=False):
    """Fields of DeviceGroup."""

    count: int
    capacity_bytes: Union[int, str]
    kind: str


class EnvelopeOptionsFields(TypedDict, total=False):
    """Fields of EnvelopeOptions."""

    image: str
    namespace: str
    name: str
    queue: str
    required_topology: str
    preferred_topology: str
    stage_topology: str


class GivenNodeFields(TypedDict, total=False):
    """Fields of GivenNode."""

    name: str
    device_indices: Sequence[int]
    device_uuids: Sequence[str]
    device_kind: str
    memory_bytes: Union[int, str]
    switches: str


class GrownModelFields(TypedDict, total=False):
    """Fields of GrownModel."""

    parameter: str
    first: int
    last: int


class LayerPinFields(TypedDict, total=False):
    """Fields of LayerPin."""

    layer: int
    device: str


class LayerRangeFields(TypedDict, total=False):
    """Fields of LayerRange."""

    first_layer: int
    last_layer: int


class PartitioningFields(TypedDict, total=False):
    """Fields of Partitioning."""

    stages: Union[str, Sequence[Union["StageConfigFields", Message]]]


class SoloStageFields(TypedDict, total=False):
    """Fields of SoloStage."""

    stage: Union[str, "StageConfigFields", Message]
    stage_count: int
    stage_index: int


class StageActionsFields(TypedDict, total=False):
    """Fields of StageActions."""

    actions: Sequence[Union["MemoryActionFields", Message]]
    host_pool_bytes: Union[int, str]
    hosted: Sequence[Union["HostedPoolFields", Message]]


class HostedPoolFields(TypedDict, total=False):
    """Fields of HostedPool."""

    stage: int
    bytes: Union[int, str]


class MemoryActionFields(TypedDict, total=False):
    """Fields of MemoryAction."""

    first_layer: int
    last_layer: int
    slots: Sequence[int]
    recompute: Union["RecomputeFields", Message]
    swap: Union["MemorySwapFields", Message]


class MemorySwapFields(TypedDict, total=False):
    """Fields of MemorySwap."""

    block: Union[MemoryBlockWord, str, int]
    to: Union[MemoryPlaceWord, str, int]
    peers: Sequence[Union["MemoryStripeFields", Message]]
    release_after: int
    fetch_before: int


class MemoryStripeFields(TypedDict, total=False):
    """Fields of MemoryStripe."""

    stage: int
    share: int


class RecomputeFields(TypedDict, total=False):
    """Recompute has no fields."""


class StageConfigFields(TypedDict, total=False):
    """Fields of StageConfig."""

    first_layer: int
    last_layer: int
    data_degree: int
    tensor_degree: int


class TrainingSpecFields(TypedDict, total=False):
    """Fields of TrainingSpec."""

    precision: Union[PrecisionWord, str, int]
    optimizer: Union["OptimizerFields", Message]
    schedule: Union[ScheduleWord, str, int]
    micro_batch_size: int
    micro_batches: int
    recompute: Union[RecomputePolicyWord, str, int]
    seed: int
    global_batch_size: int
    gradient_precision: Union[PrecisionWord, str, int]


class OptimizerFields(TypedDict, total=False):
    """Fields of Optimizer."""

    sgd: Union["SgdFields", Message]
    adam: Union["AdamFields", Message]
    adamw: Union["AdamWFields", Message]
    learning_rate: float
    weight_decay: float


class AdamFields(TypedDict, total=False):
    """Fields of Adam."""

    beta1: float
    beta2: float
    epsilon: float


class AdamWFields(TypedDict, total=False):
    """Fields of AdamW."""

    beta1: float
    beta2: float
    epsilon: float


class SgdFields(TypedDict, total=False):
    """Fields of Sgd."""

    momentum: float
