"""Checkpoint configuration: frozen dataclasses, read strictly from config.json.

The sub-configurations are the only source of sizes. The top level of a Breeze `config.json` still carries the
values of the CSM model it was derived from (rope_theta 5e5, eps 1e-5, 2048 positions): those are decoys.
"""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from .errors import BreezeLabError

T = TypeVar("T")

# Bookkeeping that Hugging Face configurations carry and that no forward pass reads.
BOOKKEEPING = frozenset(
    "_name_or_path _attn_implementation _attn_implementation_autoset add_cross_attention architectures auto_map "
    "attention_dropout attn_implementation bad_words_ids begin_suppress_tokens bos_token_id cache_implementation "
    "chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dropout "
    "dropout_rate dtype early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty "
    "finetuning_task forced_bos_token_id forced_eos_token_id id2label initializer_range is_decoder is_encoder_decoder "
    "label2id length_penalty max_length max_position_embeddings max_window_layers min_length model_type "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions output_hidden_states "
    "output_scores pad_token_id preferred_attn_implementation prefix problem_type pruned_heads remove_invalid_values "
    "repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params "
    "temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p torch_dtype "
    "torchscript transformers_version typical_p use_bfloat16 use_cache".split()
)


def strict(cls: type[T], data: Any, where: str, decoys: frozenset[str] | tuple[str, ...] = ()) -> T:
    """Build the dataclass `cls` from a JSON object.

    Args:
        cls: a frozen dataclass; fields without a default are required.
        data: the JSON object.
        where: what to call it in errors, such as "config.json: backbone_config".
        decoys: keys that are known and have no effect here.

    Keys that are neither fields, decoys nor bookkeeping are refused by name, unless their value is empty
    (null, false, zero, "", {} or []), which switches nothing on.

    Raises:
        BreezeLabError: not an object, a missing key, or unknown keys.
    """
    if not isinstance(data, dict):
        raise BreezeLabError(f"{where} is not a JSON object. Take the file from the checkpoint again.")
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(k for k, v in data.items() if k not in names and k not in decoys and k not in BOOKKEEPING and v)
    if unknown:
        raise BreezeLabError(
            f"{where} has unknown keys: {', '.join(unknown)}. They may change what the model computes; "
            "remove them if they do not, or use a release of breeze_lab that knows them."
        )
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}  # type: ignore[arg-type]
    missing = sorted(required - data.keys())
    if missing:
        raise BreezeLabError(f"{where} lacks {', '.join(missing)}. Take the file from the checkpoint again.")
    for f in fields(cls):  # type: ignore[arg-type]
        if f.name in data:
            _need_kind(data[f.name], f.type, f.name, where)
    return cls(**{k: v for k, v in data.items() if k in names})


def _need_kind(value: Any, kind: Any, name: str, where: str) -> None:
    """Refuse a value that is not of the field's kind. Sizes and lengths are 1 or more, token ids 0 or more."""
    least = 0 if name.endswith(("_id", "_index")) else 1

    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    kinds = {
        int: (whole(value), f"a whole number >= {least}"),
        int | None: (value is None or whole(value), f"a whole number >= {least}"),
        float: (_positive(value), "a number above 0"),
        str: (isinstance(value, str), "a text"),
        str | None: (value is None or isinstance(value, str), "a text"),
        tuple[int, ...]: (isinstance(value, list | tuple) and all(map(whole, value)), "a list of whole numbers >= 1"),
        tuple[str, ...]: (isinstance(value, list | tuple), "a list"),
        dict[str, Any] | None: (value is None or isinstance(value, dict), "an object"),
    }
    fits, wanted = kinds.get(kind, (True, ""))
    _need(fits, f"{where}: {name} is {value!r}, not {wanted}. Restore the file.")


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise BreezeLabError(message)


def _check_heads(c: Any, where: str) -> None:
    _need(
        c.num_attention_heads % c.num_key_value_heads == 0,
        f"{where}: {c.num_attention_heads} attention heads cannot share {c.num_key_value_heads} key/value heads. "
        "num_attention_heads must be a multiple of num_key_value_heads.",
    )
    _need(
        not getattr(c, "attention_bias", False) and not getattr(c, "mlp_bias", False),
        f"{where}: this architecture has no biases in attention or MLP. Set attention_bias and mlp_bias false.",
    )


@dataclass(frozen=True)
class TextEncoderConfig:
    """T5Gemma2 encoder: bidirectional, sliding and full layers, two rope bases."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    layer_types: tuple[str, ...]
    rms_norm_eps: float = 1e-6
    query_pre_attn_scalar: float = 256.0
    sliding_window: int = 512
    eoi_token_index: int = 256000
    rope_parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    hidden_activation: str = "gelu_pytorch_tanh"
    attention_bias: bool = False
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None

    def rope(self, layer_type: str) -> tuple[float, float]:
        """(theta, linear factor) of a layer type; T5Gemma2's defaults are 1e4 sliding and 1e6 full."""
        given = self.rope_parameters.get(layer_type) or {}
        theta = given.get("rope_theta", 1e4 if layer_type == "sliding_attention" else 1e6)
        return float(theta), float(given.get("factor", 1.0)) if given.get("rope_type") == "linear" else 1.0


@dataclass(frozen=True)
class BackboneConfig:
    """Qwen3 decoder stack: q/k norm, grouped-query attention, plain rope."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    hidden_act: str = "silu"
    attention_bias: bool = False


@dataclass(frozen=True)
class DepthConfig:
    """Llama decoder over the codebooks of one frame: no q/k norm, llama3 rope scaling."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_codebooks: int
    vocab_size: int
    backbone_hidden_size: int
    audio_embed_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 5e5
    rope_scaling: dict[str, Any] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True)
class BreezeConfig:
    """Everything `config.json` says of a Breeze checkpoint.

    vocab_size counts a codebook's ids with the reserved ones; codec_vocab_size only those the codec can decode.
    The backbone's end-of-speech class is index `vocab_size` of its head, which is `vocab_size + 1` wide.
    text_frontend, piece_letters and trained are breeze_lab's own: what text passes through before the tokenizer, the
    most letters spoken from one prompt, and whether the weights were trained at all.
    """

    text_encoder: TextEncoderConfig
    backbone: BackboneConfig
    depth: DepthConfig
    num_codebooks: int
    vocab_size: int
    codec_vocab_size: int
    bos_token_id: int = 2
    codebook_eos_token_id: int = 0
    max_positions: int = 2048
    text_frontend: str | None = None
    piece_letters: int = 600
    trained: bool = True
    quantization: dict[str, Any] | None = None

    @property
    def eos_class(self) -> int:
        """Index of the end-of-speech class in the backbone head."""
        return self.vocab_size


# use_bidirectional_attention is false in the file, yet the encoder is bidirectional.
TEXT_DECOYS = frozenset(
    "use_bidirectional_attention _sliding_window_pattern sliding_window_pattern rope_scaling rope_theta "
    "rope_local_base_freq".split()
)
BACKBONE_DECOYS = frozenset("vocab_size sliding_window use_sliding_window layer_types rope_parameters".split())
DEPTH_DECOYS = frozenset("rope_parameters codebook_pad_token_id".split())
TOP_DECOYS = frozenset(
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act "
    "rms_norm_eps rope_theta rope_scaling rope_parameters attention_bias mlp_bias audio_num_codebooks audio_vocab_size "
    "audio_embed_size text_vocab_size audio_token_id audio_eos_token_id codebook_pad_token_id sample_rate codec_config "
    "tie_codebooks_embeddings text_encoder_special_tokens_config quantization_config text_encoder_config "
    "backbone_config depth_decoder_config num_codebooks vocab_size max_position_embeddings".split()
)


@dataclass(frozen=True)
class _Top:
    bos_token_id: int = 2
    codebook_eos_token_id: int = 0
    text_frontend: str | None = None
    piece_letters: int = 600
    trained: bool = True
    quantization: dict[str, Any] | None = None


def parse_config(data: dict[str, Any], where: str = "config.json") -> BreezeConfig:
    """Read a Breeze `config.json` object.

    Raises:
        BreezeLabError: another model type, missing or unknown keys, or sizes that contradict each other.
    """
    if not isinstance(data, dict) or data.get("model_type") not in ("breeze", "breeze_tts"):
        found = data.get("model_type") if isinstance(data, dict) else None
        raise BreezeLabError(
            f"{where} says model_type {found!r}, which is not a Breeze TTS 2 checkpoint. "
            'Give a folder whose config.json has model_type "breeze" or "breeze_tts".'
        )
    for key in ("text_encoder_config", "backbone_config", "depth_decoder_config"):
        _need(isinstance(data.get(key), dict), f"{where} lacks {key}. Take the file from the checkpoint again.")
    quantization = data.get("quantization") or data.get("quantization_config")
    top = strict(_Top, data | {"quantization": quantization}, where, TOP_DECOYS)
    codebooks = data.get("audio_num_codebooks") or data.get("num_codebooks", 16)
    vocab = data.get("audio_vocab_size") or data.get("vocab_size", 2051)
    positions, codec = data.get("max_position_embeddings", 2048), data.get("codec_config") or {}
    _need_kind(codec, dict[str, Any] | None, "codec_config", where)
    code_size = codec.get("codebook_size", vocab - 3 if isinstance(vocab, int) else vocab)
    for name, value in (
        ("num_codebooks", codebooks),
        ("vocab_size", vocab),
        ("max_position_embeddings", positions),
        ("codec_config.codebook_size", code_size),
    ):
        _need_kind(value, int, name, where)
    embed = data.get("audio_embed_size") or data["backbone_config"].get("hidden_size")

    text = dict(data["text_encoder_config"])
    rope = _objects(text.get("rope_parameters") or {}, f"{where}: text_encoder_config.rope_parameters")
    if text.get("rope_scaling") and "full_attention" not in rope:
        rope |= _objects({"full_attention": text["rope_scaling"]}, f"{where}: text_encoder_config.rope_scaling")
    text["rope_parameters"] = rope
    if "layer_types" not in text:
        text["layer_types"] = _layer_types(text)
    elif isinstance(text["layer_types"], list):
        text["layer_types"] = tuple(text["layer_types"])

    backbone = _rope_forms(data["backbone_config"], f"{where}: backbone_config")
    _need(
        not backbone.pop("rope_scaling", None),
        f"{where}: backbone_config has rope_scaling, which the Qwen3 backbone of Breeze does not use. Set it to null.",
    )
    depth = _rope_forms(data["depth_decoder_config"], f"{where}: depth_decoder_config")
    depth = {"num_codebooks": codebooks, "vocab_size": vocab, "audio_embed_size": embed} | depth
    depth.setdefault("backbone_hidden_size", backbone.get("hidden_size"))
    _llama3(depth, f"{where}: depth_decoder_config")

    config = BreezeConfig(
        text_encoder=strict(TextEncoderConfig, text, f"{where}: text_encoder_config", TEXT_DECOYS),
        backbone=strict(BackboneConfig, backbone, f"{where}: backbone_config", BACKBONE_DECOYS),
        depth=strict(DepthConfig, depth, f"{where}: depth_decoder_config", DEPTH_DECOYS),
        num_codebooks=codebooks,
        vocab_size=vocab,
        codec_vocab_size=code_size,
        max_positions=positions,
        **{f.name: getattr(top, f.name) for f in fields(_Top)},
    )
    _check(config, where)
    return config


def _objects(data: Any, where: str) -> dict[str, dict[str, Any]]:
    """Rope settings by layer type, empty ones left out; numbers in them are above 0."""
    _need(isinstance(data, dict), f"{where} is {data!r}, not an object. Restore the file.")
    found = {k: v for k, v in data.items() if v}
    for kind, given in found.items():
        _need(isinstance(given, dict), f"{where}: {kind} is {given!r}, not an object. Restore the file.")
        for name in ("rope_theta", "factor"):
            if name in given:
                _need_kind(given[name], float, f"{kind}.{name}", where)
    return {kind: dict(given) for kind, given in found.items()}


def _layer_types(text: dict[str, Any]) -> tuple[str, ...]:
    """Every sixth layer attends fully where the file gives a pattern instead of a list (T5Gemma2's default)."""
    pattern = text.get("_sliding_window_pattern") or text.get("sliding_window_pattern") or 6
    _need_kind(pattern, int, "sliding_window_pattern", "text_encoder_config")
    count = text.get("num_hidden_layers")  # refused later where it is no number
    layers = range(1, count + 1) if isinstance(count, int) else ()
    return tuple("sliding_attention" if i % pattern else "full_attention" for i in layers)


def _rope_forms(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Accept both spellings: rope_theta with rope_scaling, and the newer rope_parameters."""
    out = dict(data)
    new = out.get("rope_parameters") or {}
    _need_kind(new, dict[str, Any] | None, "rope_parameters", where)
    if new:
        out.setdefault("rope_theta", new.get("rope_theta"))
        if new.get("rope_type", "default") != "default":
            out.setdefault("rope_scaling", {k: v for k, v in new.items() if k != "rope_theta"})
    _need(out.get("rope_theta") is not None, f"{where} lacks rope_theta. Take the file from the checkpoint again.")
    return out


def _llama3(depth: dict[str, Any], where: str) -> None:
    """Check the depth decoder's rope_scaling; one of type default, which scales nothing, is taken out."""
    scaling = depth.get("rope_scaling")
    _need_kind(scaling, dict[str, Any] | None, "rope_scaling", where)
    if scaling is None:
        return
    kind = scaling.get("rope_type", scaling.get("type"))
    _need(kind in ("llama3", "default"), f"{where}: rope_scaling must be of type llama3 or absent.")
    if kind == "default":
        depth["rope_scaling"] = None
        return
    for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"):
        _need_kind(scaling.get(name), float, f"rope_scaling.{name}", where)


def _check(c: BreezeConfig, where: str) -> None:
    for part, name in ((c.text_encoder, "text_encoder"), (c.backbone, "backbone"), (c.depth, "depth_decoder")):
        _check_heads(part, f"{where}: {name}_config")
    _need(
        len(c.text_encoder.layer_types) == c.text_encoder.num_hidden_layers
        and set(c.text_encoder.layer_types) <= {"sliding_attention", "full_attention"},
        f"{where}: layer_types must name sliding_attention or full_attention for each of the "
        f"{c.text_encoder.num_hidden_layers} text encoder layers.",
    )
    _need(
        c.text_encoder.attn_logit_softcapping is None and c.text_encoder.final_logit_softcapping is None,
        f"{where}: logit softcapping is set, which the Breeze text encoder does not use. Set it to null.",
    )
    _need(
        c.text_encoder.hidden_activation == "gelu_pytorch_tanh"
        and c.backbone.hidden_act == "silu"
        and c.depth.hidden_act == "silu",
        f"{where}: activations must be gelu_pytorch_tanh (text encoder) and silu (backbone, depth decoder).",
    )
    _need(
        c.depth.num_codebooks == c.num_codebooks and c.depth.vocab_size == c.vocab_size,
        f"{where}: depth_decoder_config and the top level disagree about num_codebooks or vocab_size.",
    )
    _need(
        c.depth.backbone_hidden_size == c.backbone.hidden_size == c.depth.audio_embed_size,
        f"{where}: backbone width {c.backbone.hidden_size}, audio embedding {c.depth.audio_embed_size} and the depth "
        f"decoder's backbone_hidden_size {c.depth.backbone_hidden_size} must be equal, since the embedding is tied.",
    )
    _need(
        c.codec_vocab_size <= c.vocab_size,
        f"{where}: codec_config.codebook_size {c.codec_vocab_size} must lie between 1 and vocab_size {c.vocab_size}.",
    )
