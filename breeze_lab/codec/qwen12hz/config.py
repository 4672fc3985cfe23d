"""`audio_tokenizer/config.json` of the Qwen3-TTS 12 Hz codec."""

from dataclasses import dataclass
from math import prod
from typing import Any

from ...config import strict
from ...errors import BreezeLabError

MODEL_TYPE = "qwen3_tts_tokenizer_12hz"

# Initial values and training settings. semantic_codebook_size says 4096 in the published file, whose first codebook
# has codebook_size entries like the others.
DECODER_DECOYS = frozenset(
    "layer_scale_initial_scale semantic_codebook_size vector_quantization_hidden_dimension layer_types".split()
)
# What only the other half of the Mimi model, which the file leaves out, would read.
ENCODER_DECOYS = frozenset(
    "layer_scale_initial_scale upsample_groups trim_right_ratio use_streaming chunk_length_s chunk_in_sec overlap "
    "normalize layer_types _frame_rate frame_rate".split()
)
TOP_DECOYS = frozenset({"encoder_config", "decoder_config"})


@dataclass(frozen=True)
class DecoderConfig:
    """Codes to sound. codebook_dim is the width behind the codebooks, whose entries are half as wide."""

    num_quantizers: int
    codebook_size: int
    codebook_dim: int
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]
    rms_norm_eps: float = 1e-5
    rope_theta: float = 1e4
    num_semantic_quantizers: int = 1
    hidden_act: str = "silu"
    attention_bias: bool = False


@dataclass(frozen=True)
class EncoderConfig:
    """Sound to codes: the encoder half of a Mimi model."""

    num_quantizers: int
    codebook_size: int
    codebook_dim: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    sliding_window: int
    num_filters: int
    upsampling_ratios: tuple[int, ...]
    head_dim: int | None = None
    kernel_size: int = 7
    last_kernel_size: int = 3
    residual_kernel_size: int = 3
    num_residual_layers: int = 1
    dilation_growth_rate: int = 2
    compress: int = 2
    norm_eps: float = 1e-5
    rope_theta: float = 1e4
    hidden_act: str = "gelu"
    sampling_rate: int = 24000
    audio_channels: int = 1
    num_semantic_quantizers: int = 1
    vector_quantization_hidden_dimension: int | None = None
    pad_mode: str = "constant"
    use_causal_conv: bool = True
    use_conv_shortcut: bool = False
    attention_bias: bool = False


@dataclass(frozen=True)
class _Top:
    encoder_valid_num_quantizers: int = 16
    input_sample_rate: int = 24000
    output_sample_rate: int = 24000
    decode_upsample_rate: int = 1920
    encode_downsample_rate: int = 1920


@dataclass(frozen=True)
class CodecConfig:
    """Both halves. num_codebooks is how many of the encoder's quantizers count."""

    decoder: DecoderConfig
    encoder: EncoderConfig
    num_codebooks: int
    sample_rate: int
    frame_size: int

    @property
    def downsample(self) -> int:
        """Encoder transformer positions a frame."""
        return self.frame_size // prod(self.encoder.upsampling_ratios)


def parse_config(data: dict[str, Any], where: str) -> CodecConfig:
    """Read the JSON object of the codec's config.json.

    Raises:
        BreezeLabError: missing or unknown keys, a variant that is not implemented, or sizes that contradict
            each other.
    """
    top = strict(_Top, data, where, TOP_DECOYS)
    parts = {}
    for key in ("decoder_config", "encoder_config"):
        part = data.get(key)
        if not isinstance(part, dict):
            raise BreezeLabError(f"{where} lacks {key}. Take the file from the checkpoint again.")
        parts[key] = _plain_rope(
            {k: tuple(v) if isinstance(v, list) else v for k, v in part.items()}, f"{where}: {key}"
        )
    decoder = strict(DecoderConfig, parts["decoder_config"], f"{where}: decoder_config", DECODER_DECOYS)
    encoder = strict(EncoderConfig, parts["encoder_config"], f"{where}: encoder_config", ENCODER_DECOYS)
    config = CodecConfig(
        decoder, encoder, top.encoder_valid_num_quantizers, top.output_sample_rate, top.decode_upsample_rate
    )
    _check(config, top, where)
    return config


def _plain_rope(part: dict[str, Any], where: str) -> dict[str, Any]:
    """Both spellings of rope settings: rope_theta alone, or inside the newer rope_parameters. No scaling."""
    part = dict(part)
    given = {**(part.pop("rope_scaling", None) or {}), **(part.pop("rope_parameters", None) or {})}
    if given.get("rope_type", given.get("type", "default")) != "default":
        raise BreezeLabError(
            f"{where} scales its rope, which this codec does not. Take the file from the checkpoint again."
        )
    if "rope_theta" in given:
        part.setdefault("rope_theta", given["rope_theta"])
    return part


def _check(c: CodecConfig, top: _Top, where: str) -> None:
    d, e = c.decoder, c.encoder

    def need(condition: bool, message: str) -> None:
        if not condition:
            raise BreezeLabError(f"{where}: {message}. Take the file from the checkpoint again.")

    need(
        top.input_sample_rate == top.output_sample_rate == e.sampling_rate,
        "input, output and encoder sample rates differ",
    )
    need(
        prod(d.upsample_rates) * prod(d.upsampling_ratios) == c.frame_size == top.encode_downsample_rate,
        f"the decoder's rates {list(d.upsample_rates)} and {list(d.upsampling_ratios)} do not multiply to "
        f"decode_upsample_rate {c.frame_size}, or encode_downsample_rate differs",
    )
    need(c.frame_size % prod(e.upsampling_ratios) == 0, "the encoder's ratios do not divide encode_downsample_rate")
    need(
        d.num_quantizers == c.num_codebooks <= e.num_quantizers,
        f"encoder_valid_num_quantizers {c.num_codebooks}, {d.num_quantizers} quantizers in the decoder and "
        f"{e.num_quantizers} in the encoder do not fit together",
    )
    need(d.codebook_size == e.codebook_size, "encoder and decoder have codebooks of different sizes")
    need(
        0 < d.num_semantic_quantizers == e.num_semantic_quantizers < c.num_codebooks,
        "encoder and decoder disagree about num_semantic_quantizers, or nothing is left after them",
    )
    need(d.hidden_act == "silu" and e.hidden_act in ("gelu", "gelu_pytorch_tanh"), "an activation is not known")
    need(
        not (d.attention_bias or e.attention_bias or e.use_conv_shortcut)
        and e.use_causal_conv
        and e.pad_mode == "constant"
        and e.audio_channels == 1,
        "biases in attention, convolution shortcuts, non-causal or non-zero padding and several channels are not "
        "part of this codec",
    )
    need(
        e.vector_quantization_hidden_dimension in (None, e.codebook_dim),
        "the encoder's vector_quantization_hidden_dimension differs from its codebook_dim",
    )
    need(
        d.decoder_dim % 2 ** len(d.upsample_rates) == 0 and d.codebook_dim % 2 == 0,
        "decoder_dim must halve at each of the upsample_rates, and codebook_dim be even",
    )
