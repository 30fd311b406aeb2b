"""Names of keys: those of one figure under its several names, and those that cannot change a count."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
INTERMEDIATE = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "block_ff_dim")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k_experts",
    "moe_k",
)
WINDOW = ("sliding_window", "sliding_window_size", "window_size")
CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "activation")
DTYPE = ("torch_dtype", "dtype")
#: Where the language model of a multimodal file stands.
NESTED = ("text_config", "llm_config", "language_config")
QUANTISATION = ("quantization_config", "quantization")

#: Keys that change no count, no cache and no time of the language model, by group.
_NO_COUNT = {
    "names and versions": """architectures auto_map _name_or_path model_type transformers_version tokenizer_class
        tokenizer_name tokenizer_type _commit_hash name_or_path unsloth_fixed unsloth_version custom_pipelines
        transformers.js_config language language_model_only is_llama_config for_llm_compressor _attn_implementation
        _attn_implementation_autoset attn_implementation _attn_implementation_internal model_name base_model
        _experts_implementation torchscript""",
    "labels, tasks and generation": """id2label label2id num_labels problem_type finetuning_task task_specific_params
        max_length min_length do_sample early_stopping num_beams num_beam_groups temperature top_k top_p typical_p
        repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
        bad_words_ids num_return_sequences return_dict return_dict_in_generate is_decoder prefix generation_config
        remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens n_special
        predict_special_tokens use_cache cache_implementation max_new_tokens ignore_index add_classification_head
        class_num num_logits_to_keep keys_to_ignore_at_inference logits_to_keep num_reward_heads
        output_attentions output_hidden_states output_router_logits output_scores forced_bos_token_id""",
    "training": """pretraining_tp seq_aux aux_loss_alpha norm_topk_prob ep_size gradient_checkpointing
        moe_drop_tokens moe_random_routing_dropped_token expert_dropout input_jitter_noise layerdrop training_seq_len
        tf_legacy_loss use_bfloat16 moe_token_drop_policy moe_capacity_factor capacity_factor gate_type
        rescale_prenorm_residual fused_dense flash_attn flash_rotary use_flash_attn use_flash_attention bf16 fp16 fp32
        onnx_safe use_mamba_kernels use_mambapy use_associative_scan use_fast_kernels moe_loss_weight verbose
        chunk_size_feed_forward prefill_chunk_size mamba_chunk_size chunk_size moe_shared_expert_overlap
        moe_router_dtype scale_fmt load_balance_coeff""",
    "scales and softmax, elementwise": """logit_scale logits_scaling embedding_multiplier attention_multiplier
        residual_multiplier attention_value_scale routed_scaling_factor query_pre_attn_scalar attention_softmax_in_fp32
        scale_attn_weights scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
        masked_softmax_fusion residual_in_fp32 slow_but_exact clip_qkv softmax_scale alibi_bias_max
        attn_uses_sequence_id attn_impl swiglu_limit swiglu_alpha layernorm_full_attention_alpha
        layernorm_full_attention_beta layernorm_linear_attention_alpha layernorm_linear_attention_beta
        layernorm_mlp_alpha layernorm_mlp_beta apply_residual_connection_post_layernorm attn_scale floor_scale
        attn_temperature_tuning activation_sparsity_pattern altup_active_idx altup_coef_clip altup_correct_scale
        mup_enabled scale_depth scale_emb dim_model_base final_logit_softcapping attn_logit_softcapping""",
    "routing of tokens, not shapes": """scoring_func topk_method topk_group n_group num_expert_group
        use_grouped_topk moe_router_activation_func moe_renormalize router_jitter_noise moe_norm_min moe_jitter_eps
        moe_normalize_expert_weights uniform_expert_assignment shared_moe_mode group_limited_greedy use_routing_bias
        use_expert_bias moe_router_pre_softmax norm_expert_weight""",
    "positions without weights": """use_rotary_pos_emb rotary_emb_base rotary_pct use_dynamic_ntk use_logn_attn
        xdrope_section position_embedding_xdrope original_max_position_embeddings initial_context_length
        model_max_length use_pos_enc use_mrope mrope_section swa_rope_theta rotary interpolate_factor full_attn_mod
        runner_max_sequence_length indexer_rope_interleave compress_rope_theta""",
    "time steps of state-space models": "time_step_min time_step_max time_step_floor time_step_limit time_step_scale",
    "towers beside the language model": """vision_config audio_config img_processor anyres_pooling_size
        anyres_vit_max_image_size anyres_vit_two_views num_media_embeds pool_type multimodal_projector_bias
        spatial_merge_size use_unified_vision_chunk video_placeholder image_placeholder im_newline_id skip_cls_token
        use_bidirectional_attention process_image_mode mask_init_id dense_list""",
}
NO_COUNT = frozenset(name for names in _NO_COUNT.values() for name in names.split())
_PATTERNS = re.compile(
    r"""
    .*_token(_ids?|_index|_idx|_id_list)?   # special tokens
    | (im|text|video|image|eod|pad|sep|bos|eos|mask)(_start|_end)?_id
    | .*dropout.* | .*pdrop | .*dropout_prob
    | .*_eps | .*_epsilon
    | rope_.* | .*_rope_theta | rope | rotary_.* | partial_rotary_factor
    | init | init_.* | .*initializer.* | .*_init_.* | .*_xavier_init
    | .*aux_loss.* | .*z_loss.*
    | summary_.*
    | (vision|vit|image|video|audio|mm|projector|img)_.*
    """,
    re.VERBOSE,
)


def cannot_change_a_count(key: str) -> bool:
    """Tell whether a key is one of those that change no count, whatever it holds.

    >>> cannot_change_a_count("attention_dropout"), cannot_change_a_count("n_routed_experts")
    (True, False)
    """
    return key in NO_COUNT or _PATTERNS.fullmatch(key) is not None


def says_nothing(value: object) -> bool:
    """Tell whether a value switches something off: null, false, zero, empty."""
    return value is None or value is False or value in (0, "", "none") or value in ([], {}, ())


def suspicious(unread: Mapping[str, Any]) -> list[str]:
    """List the keys that nothing has read and that may change a count."""
    return [key for key, value in unread.items() if not says_nothing(value) and not cannot_change_a_count(key)]
