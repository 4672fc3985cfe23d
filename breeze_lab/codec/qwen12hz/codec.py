"""The Qwen3-TTS 12 Hz codec: 16 codebooks of 2048 at 12.5 frames a second, 24 kHz mono."""

from pathlib import Path

import mlx.core as mx

from ...weights import assign, read_json, read_tensors
from ..base import Codec, StreamState
from .config import CodecConfig, parse_config
from .decoder import Decoder
from .encoder import Encoder
from .layout import adopt

BLOCK = 8  # frames decoded at once by `decode`: enough for full-size products, few enough for a CPU's caches


class Qwen12HzCodec(Codec):
    """See `Codec`. Weights and arithmetic are float32, whatever the language model's dtype."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        self.sample_rate, self.frame_size = config.sample_rate, config.frame_size
        self.num_codebooks, self.codebook_size = config.num_codebooks, config.decoder.codebook_size
        self.decoder = Decoder(config.decoder)
        self.encoder = Encoder(config)

    @classmethod
    def load(cls, folder: Path) -> "Qwen12HzCodec":
        """Read `config.json` and the safetensors of an `audio_tokenizer` folder.

        Raises:
            BreezeLabError: a file is missing, broken or does not fit the others; names what is wrong.
        """
        config = parse_config(read_json(folder / "config.json"), str(folder / "config.json"))
        codec = cls(config)
        assign(codec, adopt(codec, config, read_tensors(folder), str(folder)), str(folder))
        codec.freeze()
        return codec

    def encode(self, samples: mx.array) -> mx.array:
        """See `Codec.encode`."""
        return self.encoder(self.check_samples(samples))

    def decode(self, codes: mx.array) -> mx.array:
        """See `Codec.decode`. Works through the frames in blocks, as a stream does, so memory stays bounded."""
        codes = self.check_codes(codes)
        self.check_range(codes)
        state = self.make_state()
        out = []
        for start in range(0, codes.shape[0], BLOCK):
            out.append(self.decoder(codes[start : start + BLOCK], state))
            mx.eval(out[-1], state.arrays)
        return mx.concatenate(out) if out else mx.zeros((0,))

    def decode_step(self, codes: mx.array, state: StreamState) -> mx.array:
        """See `Codec.decode_step`. Does not read the codes on the host."""
        codes = self.check_codes(codes)
        return self.decoder(codes, state) if codes.shape[0] else mx.zeros((0,))
