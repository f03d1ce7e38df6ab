"""Damaged exports: a text that is replaced wherever it stands, and what must then be said."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Damage:
    """A damage of a golden export."""

    old: str
    new: str
    says: str
    """Part of the launcher's refusal, or of the first difference from what its case says."""
    mode: str = "build"
    """Whether it shows when ranks are built, or only when they train."""


DAMAGES: dict[str, list[Damage]] = {
    "megatron@0.19/gpt-uneven": [
        Damage("--pipeline-model-parallel-layout", "--pipeline-parallel-layout", "unrecognized arguments"),
        Damage("Ett|tttt|ttttt|tL", "Ettt|ttt|ttttt|tL", "layers is ['embedding', 'block0', 'block1', 'block2']"),
        Damage("Ett|tttt|ttttt|tL", "Ett|tttt|ttttt|L", "Number of decoder layers 11must match num_layers 12"),
        Damage("--tensor-model-parallel-size", "--expert-tensor-parallel-size", "parameters is"),
        Damage("--hidden-size", "--kv-channels", "hidden"),
        Damage("--global-batch-size", "--seed", "micro_batches is 1, not 8"),
        Damage("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"),
        Damage("--nproc-per-node=8", "--nproc-per-node=4", "8 ranks"),
    ],
    "megatron@0.19/gpt-even-recompute": [
        Damage("--recompute-num-layers", "--recompute-layers", "unrecognized arguments"),
        Damage("--recompute-method", "--recompute-modules", "recompute"),
    ],
    "megatron@0.19/llama-first-blocks": [
        Damage("--recompute-num-layers", "--recompute-layers", "unrecognized arguments"),
        Damage("--recompute-method", "--recompute-modules", "recompute"),
    ],
    "megatron@0.19/llama-uneven": [
        Damage("--swiglu", "--squared-relu", "parameters is"),
        Damage("--untie-embeddings-and-output-weights", "--use-rotary-position-embeddings", "tied is True"),
    ],
    "megatron@0.19/qwen2-uneven": [
        Damage("--rotary-base", "--seed", "transformer is"),
        Damage("--norm-epsilon", "--adam-eps", "transformer is"),
        Damage("--add-qkv-bias", "--use-rotary-position-embeddings", "parameters is"),
    ],
    "megatron@0.19/qwen3-uneven": [
        Damage("--qk-layernorm", "--use-rotary-position-embeddings", "parameters is"),
        Damage("--kv-channels", "--seed", "parameters is"),
    ],
    "megatron@0.19/gpt-uneven+hybrid": [
        Damage("*-*-|*-*-*-*-|", "*-*-*-|*-*-*-|", "layers is ['embedding', 'block0', 'block1', 'block2']"),
        Damage("*-*-|*-*-*-*-|", "*-*-*|-*-*-*-|", "block2.attention"),
        Damage("*-*-|*-*-*-*-|", "*-*-*-*-*-*-|", "evenly divisible"),
    ],
    "megatron@0.19/gpt-turns": [
        # Two stages of one device in each other's place, all device by device, and one for each device.
        Damage("Et|ttt|tt|t|tt|tttL", "Et|tt|tt|t|ttt|tttL", "layers is [['embedding', 'block0'], ['block5']]"),
        Damage("Et|ttt|tt|t|tt|tttL", "Et|t|ttt|tt|tt|tttL", "layers is [['embedding', 'block0'], ['block5', 'block6']]"),
        Damage("Et|ttt|tt|t|tt|tttL", "Etttt|ttttt|tttL", "layers is ['embedding', 'block0', 'block1'"),
        Damage("Et|ttt|tt|t|tt|tttL", "Et|ttt|ttt|tt|tttL", "must be divisible by pipeline_model_parallel_size"),
        Damage("--bf16", "--no-overlap-p2p-communication", "turns is [2, 3, 'otherwise']"),
        Damage(
            "--global-batch-size", "--microbatch-group-size-per-virtual-pipeline-stage", "turns is [2, 12, 'overlapping']"
        ),
    ],
    "megatron@0.19/gpt-turns+hybrid": [
        Damage(
            "*-|*-*-*-|*-*-|*-|*-*-|",
            "*-|*-*-|*-*-|*-|*-*-*-|",
            "layers is [['embedding', 'block0'], ['block5']]",
        ),
    ],
    "megatron@0.19/llama-turns": [
        Damage("--recompute-method", "--recompute-modules", "recompute"),
    ],
    "torchtitan@0.3/llama-uneven": [
        # It parses, and the model has no head.
        Damage('"lm_head"]', '"output"]', "layers is"),
        Damage('"layers.2"],', '"layers.2", "layers.3"],', "layers is"),
        Damage("pipeline_parallel_microbatch_size=2", "pipeline_parallel_microbatch_size=4", "micro_batch is 4, not 2"),
        Damage("tensor_parallel_degree=2", "context_parallel_degree=2", "parameters is 202624"),
        Damage("tensor_parallel_degree=2", "tensor_degree=2", "unexpected keyword argument"),
        Damage(
            "disable_cuda_graphs=True", "disable_cuda_graphs=False", "CUDA graphs do not support pipeline parallelism"
        ),
        Damage("hidden_dim=176", "hidden_dim=192", "parameters is"),
        Damage("activation_checkpoint=None", "debug=DebugConfig()", "DebugConfig"),
    ],
    "torchtitan@0.2/llama-uneven": [
        Damage('"output"]', '"lm_head"]', "layers is"),
        Damage("tensor_parallel_degree", "tensor_degree", "Invalid field names"),
        Damage("data_parallel_replicate_degree = 1", "data_parallel_replicate_degree = 2", "Invalid parallel dims"),
        Damage('mode = "none"', 'mode = "full"', "recompute is layer, not none"),
        Damage('schedule = "1F1B"', 'schedule = "GPipe"', "schedule is GPipe"),
        Damage('dtype = "bfloat16"', 'mixed_precision_param = "bfloat16"', "precision is fp32"),
        Damage("multiple_of=176", "multiple_of=256", "parameters is"),
    ],
    "torchtitan@0.3/llama-replicas": [Damage("FullAC.Config()", "None", "recompute is none")],
    "torchtitan@0.2/llama-replicas": [
        # What 0.3 calls replicas is refused here.
        Damage(
            "degree = 1  # torchtitan rejects more with tensor shards or stages: data shards are used instead\n"
            "data_parallel_shard_degree = 2",
            "degree = 2\ndata_parallel_shard_degree = 1",
            "DDP has not supported > 1D parallelism",
        ),
    ],
    "deepspeed@0.19/gpt-uneven": [
        Damage("[0, 3, 7, 12, 15]", "[0, 4, 7, 12, 15]", "layers is"),
        Damage("[0, 3, 7, 12, 15]", "[0, 3, 7, 12, 14]", "the plan is for 14 layers"),
        Damage("_partition_layers", "_partition", "layers is"),
        Damage("num_mp=2, num_dp=2", "num_mp=1, num_dp=4", "train_batch"),
        Damage("num_mp=2, num_dp=2", "num_mp=2, num_dp=1", "Invalid Grid"),
        Damage('"gradient_accumulation_steps": 8', '"gradient_accumulation_steps": 4', "train_batch"),
        # Unknown keys are ignored in silence.
        Damage('"bf16"', '"bfloat"', "precision is fp32"),
        Damage('"stage": 0', '"stage": 1', "zero_stage is 1"),
        Damage("--deepspeed_config", "--deepspeed_configuration", "unrecognized arguments"),
        Damage("--num_gpus=8", "--num_gpus=4", "8 ranks"),
        Damage("--hostfile=hostfile", "--hostfile=hosts", "no extra nodes available via hostfile"),
        Damage("node1 slots", "node0 slots", "multiple entries for node0"),
        Damage("node1 slots", "# node1 slots", "8 ranks"),
        Damage("slots=8", "slots: 8", "bad entry"),
        # What --num_gpus asks for is started all the same.
        Damage("slots=8", "slots=4", "hosts is [['node0', 4]"),
        Damage("node1 slots", "node2 slots", "['node2', 8]"),
    ],
    "deepspeed@0.19/gpt-chain": [
        Damage('"gradient_clipping": 0.0', '"gradient_clipping": 0.1', "uncut model", mode="train"),
        # With nothing said it is 1.0.
        Damage('"gradient_clipping"', '"gradients_clipping"', "uncut model", mode="train"),
    ],
    "deepspeed@0.19/gpt-chain-recompute": [
        # By default nothing leads back to the embedding.
        Damage('"use_reentrant": false', '"use_reentrant": true', "does not require grad", mode="train"),
    ],
    "deepspeed@0.19/gpt-even-recompute": [
        Damage("activation_checkpoint_interval", "activation_checkpointing_interval", "recompute is none"),
    ],
    "torch-pipelining@2.15/gpt-uneven": [
        Damage("[0, 3, 7, 12, 15]", "[0, 2, 7, 12, 15]", "layers is"),
        Damage("[0, 3, 7, 12, 15]", "[0, 3, 7, 12, 14]", "the plan is for 14 layers"),
        Damage('"dp": 2, "tp": 2', '"dp": 4, "tp": 1', "parameters is"),
        Damage('"dp": 2, "tp": 2', '"tp": 2, "dp": 2', "replica is 1, not 0"),
        Damage('"pp": 4', '"pp": 2', "mesh Tensor of a DeviceMesh"),
        Damage('"schedule": "1F1B"', '"schedule": "1B1F"', "Unknown schedule"),
        Damage('"micro_batches": 8', '"micro_batches": 4', "micro_batches is 4"),
    ],
    "torch-pipelining@2.15/gpt-chain-untied": [
        Damage("loss_fn=loss_fn)", "loss_fn=loss_fn, scale_grads=False)", "and the uncut model", mode="train"),
    ],
    "torch-pipelining@2.15/gpt-chain-replicas": [
        Damage('mesh["dp"].size() > 1', 'mesh["dp"].size() > 2', "uncut model", mode="train"),
    ],
    "torch-pipelining@2.15/gpt-even-recompute": [
        Damage('"recompute": "layer"', '"recompute": "full"', "recompute is none"),
        Damage('"precision": "bf16"', '"precision": "fp32"', "precision is fp32"),
    ],
    "galvatron@2.4/gpt-uneven": [
        Damage('"2,4,5,1"', '"3,3,5,1"', "layers is"),
        Damage('"2,4,5,1"', '"2,4,5"', "AssertionError"),
        Damage('"2,2,2,2,2,2,2,2,2,2,2,2"', '"2,2,2,2,2,2,2,2,2,2,2"', "AssertionError"),
        Damage('"2,2,2,2,2,2,2,2,2,2,2,2"', '"3,3,3,3,3,3,3,3,3,3,3,3"', "Wrong tp_size"),
        Damage('"2,2,2,2,2,2,2,2,2,2,2,2"', '"1,1,1,1,1,1,1,1,1,1,1,1"', "replica is 1, not 0"),
        Damage('"pp_division"', '"pp_devision"', "layers is"),
        Damage("pipedream_flush", "gpipe", "schedule is GPipe"),
        Damage("--galvatron_config_path", "--galvatron_strategy", "unrecognized arguments"),
        Damage("./galvatron_config.json", "galvatron_config.json", "FileNotFoundError"),
    ],
    "galvatron@2.4/gpt-even-recompute": [Damage('"checkpoint"', '"checkpoints"', "recompute is none")],
    "galvatron@2.4/llama-uneven": [
        Damage('"ffn_dim"', '"ff_dim"', "KeyError: 'multiple_of'"),
        Damage('"ffn_dim": 176', '"ffn_dim": 170', "perceptron of the model is 170, not 176"),
        Damage('"n_kv_heads"', '"kv_heads"', "key_value_heads of the model is 4, not 2"),
        Damage("--model_size=llama-7b", "--model_size=llama-9b", "invalid choice"),
    ],
    "galvatron@2.4/gpt-mixed": [Damage("4,4,4,4,4,1", "4,4,4,4,4,2", "differ")],
    "colossal-ai@0.5/gpt-uneven": [
        Damage("[2, 4, 5, 1]", "[3, 3, 5, 1]", "layers is"),
        Damage("[2, 4, 5, 1]", "[2, 4, 5]", "AssertionError"),
        Damage("[2, 4, 5, 1]", "[2, 4, 4, 1]", "AssertionError"),
        Damage("tp_size=2", "sp_size=2", "missing 1 required positional argument"),
        Damage("tp_size=2", "tp_size=4", "replica is 0, not 1"),
        Damage("dp_outside=False", "dp_outside=True", "stage is 1, not 0"),
        Damage('pp_style="1f1b"', 'pp_style="1F1B"', "Unsupported"),
        Damage("num_microbatches", "num_micro_batches", "unexpected keyword argument"),
    ],
    "colossal-ai@0.5/llama-first-blocks": [
        Damage("per_stage=[2, 2])", "per_stage=[2, 3])", "recompute is [2, 3] of [3, 5]"),
    ],
    "colossal-ai@0.5/gpt-even-recompute": [Damage("per_stage=[6, 6])", "per_stage=[6, 5])", "recompute is")],
    "accelerate@1.15/gpt-uneven": [
        Damage("Ett|tttt|ttttt|tL", "Ettt|ttt|ttttt|tL", "layers is"),
        Damage("pipeline_model_parallel_layout", "pipeline_parallel_layout", "Megatron has no pipeline_parallel"),
        Damage('            "recompute_granularity": None,\n', "", "Using recompute_granularity: full"),
        # Unknown keys of this section are ignored in silence: the degree would be 1.
        Damage("megatron_lm_tp_degree", "megatron_lm_tensor_degree", "tp_degree is 1 by the file and 2"),
        Damage("num_processes: 16", "num_procs: 16", "num_procs"),
        Damage("num_processes: 16", "num_processes: 8", "accelerate starts 8 ranks"),
        Damage("context_parallel_size: 1", "context_parallel_size: 2", "context_parallel_size is 2 by the file and 1"),
        Damage("pp_degree=4", "pipeline_degree=4", "unexpected keyword argument"),
        Damage("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"),
    ],
    "accelerate@1.15/llama-uneven": [
        # Megatron's own values take the place of what nobody says.
        Damage('            "ffn_hidden_size": 176,\n', "", "parameters is"),
        Damage('            "num_query_groups": 2,\n', "", "parameters is 99200"),
        Damage('            "group_query_attention": True,\n', "", "parameters is 108416"),
        Damage('            "normalization": "RMSNorm",\n', "", "parameters is"),
        Damage('"rotary_base": 10000', '"rotary_base": 500000', "the base of positions: 500000"),
        Damage('            "swiglu": True,\n', "", "the perceptron is gated: False"),
        Damage('            "add_bias_linear": False,\n', "", "parameters is"),
        Damage('            "untie_embeddings_and_output_weights": True,\n', "", "the head's table is its own: False"),
        Damage("        decoder_seq_length=128,\n", "", "a sample's tokens: 1024"),
    ],
    "accelerate@1.15/gpt-even-recompute": [
        Damage(
            "megatron_lm_context_parallel_size", "megatron_lm_context_size", "context_parallel_size is 2 by the file"
        ),
    ],
    "accelerate@1.15/one-stage": [
        Damage("gradient_accumulation_steps=8", "gradient_accumulation_steps=4", "micro_batches is 4"),
        Damage("MULTI_GPU", "MULTI_GPUS", "MULTI_GPUS"),
    ],
    "torchgpipe@0.0/gpt-chain-gpipe": [
        Damage('"cuda:3"]', "]", "the plan has 4"),
        Damage("[2, 2, 2, 3]", "[3, 1, 2, 3]", "layers is"),
        Damage("[2, 2, 2, 3]", "[2, 2, 2, 2]", "module and sum of balance have different length"),
        Damage("chunks=8", "chunks=4", "micro_batches is 4"),
        Damage('checkpoint="never"', 'checkpoint="always"', "recompute is stage"),
        Damage("chunks=8", "chunk=8", "unexpected keyword argument"),
    ],
    "megatron-bridge@0.6/gpt-uneven": [
        # Then the recipe's stays.
        Damage("pipeline_model_parallel_layout", "pipeline_parallel_layout", "must be divisible by pipeline_model"),
        Damage("Ett|tttt|ttttt|tL", "Ettt|ttt|ttttt|tL", "layers is"),
        Damage("Ett|tttt|ttttt|tL", "Ett|tttt|ttttt|L", "must match num_layers"),
        Damage("tensor_model_parallel_size: 2", "tensor_model_parallel_size: 1", "parameters is"),
        Damage("global_batch_size: 32", "global_batch: 32", "global_batch"),
        Damage("train:", "training:", "extra keys not in PretrainConfigContainer"),
        Damage("bf16_mixed", "bf16", "mixed_precision is bf16"),
    ],
    "megatron-bridge@0.6/llama-first-blocks": [
        Damage("  add_qkv_bias: false\n", "", "parameters is"),
        Damage("  share_embeddings_and_output_weights: false\n", "", "tied is True"),
        Damage("  rotary_percent: 1.0\n", "", "attention is the recipe's"),
        Damage("recompute_num_layers: 2", "recompute_num_layers: 3", "recompute is first 3 blocks"),
        Damage("recompute_method: block", "recompute_method: uniform", "recompute is 2 blocks at once"),
    ],
    "megatron-bridge@0.6/gpt-even-recompute": [
        # What the file leaves out stays the recipe's.
        Damage("  context_parallel_size: 1\n", "", "Context parallelism is only supported"),
        Damage("  virtual_pipeline_model_parallel_size: null\n", "", "number of model chunks"),
        Damage("  sequence_parallel: false\n", "", "Cannot use sequence parallelism"),
        Damage("  num_query_groups: 4\n", "", "parameters is 423552"),
        Damage("  kv_channels: 16\n", "", "parameters is 1865472"),
        Damage("  qk_layernorm: false\n", "", "parameters is 374016"),
        Damage("  gated_linear_unit: false\n", "", "parameters is 473472"),
        Damage("  add_bias_linear: true\n", "", "parameters is 370176"),
        Damage("  window_size: null\n", "", "attention is the recipe's"),
        Damage("  num_moe_experts: null\n", "", "parameters is 970776"),
        Damage("  mtp_num_layers: null\n", "", "layers is"),
        Damage("  pipeline_model_parallel_layout: null\n", "", "Number of decoder layers 4must match"),
        Damage("  num_layers_in_first_pipeline_stage: null\n", "", "layers is"),
        Damage("  account_for_loss_in_pipeline_split: false\n", "", "number of middle layers"),
        Damage("  expert_model_parallel_size: 1\n", "", "num_moe_experts must be non None"),
        Damage("  recompute_method: uniform\n", "", "recompute is first 1 blocks"),
        Damage("  sgd_momentum: 0.9\n", "", "optimizer is ['sgd', 0.5, 0.0]"),
        Damage("  weight_decay: 0.0\n", "", "optimizer is ['sgd', 0.9, 0.1]"),
        Damage("  optimizer: sgd\n", "", "optimizer is ['lion'"),
        Damage("ddp:\n  use_distributed_optimizer: false\n", "ddp:\n", "zero_stage is 1"),
        Damage("recompute_method: uniform", "recompute_method: block", "recompute is"),
    ],
    "megatron-bridge@0.6/qwen2-uneven": [
        Damage("  rotary_base: 1000000\n", "", "transformer is"),
        Damage("  layernorm_epsilon: 1.0e-6\n", "", "transformer is"),
        Damage("  add_qkv_bias: true\n", "  add_qkv_bias: false\n", "parameters is"),
    ],
    "megatron-bridge@0.6/qwen3-uneven": [
        Damage("  qk_layernorm: true\n", "  qk_layernorm: false\n", "parameters is"),
        Damage("  kv_channels: 32\n", "  kv_channels: 16\n", "parameters is"),
    ],
    "megatron-bridge@0.6/llama-turns": [
        Damage("Ett|t|ttt|t|tt|tL", "Ett|ttt|t|t|tt|tL", "rank 0: layers is [['embedding', 'block0', 'block1'], ['block5']"),
        # What the file leaves out stays the recipe's.
        Damage("  virtual_pipeline_model_parallel_size: 3\n", "", "conflicts with pipeline_model_parallel_layout"),
        Damage("  overlap_p2p_comm: true\n", "", "turns is [3, 2, 'otherwise']"),
        Damage("  batch_p2p_comm: false\n", "", "turns is [3, 2, 'otherwise']"),
        Damage("  overlap_p2p_comm_warmup_flush: false", "  overlap_p2p_comm_warmup_flush: true", "'otherwise'"),
        Damage("  microbatch_group_size_per_vp_stage: 2\n", "", "turns is [3, 7, 'overlapping']"),
    ],
    "trainer@5.23/one-stage": [
        Damage("--per_device_train_batch_size=2", "--per_device_batch_size=2", "per_device_batch_size"),
        Damage("--gradient_accumulation_steps=8", "--gradient_accumulation_steps=4", "micro_batches is 4"),
        Damage("--bf16", "--fp16", "precision is fp16"),
        Damage("--nproc-per-node=4", "--nproc-per-node=2", "torchrun starts 2 ranks"),
    ],
}
