"""`audio_tokenizer/config.json` of Waft's codec."""

from dataclasses import dataclass
from typing import Any

from ...config import strict
from ...errors import BreezeLabError

MODEL_TYPE = "breeze_lab_stft_codec"


@dataclass(frozen=True)
class StftCodecConfig:
    """Numbers of the codec. Lengths are in samples; a hop is a step of the spectra, `frame_size / hop` of them a frame.

    Window i of the inverse STFT covers n_fft samples from i * hop on. The encoder looks at two spectra a hop: the
    lowest `long_bins` bins (without the constant) of `long_window` samples, and all bins of `short_window` samples.
    The pitch of a hop is one of `pitch_bins` (and between), read off `pitch_frames` frames.
    Encoding follows `beam` sums of codebook entries at a time.
    """

    sample_rate: int
    frame_size: int
    hop: int
    n_fft: int
    long_window: int
    long_bins: int
    short_window: int
    num_codebooks: int
    codebook_size: int
    codebook_dim: int
    encoder_width: int
    encoder_blocks: int
    encoder_layers: int
    latent_width: int
    num_heads: int
    mlp_width: int
    attention_window: int
    decoder_layers: int
    decoder_width: int
    decoder_blocks: int
    expansion: int
    kernel_size: int
    pitch_frames: int
    pitch_width: int
    pitch_bins: int
    beam: int = 1

    @property
    def hops_per_frame(self) -> int:
        return self.frame_size // self.hop

    @property
    def lookahead(self) -> int:
        """Samples past the end of a frame which the encoder sees; the decoder sees nothing ahead."""
        return self.n_fft - self.hop


def parse_config(data: dict[str, Any], where: str) -> StftCodecConfig:
    """The config of a parsed config.json.

    Raises:
        BreezeLabError: unknown or missing keys, or numbers that do not fit each other.
    """
    config = strict(StftCodecConfig, {k: v for k, v in data.items() if k != "model_type"}, where)
    fits = {
        "frame_size must be a multiple of hop": config.frame_size % config.hop == 0,
        "n_fft must be an even multiple of hop": config.n_fft % (2 * config.hop) == 0,
        "long_window must be at least n_fft": config.long_window >= config.n_fft >= config.short_window,
        "long_bins must be at most long_window / 2": 0 < config.long_bins <= config.long_window // 2,
        "latent_width must be a multiple of 2 * num_heads": config.latent_width % (2 * config.num_heads) == 0,
        "num_codebooks must be at least 2": config.num_codebooks >= 2,
        "beam must be at least 1": config.beam >= 1,
    }
    for rule, holds in fits.items():
        if not holds:
            raise BreezeLabError(f"{where}: {rule}. Take the config.json that belongs to these weights.")
    return config
