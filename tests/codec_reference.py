"""The Qwen3-TTS 12 Hz codec in float64 NumPy, naively and straight from a published file's tensors.

Written from the format's description alone and sharing no code with the codec: loops over time and taps, whole
attention matrices, distances to every codebook entry. Arrays are [T, C].
"""

import math

import numpy as np
from scipy.special import erf

from breeze_lab.codec.qwen12hz.random import random_config


class Reference:
    """Both halves. `data` is the config.json object, `tensors` the file's tensors."""

    def __init__(self, data, tensors):
        self.data = data
        self.t = {name: np.asarray(array, np.float64) for name, array in tensors.items()}

    def book(self, prefix, total):
        return self.t[f"{prefix}.{total}"] / np.maximum(self.t[f"{prefix}.cluster_usage"], 1e-5)[:, None]

    # Layers ---------------------------------------------------------------------------------------------------------

    def conv(self, name, x, dilation=1, stride=1, mode="constant", groups=1):
        weight = self.t[f"{name}.conv.weight"]  # [O, C / groups, k]
        outputs, _, kernel = weight.shape
        reach = (kernel - 1) * dilation + 1
        left = reach - stride
        steps = math.ceil(max(len(x) + left - reach, 0) / stride) + 1
        right = max(0, (steps - 1) * stride + reach - left - len(x))
        x = np.pad(x, [(left, right), (0, 0)], mode=mode)
        out = np.zeros((steps, outputs))
        for step in range(steps):
            for tap in range(kernel):
                row = x[step * stride + tap * dilation]
                out[step] += row * weight[:, 0, tap] if groups > 1 else weight[:, :, tap] @ row
        return out + self.t.get(f"{name}.conv.bias", 0.0)

    def transposed(self, name, x, stride):
        weight = self.t[f"{name}.conv.weight"]  # [C, O, k]
        kernel = weight.shape[2]
        out = np.zeros(((len(x) - 1) * stride + kernel, weight.shape[1]))
        for step, row in enumerate(x):
            for tap in range(kernel):
                out[step * stride + tap] += row @ weight[:, :, tap]
        return out[: len(x) * stride] + self.t[f"{name}.conv.bias"]

    def snake(self, name, x):
        alpha, beta = np.exp(self.t[f"{name}.alpha"]), np.exp(self.t[f"{name}.beta"])
        return x + np.sin(alpha * x) ** 2 / (beta + 1e-9)

    def linear(self, name, x):
        return x @ self.t[f"{name}.weight"].T + self.t.get(f"{name}.bias", 0.0)

    def layer_norm(self, name, x, eps):
        centred = x - x.mean(-1, keepdims=True)
        centred = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
        return centred * self.t[f"{name}.weight"] + self.t[f"{name}.bias"]

    def rms_norm(self, name, x, eps):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * self.t[f"{name}.weight"]

    def attention(self, name, x, c):
        heads, dims = c["num_attention_heads"], c["head_dim"]
        q, k, v = (self.linear(f"{name}.{p}_proj", x).reshape(len(x), heads, dims) for p in "qkv")
        angles = np.arange(len(x))[:, None] / c["rope_theta"] ** (np.arange(0, dims, 2) / dims)
        turn = np.exp(1j * angles)[:, None]
        half = dims // 2

        def rotate(a):
            z = (a[..., :half] + 1j * a[..., half:]) * turn
            return np.concatenate([z.real, z.imag], -1)

        q, k = rotate(q), rotate(k)
        out = np.zeros_like(v)
        for i in range(len(x)):
            first = max(0, i - c["sliding_window"] + 1)
            for h in range(heads):
                scores = k[first : i + 1, h] @ q[i, h] / math.sqrt(dims)
                chances = np.exp(scores - scores.max())
                out[i, h] = chances / chances.sum() @ v[first : i + 1, h]
        return self.linear(f"{name}.o_proj", out.reshape(len(x), -1))

    def transformer(self, name, x, c, norm, mlp):
        for i in range(c["num_hidden_layers"]):
            layer = f"{name}.layers.{i}"
            branch = self.attention(f"{layer}.self_attn", norm(f"{layer}.input_layernorm", x), c)
            x = x + self.t[f"{layer}.self_attn_layer_scale.scale"] * branch
            branch = mlp(f"{layer}.mlp", norm(f"{layer}.post_attention_layernorm", x))
            x = x + self.t[f"{layer}.mlp_layer_scale.scale"] * branch
        return x

    # Halves ---------------------------------------------------------------------------------------------------------

    def decode(self, codes):
        """int [F, K] -> [F * frame size]."""
        c = self.data["decoder_config"]
        sums = [0.0, 0.0]
        for k in range(codes.shape[1]):
            first, index = ("rvq_first", k) if k < 1 else ("rvq_rest", k - 1)
            entries = self.book(f"decoder.quantizer.{first}.vq.layers.{index}._codebook", "embedding_sum")
            sums[k > 0] = sums[k > 0] + entries[codes[:, k]]
        x = sum(
            s @ self.t[f"decoder.quantizer.{n}.output_proj.weight"][:, :, 0].T
            for s, n in zip(sums, ("rvq_first", "rvq_rest"), strict=True)
        )
        x = self.conv("decoder.pre_conv", x)
        x = self.linear("decoder.pre_transformer.input_proj", x)
        x = self.transformer(
            "decoder.pre_transformer",
            x,
            c,
            lambda n, a: self.rms_norm(n, a, c["rms_norm_eps"]),
            lambda n, a: self.linear(
                f"{n}.down_proj", silu(self.linear(f"{n}.gate_proj", a)) * self.linear(f"{n}.up_proj", a)
            ),
        )
        x = self.rms_norm("decoder.pre_transformer.norm", x, c["rms_norm_eps"])
        x = self.linear("decoder.pre_transformer.output_proj", x)
        for i, ratio in enumerate(c["upsampling_ratios"]):
            x = self.transposed(f"decoder.upsample.{i}.0", x, ratio)
            block = f"decoder.upsample.{i}.1"
            y = self.layer_norm(f"{block}.norm", self.conv(f"{block}.dwconv", x, groups=x.shape[1]), 1e-6)
            y = self.linear(f"{block}.pwconv2", gelu(self.linear(f"{block}.pwconv1", y)))
            x = x + self.t[f"{block}.gamma"] * y
        x = self.conv("decoder.decoder.0", x)
        for i, rate in enumerate(c["upsample_rates"]):
            block = f"decoder.decoder.{i + 1}.block"
            x = self.transposed(f"{block}.1", self.snake(f"{block}.0", x), rate)
            for unit, dilation in ((2, 1), (3, 3), (4, 9)):
                y = self.conv(f"{block}.{unit}.conv1", self.snake(f"{block}.{unit}.act1", x), dilation)
                x = x + self.conv(f"{block}.{unit}.conv2", self.snake(f"{block}.{unit}.act2", y))
        last = len(c["upsample_rates"]) + 1
        x = self.conv(f"decoder.decoder.{last + 1}", self.snake(f"decoder.decoder.{last}", x))
        return np.clip(x[:, 0], -1, 1)

    def latents(self, samples):
        """[N] -> [F, hidden size], what the quantizer sees."""
        c = self.data["encoder_config"]
        x = self.conv("encoder.encoder.layers.0", samples[:, None])
        index = 1
        for ratio in reversed(c["upsampling_ratios"]):
            for j in range(c["num_residual_layers"]):
                block = f"encoder.encoder.layers.{index}.block"
                y = self.conv(f"{block}.1", elu(x), c["dilation_growth_rate"] ** j)
                x = x + self.conv(f"{block}.3", elu(y))
                index += 1
            x = self.conv(f"encoder.encoder.layers.{index + 1}", elu(x), stride=ratio)
            index += 2
        x = self.conv(f"encoder.encoder.layers.{index + 1}", elu(x))
        act = gelu if c["hidden_act"] == "gelu" else gelu_tanh
        x = self.transformer(
            "encoder.encoder_transformer",
            x,
            c,
            lambda n, a: self.layer_norm(n, a, c["norm_eps"]),
            lambda n, a: self.linear(f"{n}.fc2", act(self.linear(f"{n}.fc1", a))),
        )
        stride = self.data["encode_downsample_rate"] // math.prod(c["upsampling_ratios"])
        return self.conv("encoder.downsample", x, stride=stride, mode="edge")

    def quantize(self, latents):
        """[F, hidden size] -> codes [F, K] and, for each, how much farther the second nearest entry was."""
        codes, margins = [], []
        count = self.data["encoder_valid_num_quantizers"]
        for name, books in (("semantic", 1), ("acoustic", count - 1)):
            prefix = f"encoder.quantizer.{name}_residual_vector_quantizer"
            rest = latents @ self.t[f"{prefix}.input_proj.weight"][:, :, 0].T
            for i in range(books):
                entries = self.book(f"{prefix}.layers.{i}.codebook", "embed_sum")
                distances = ((rest[:, None] - entries[None]) ** 2).sum(-1)
                codes.append(distances.argmin(-1))
                nearest = np.sort(distances, -1)
                margins.append(nearest[:, 1] - nearest[:, 0])
                rest = rest - entries[codes[-1]]
        return np.stack(codes, -1), np.stack(margins, -1)


def silu(x):
    return x / (1 + np.exp(-x))


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


FRAME = 24  # samples a frame of the toy codec


def toy_config(**windows):
    """Few channels and 24 samples a frame, so that a naive reference is quick; windows of 5 and 7 positions."""
    data = random_config("tiny", num_codebooks=4, codebook_size=32)
    data |= {"decode_upsample_rate": FRAME, "encode_downsample_rate": FRAME}
    data["decoder_config"] |= {
        "latent_dim": 12, "codebook_dim": 16, "hidden_size": 16, "head_dim": 4, "intermediate_size": 24,
        "num_attention_heads": 4, "num_key_value_heads": 4, "decoder_dim": 16, "upsampling_ratios": [2, 2],
        "upsample_rates": [3, 2], "sliding_window": windows.get("decoder", 5),
    }  # fmt: skip
    data["encoder_config"] |= {
        "num_filters": 4, "upsampling_ratios": [3, 2, 2], "hidden_size": 16, "head_dim": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 24, "num_residual_layers": 2, "codebook_dim": 8,
        "vector_quantization_hidden_dimension": 8, "sliding_window": windows.get("encoder", 7), "hidden_act": "gelu",
    }  # fmt: skip
    return data
