"""Find, check and read checkpoints.

A checkpoint folder holds config.json, *.safetensors, tokenizer.json and audio_tokenizer/ (the codec), and may hold
generation_config.json (how codes are drawn). Layouts: dense (bfloat16, float16, float32) or with quantized layers,
packed as MLX packs them: affine, mxfp8, mxfp4.
"""

import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from tokenizers import Tokenizer

from . import hub
from .codec import Codec, load_codec
from .config import BreezeConfig, parse_config
from .convert import convert
from .errors import BreezeLabError
from .files import as_path
from .generation_config import read_sampling
from .host import can_walk, prepare
from .model import Breeze
from .paths import cache_folder, data_folder
from .random_checkpoint import make_checkpoint
from .samplers import Sampling
from .text import frontend
from .weights import assign, read_json, read_tensors

__all__ = ["SpeechModel", "convert", "load", "make_checkpoint"]

# In every published checkpoint, never read at inference: the CSM text embedding, a left-over Mimi codec, the copy of
# the tied audio embedding, and buffers.
DEAD = ("embed_text_tokens.", "codec_model.", "backbone_model.embed_tokens.")
BUFFERS = ("rotary_emb.inv_freq", ".initialized", ".audio_tokens_offsets")
TIED = "depth_decoder.model.embed_tokens."
TIED_COPY = "backbone_model.embed_tokens.embed_audio_tokens."


@dataclass(frozen=True)
class SpeechModel:
    """A loaded checkpoint: weights, codec and tokenizer. It holds no state; share it between threads and requests.

    Attributes:
        dtype: of the language model's dense weights, its caches and hidden states.
        sampling: what `generate` draws by where it is not told otherwise; the checkpoint's generation_config.json.
        trained: False for a random checkpoint, which sounds like noise.
    """

    lm: Breeze
    codec: Codec
    tokenizer: Tokenizer
    config: BreezeConfig
    name: str
    folder: Path
    dtype: mx.Dtype
    sampling: Sampling = field(default=Sampling(), kw_only=True)

    @property
    def sample_rate(self) -> int:
        """Samples a second, 24000."""
        return self.codec.sample_rate

    @property
    def trained(self) -> bool:
        return self.config.trained

    def tokens(self, segment: str) -> list[int]:
        """Token ids of one text segment, with the start token at its head."""
        ids = self.tokenizer.encode(segment).ids
        bos = self.config.bos_token_id
        return ids if ids[:1] == [bos] else [bos, *ids]


def load(
    source: str | Path | None = None,
    *,
    dtype: str | mx.Dtype | None = None,
    offline: bool | None = None,
    progress: bool = True,
) -> SpeechModel:
    """Load a checkpoint, evaluate its weights, and make ready what the first speech would wait for: the text's
    front-end, and on a CPU the layout and the loops of the rung `host`.

    Args:
        source: a folder; or a Hub id such as "mlx-community/Breeze-TTS-2-mlx-8bit"; or None for the default: Waft in
            data/waft, or without it a small random checkpoint that is untrained and sounds like noise.
        dtype: None for what runs best: float32 on a CPU, the checkpoint's own dtypes and packing on a GPU.
            "checkpoint" keeps them anywhere; "float32", "bfloat16" or "float16" make every weight dense in it.
            The codec is float32 always.
        offline: for Hub ids, look in the local cache alone; None follows HF_HUB_OFFLINE.
        progress: for Hub ids, show download bars.

    Raises:
        BreezeLabError: not a checkpoint, or one that is broken or does not fit its configuration.
    """
    wanted = _dtype(dtype)
    folder = default_folder() if source is None else hub.find_folder(source, offline=offline, progress=progress)
    config = parse_config(read_json(folder / "config.json"), str(folder / "config.json"))
    sampling = read_sampling(folder)
    tensors = _live(read_tensors(folder))
    lm = Breeze(config)
    if wanted is None:
        _quantize_like(lm, tensors, config.quantization, folder)
    else:
        tensors = _dense(tensors, config.quantization, wanted)
    assign(lm, tensors, str(folder))
    lm.eval()
    if can_walk(lm):
        prepare(lm)
    with suppress(BreezeLabError):  # a front-end that is missing is told when somebody speaks
        frontend(config.text_frontend)("Ready.")
    tokenizer = _tokenizer(folder)
    codec = load_codec(folder / "audio_tokenizer")
    if codec.num_codebooks != config.num_codebooks or codec.codebook_size != config.codec_vocab_size:
        raise BreezeLabError(
            f"{folder}: the codec has {codec.num_codebooks} codebooks of {codec.codebook_size}, but config.json says "
            f"{config.num_codebooks} of {config.codec_vocab_size}. Put the audio_tokenizer of this checkpoint back."
        )
    if source is None and not config.trained:
        warnings.warn("The default checkpoint is not trained: everything runs, but it sounds like noise.", stacklevel=2)
    return SpeechModel(
        lm=lm,
        codec=codec,
        tokenizer=tokenizer,
        config=config,
        name=folder.name if source is None or as_path(source, "the checkpoint").is_dir() else str(source),
        folder=folder,
        dtype=lm.backbone_model.norm.weight.dtype,
        sampling=sampling,
    )


def default_folder() -> Path:
    """Where the default checkpoint is: data/waft, or a random one in the user's cache (made when first asked for)."""
    waft = data_folder() / "waft"
    if (waft / "config.json").is_file():
        return waft
    folder = cache_folder() / "random-small"
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_checkpoint(folder, "small", seed=0)
    return folder


def _dtype(dtype: str | mx.Dtype | None) -> mx.Dtype | None:
    """The dtype to make everything dense in, or None to keep the checkpoint's."""
    if dtype == "checkpoint":
        return None
    if dtype is None:
        return mx.float32 if mx.default_device() == mx.Device(mx.cpu) else None
    found = {str(d).rsplit(".", 1)[-1]: d for d in (mx.float32, mx.bfloat16, mx.float16)}
    name = str(dtype).rsplit(".", 1)[-1]
    if name not in found:
        raise BreezeLabError(f"Unknown dtype {dtype!r}. Choose one of {', '.join(found)} or checkpoint.")
    return found[name]


def _live(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Only what inference reads. A checkpoint that stores just the copy of the tied embedding has it renamed."""
    live = {k: v for k, v in tensors.items() if not k.startswith(DEAD) and not k.endswith(BUFFERS)}
    if not any(name.startswith(TIED) for name in live):
        live |= {TIED + k[len(TIED_COPY) :]: v for k, v in tensors.items() if k.startswith(TIED_COPY)}
    return live


def _packing(quantization: dict[str, Any] | None, path: str, folder: str | Path) -> dict[str, Any]:
    """group_size, bits and mode of the quantized layer `path`."""
    if not isinstance(quantization, dict):
        raise BreezeLabError(
            f"{folder}: {path} is quantized, but config.json has no quantization entry. Restore config.json."
        )
    own = quantization.get(path)
    chosen = own if isinstance(own, dict) else quantization
    mode = chosen.get("mode", "affine")
    sizes = {"affine": 64, "mxfp4": 32, "mxfp8": 32, "nvfp4": 16}
    if mode not in sizes or not isinstance(chosen.get("bits"), int):
        raise BreezeLabError(f"{folder}: config.json quantizes {path} by mode {mode!r}, bits {chosen.get('bits')!r}.")
    return {"group_size": chosen.get("group_size", sizes[mode]), "bits": chosen["bits"], "mode": mode}


def _quantized(tensors: dict[str, mx.array]) -> list[str]:
    return [name[: -len(".scales")] for name in tensors if name.endswith(".scales")]


def _quantize_like(lm: Breeze, tensors: dict[str, mx.array], quantization: Any, folder: Path) -> None:
    """Turn the layers that the checkpoint stores packed into quantized ones."""
    packing = {path: _packing(quantization, path, folder) for path in _quantized(tensors)}
    if packing:
        nn.quantize(lm, class_predicate=lambda path, _: packing.get(path, False))


def _dense(tensors: dict[str, mx.array], quantization: Any, dtype: mx.Dtype) -> dict[str, mx.array]:
    """Unpack quantized layers and cast everything to `dtype`."""
    dense = dict(tensors)
    for path in _quantized(tensors):
        weight, scales = dense.pop(f"{path}.weight", None), dense.pop(f"{path}.scales")
        biases = dense.pop(f"{path}.biases", None)
        if weight is not None:
            packing = _packing(quantization, path, "The checkpoint")
            dense[f"{path}.weight"] = mx.dequantize(weight, scales, biases, **packing)
    return {name: array.astype(dtype) for name, array in dense.items()}


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BreezeLabError(f"{folder} lacks tokenizer.json. Download it again.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BreezeLabError(f"{path} cannot be read ({error}). Download it again.") from None
    missing = [tag for tag in ("[S0]", "<ins_bos>", "<ins_eos>") if tokenizer.token_to_id(tag) is None]
    if missing:
        raise BreezeLabError(f"{path} lacks the tokens {', '.join(missing)}. Use the tokenizer of this checkpoint.")
    return tokenizer
