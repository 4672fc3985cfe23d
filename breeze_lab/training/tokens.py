"""Waft's tokenizer: one token a character of phonemes, letters and signs, and Breeze's special tokens.

    python -m breeze_lab.training.tokens --out data/waft

Instructions and events are spelled in letters, which share their tokens with the phonemes of the same sign.
"""

import argparse
import json
from pathlib import Path
from typing import Any

SPECIAL = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<|AUDIO|>",
    "<|audio_eos|>",
    *(f"[S{i}]" for i in range(10)),
    "<ins_bos>",
    "<ins_eos>",
)
PAD, EOS, BOS, UNKNOWN = range(4)
LETTERS = " abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?'\"()-—…“”‘’&%/+"
# The phoneme alphabet of misaki and Kokoro beyond the letters above.
PHONEMES = "\u0303ʣʥʦʨᵝꭧᵊɑɐɒæβɔɕçɖðʤəɚɛɜɟɡɥɨɪʝɯɰŋɳɲɴøɸθœɹɾɻʁɽʂʃʈʧʊʋʌɣɤχʎʒʔˈˌːʰʲ↓→↗↘ᵻ"
EVENTS = "笑咳嗽清嗓子叹气[]"
SIZE = 192


def vocabulary() -> dict[str, int]:
    """Token -> id; the ids up to SIZE that are left over are spare."""
    tokens = [*SPECIAL, *LETTERS, *PHONEMES, *EVENTS]
    if len(set(tokens)) != len(tokens) or len(tokens) > SIZE:
        raise ValueError(f"{len(tokens)} tokens, {len(set(tokens))} of them different, {SIZE} at most")
    return {token: i for i, token in enumerate(tokens)}


def tokenizer_json() -> dict[str, Any]:
    """The object that the `tokenizers` library reads: characters, special tokens, <bos> at the head."""
    ids = vocabulary()
    added = [
        {
            "id": ids[t],
            "content": t,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for t in SPECIAL
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [ids["<bos>"]], "tokens": ["<bos>"]}},
        },
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": "<unk>"},
    }


def encode(text: str) -> list[int]:
    """The same ids without the library, <bos> left out, for text without special tokens (batches are built from it)."""
    return [_IDS.get(c, UNKNOWN) for c in text]


_IDS = vocabulary()


def write(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False, indent=1) + "\n")
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    config = {**names, "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
