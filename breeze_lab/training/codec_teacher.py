"""Phonetic targets for the semantic codebook: the encoder of a small speech recognizer (Whisper tiny.en, MIT).

It is not one of the judges, which use another size. `python -m breeze_lab.training.codec_teacher MODEL.bin OUT.npz`
takes the encoder out of a CTranslate2 file. The teacher hears 24 kHz audio as it is: a window of 600 samples there has
the bins of one of 400 at 16 kHz.
"""

import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .codec_losses import mel_filters


def read_ctranslate2(path: Path) -> dict[str, np.ndarray]:
    """Float16 encoder tensors of a CTranslate2 model file (format 6)."""
    tensors = {}
    with open(path, "rb") as file:

        def number(code: str) -> int:
            return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

        def text() -> str:
            return file.read(number("H"))[:-1].decode()

        if number("I") != 6:
            raise ValueError(f"{path} is not a CTranslate2 model of format 6.")
        text(), number("I")
        for _ in range(number("I")):
            name, rank = text(), number("B")
            dims = [number("I") for _ in range(rank)]
            kind, data = number("B"), file.read(number("I"))
            if name.startswith("encoder/") and kind == 4:
                tensors[name.removeprefix("encoder/")] = np.frombuffer(data, np.float16).reshape(dims)
    return tensors


class Teacher(nn.Module):
    """Samples [B, F * 1920] at 24 kHz -> standardized features [B, F, 384], after `fit` has seen some audio."""

    def __init__(self, path: Path):
        super().__init__()
        for name, value in np.load(path).items():
            self.register_buffer(name.replace("/", "__"), torch.from_numpy(value.astype(np.float32)), persistent=False)
        self.depth = sum(name.endswith("ffn__linear_0__weight") for name, _ in self.named_buffers())
        self.register_buffer("mel", mel_filters(600, 24000, 80, 8000.0, slaney=True), persistent=False)
        self.register_buffer("hann", torch.hann_window(600), persistent=False)
        self.register_buffer("mean", torch.zeros(384))
        self.register_buffer("deviation", torch.ones(384))

    def get(self, name: str) -> Tensor:
        return getattr(self, name.replace("/", "__"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.get(f"{name}/gamma"), self.get(f"{name}/beta"))

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.get(f"{name}/weight"), self.get(f"{name}/bias"))

    def raw(self, samples: Tensor) -> Tensor:
        """Encoder output at 50 Hz, [B, N // 480, 384]."""
        with torch.autocast(samples.device.type, enabled=False):
            power = (
                torch.stft(samples.float(), 600, 240, 600, self.hann, return_complex=True)[..., :-1].abs().square()
                / 2.25
            )
            log = torch.log10((self.mel @ power).clamp(min=1e-10))
            log = torch.maximum(log, log.amax((1, 2), keepdim=True) - 8) / 4 + 1
        x = F.gelu(F.conv1d(log, self.get("conv1/weight"), self.get("conv1/bias"), padding=1))
        x = F.gelu(F.conv1d(x, self.get("conv2/weight"), self.get("conv2/bias"), stride=2, padding=1)).transpose(1, 2)
        x = x + self.get("position_encodings/encodings")[: x.shape[1]]
        batch, steps, width = x.shape
        for i in range(self.depth):
            name = f"layer_{i}/self_attention"
            q, k, v = (
                self._linear(self._norm(x, f"{name}/layer_norm"), f"{name}/linear_0")
                .view(batch, steps, 3, 6, 64)
                .permute(2, 0, 3, 1, 4)
            )
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, steps, width)
            x = x + self._linear(y, f"{name}/linear_1")
            y = F.gelu(self._linear(self._norm(x, f"layer_{i}/ffn/layer_norm"), f"layer_{i}/ffn/linear_0"))
            x = x + self._linear(y, f"layer_{i}/ffn/linear_1")
        return self._norm(x, "layer_norm")

    @torch.no_grad()
    def forward(self, samples: Tensor) -> Tensor:
        x = self.raw(samples).float()
        return (x.unflatten(1, (-1, 4)).mean(2) - self.mean) / self.deviation

    @torch.no_grad()
    def fit(self, batches: list[Tensor]) -> None:
        """Sets mean and deviation of each feature from some audio."""
        x = torch.cat([self(b).flatten(0, 1) for b in batches])
        self.mean.copy_(x.mean(0))
        self.deviation.copy_(x.std(0) + 1e-3)


if __name__ == "__main__":
    np.savez(sys.argv[2], **read_ctranslate2(Path(sys.argv[1])))
