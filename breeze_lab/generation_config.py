"""How a checkpoint's makers draw codes: `generation_config.json`, the field's standard file beside config.json.

Read are Hugging Face's names temperature, top_k, top_p and repetition_penalty; `"do_sample": false` is temperature 0,
as it is there. All else that such files hold (token ids, lengths, a depth decoder's own settings) is not looked at.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path

from .errors import BreezeLabError
from .files import whole_file
from .samplers import Sampling
from .weights import read_json

NAME = "generation_config.json"


def read_sampling(folder: Path) -> Sampling:
    """The folder's sampling; what the file leaves out or sets to null, or all without a file, is `Sampling()`'s.

    Raises:
        BreezeLabError: a file that is not a JSON object, or a value outside its range.
    """
    path = folder / NAME
    if not path.exists():
        return Sampling()
    data = read_json(path)
    found = {f.name: data[f.name] for f in fields(Sampling) if data.get(f.name) is not None}
    if data.get("do_sample") is False:
        found["temperature"] = 0
    try:
        return Sampling(**found)
    except BreezeLabError as error:
        raise BreezeLabError(f"{path}: {error} Mend the file, or delete it for {described(Sampling())}.") from None


def write_sampling(folder: Path, sampling: Sampling) -> None:
    """Write the folder's generation_config.json, whole or not at all."""
    with whole_file(folder / NAME) as part:
        part.write_text(json.dumps({"do_sample": sampling.temperature > 0, **asdict(sampling)}, indent=2) + "\n")


def described(sampling: Sampling) -> str:
    """In words, for people: temperature 0.9, top-k 50, top-p 1, repetition penalty 1.1."""
    return ", ".join(f"{name.replace('top_', 'top-').replace('_', ' ')} {v:g}" for name, v in asdict(sampling).items())
