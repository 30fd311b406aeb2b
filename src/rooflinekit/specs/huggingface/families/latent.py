"""Families with multi-head latent attention: DeepSeek V2, V3 and V3.2, Kimi K2, GLM-4.7-Flash, GLM-5."""

from collections.abc import Mapping

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.family import Block, Family, Half, Prediction
from rooflinekit.specs.huggingface.families.mixtures import deepseek_mixture


def latent(config: Config, layers: int, family: Family) -> Half:
    """Read latent attention; `head_dim` and the number of key heads mean nothing here."""
    return Half([_block(config, family)], ["mla"] * layers)


def _block(config: Config, family: Family) -> Block:
    config.off("attention_bias")
    config.skip(*keys.HEAD_DIM, *keys.KV_HEADS, "qk_head_dim")
    return {
        "name": "mla",
        "kind": "mla",
        "heads": config.count(*keys.HEADS),
        "q_rank": config.optional("q_lora_rank"),
        "kv_rank": config.count("kv_lora_rank"),
        "nope_dim": config.count("qk_nope_head_dim"),
        "rope_dim": config.count("qk_rope_head_dim"),
        "value_dim": config.count("v_head_dim"),
        "norms": family.norms[0],
    }


def sparse_latent(config: Config, layers: int, family: Family) -> Half:
    """Read latent attention with an indexer, which some layers have and the others reuse (GLM-5.2)."""
    indexer = _indexer(config)
    own = {**_block(config, family), "indexer": indexer}
    reused = {**_block(config, family), "name": "mla_shared_index", "selected": indexer["selected"]}
    config.skip("layer_types", "index_share_for_mtp_iteration")
    kinds = _indexer_kinds(config, layers)
    return Half([own, reused], ["mla" if kind == "full" else "mla_shared_index" for kind in kinds])


def _indexer(config: Config) -> Mapping[str, int]:
    return {
        "heads": config.count("index_n_heads"),
        "head_dim": config.count("index_head_dim"),
        "selected": config.count("index_topk"),
    }


def _indexer_kinds(config: Config, layers: int) -> list[str]:
    """Read indexer_types, or build them: after the first `offset` layers, one in `frequency` has an indexer."""
    given = config.listing("indexer_types", length=layers)
    config.only("index_topk_pattern")
    every, offset = config.count("index_topk_freq", default=1), config.natural("index_skip_topk_offset")
    if given is None:
        return [
            "full" if index < offset or (index - offset) % every == every - 1 else "shared" for index in range(layers)
        ]
    if not set(map(str, given)) <= {"full", "shared"}:
        config.refuse("indexer_types", given, "`full` and `shared`")
    return [str(kind) for kind in given]


_V2 = Family(latent, deepseek_mixture)
_V3 = _V2._replace(prediction=Prediction("num_nextn_predict_layers", "mla", stores_copies=True))
_V32 = _V3._replace(mixers=sparse_latent)

FAMILIES: dict[str, Family] = {
    "deepseek_v2": _V2,
    "deepseek_v3": _V3,
    "deepseek_v32": _V32,
    "kimi_k2": _V3,
    "glm_moe_dsa": _V32._replace(prediction=Prediction("num_nextn_predict_layers", "mla"), skipped=("num_experts",)),
    "glm4_moe_lite": _V3,
}
