"""The card of a published model: README.md, whose head is the metadata of the Hugging Face Hub.

It says what model.yaml and the results of `svt evaluate` say, and no number beside. The keys of the head are those of
https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svtoolkit.checkpoints.hub import Address
from svtoolkit.checkpoints.released import ModelDescription
from svtoolkit.config.front_ends import WaveformConfig
from svtoolkit.models.front_ends import BACKENDS, FRONT_ENDS
from svtoolkit.reporting.formatting import count, decimal, fact, percent, printable
from svtoolkit.system.plain_data import write_yaml

TAGS = ("speaker-verification", "speaker-recognition", "speaker-embedding", "audio")

SHOWN_OF_FEATURES = {"backend", "sample_rate", "num_bins", "frame_length_ms", "frame_shift_ms"}

FEW_SPEAKERS = "An interval over few speakers is wide, and tells more than the error rate alone."


def write_card(
    address: Address,
    description: ModelDescription,
    parameters: int,
    results: Sequence[Mapping[str, Any]] = (),
    *,
    license: str | None = None,
) -> str:
    """The text of README.md.

    Args:
        address: where the model will be.
        description: of the model.
        parameters: of its network.
        results: as `svt evaluate` writes them.
        license: as the hub writes it; None: none is stated.
    """
    parts = [
        _head(address, description, results, license),
        _network(address, description, parameters),
        _training(description.training),
        _error_rates(results),
        _threshold(description.verification),
        _use(address, description),
    ]
    return "\n".join(parts)


def _head(
    address: Address, description: ModelDescription, results: Sequence[Mapping[str, Any]], license: str | None
) -> str:
    content: dict[str, Any] = {"library_name": "svtoolkit"}
    if license is not None:
        content["license"] = license
    content["tags"] = [*TAGS, str(description.model["name"])]
    if results:
        content["model-index"] = [
            {"name": address.repository.partition("/")[2], "results": [_metrics(result) for result in results]}
        ]
    text = io.StringIO()
    write_yaml(content, text, allow_unicode=True)
    return f"---\n{text.getvalue()}---\n"


def _metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    costs = [
        {"type": "minDCF", "name": f"minDCF at a target prior of {prior}", "value": cost}
        for prior, cost in (result.get("min_dcf") or {}).items()
    ]
    name = printable(result["evaluation"])
    return {
        "task": {"type": "speaker-verification", "name": "Speaker verification"},
        "dataset": {"type": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "trials", "name": name},
        "metrics": [{"type": "eer", "name": f"EER (%), {result['scores']}", "value": 100 * result["eer"]}, *costs],
    }


def _network(address: Address, description: ModelDescription, parameters: int) -> str:
    model, features = description.model, description.features
    name = str(model["name"])
    others = {key: value for key, value in model.items() if key not in ("name", "num_bins", "embedding_dim")}
    kind = "log-mel filter bank, as Kaldi's" if features.backend in BACKENDS else FRONT_ENDS[features.backend].help
    frames = f"{features.num_bins} bins, {features.frame_length_ms:g} ms every {features.frame_shift_ms:g} ms"
    if isinstance(features, WaveformConfig):
        frames = f"every sample, of {features.frame_length_ms:g} ms or more"
    details = {key: value for key, value in vars(features).items() if key not in SHOWN_OF_FEATURES}
    rows = {
        "network": f"`{name}`",
        "its settings": fact({key: value for key, value in others.items() if value is not None}),
        "parameters": count(parameters),
        "embedding": f"{fact(model.get('embedding_dim'))} values; scores are cosines",
        "sampling rate": f"{features.sample_rate} Hz",
        "front end": f"{kind}; {frames}",
        "its details": fact(details),
        "SHA-256 of the weights": f"`{description.weights_sha256}`",
    }
    return (
        f"# {address.repository.partition('/')[2]}\n\n"
        f"A speaker-embedding network, `{name}`, in the form of svtoolkit: `model.yaml` and `model.safetensors`, plain "
        f"data of which nothing is executed.\n\n{_table(('', ''), rows.items())}"
    )


def _training(facts: Mapping[str, Any]) -> str:
    shown = {key.replace("_", " "): fact(value) for key, value in facts.items() if value is not None}
    said = _table(("", ""), shown.items()) if shown else "model.yaml says nothing of it.\n"
    return f"## Training\n\n{said}"


def _error_rates(results: Sequence[Mapping[str, Any]]) -> str:
    if not results:
        return "## Error rates\n\nNone were published with this model.\n"
    priors = sorted({prior for result in results for prior in result.get("min_dcf") or {}}, key=float)
    head = ("evaluation", "scores", "trials", "missing", "EER", "interval", *(f"minDCF {prior}" for prior in priors))
    rows = []
    for result in results:
        low, high = result.get("eer_interval") or (None, None)
        share = f" ({100 * result['confidence']:g} %)" if low is not None and result.get("confidence") else ""
        rows.append((
            result["evaluation"],
            result["scores"],
            count(result.get("trials")),
            count(result["missing"]),
            percent(result["eer"]),
            "–" if low is None else f"{percent(low)} to {percent(high)}{share}",
            *(decimal((result.get("min_dcf") or {}).get(prior)) for prior in priors),
            decimal(result.get("cllr")),
        ))  # fmt: skip
    note = f"EER: equal error rate; in brackets the share of bootstrap resamples of the speakers. {FEW_SPEAKERS}\n"
    return f"## Error rates\n\n{_table((*head, 'Cllr'), rows)}\n{note}"


def _threshold(verification: Mapping[str, Any]) -> str:
    if verification.get("threshold") is None:
        return (
            "## Threshold\n\nThis model has none. `svt calibrate` chooses one from recordings of your own, which "
            "no list of others can replace.\n"
        )
    point = verification.get("operating_point")
    rates = [
        f"{name} {percent(verification[key])}"
        for key, name in (("p_fa", "false alarms"), ("p_miss", "misses"))
        if verification.get(key) is not None
    ]
    expected = f" Expected at it: {', '.join(rates)}, for recordings as those it was chosen from." if rates else ""
    return (
        f"## Threshold\n\n{verification['threshold']:.4f} on the cosine{f' ({point})' if point else ''}.{expected} "
        "For other recordings choose another with `svt calibrate`.\n"
    )


def _use(address: Address, description: ModelDescription) -> str:
    decides = description.verification.get("threshold") is not None
    decision = ", result.same_speaker" if decides else ""
    note = "" if decides else "Without a threshold the score alone is said: `--threshold` of `svt verify` sets one.\n"
    return f"""## Use

With svtoolkit and its extra `hub`. Two recordings, on the command line and in Python:

```bash
svt verify {address} a.wav b.wav
```

```python
import svtoolkit

model = svtoolkit.load_model("{address}")
embedding = model.embed("a.wav")
result = model.verify("a.wav", "b.wav")
print(result.score{decision})
```

A list of trials, and its error rate:

```bash
svt embed --model {address} --data data/eval --out emb/eval
svt score --trials data/eval/trials --embeddings emb/eval.scp --out scores/eval
svt evaluate --scores scores/eval --trials data/eval/trials --utt2spk data/eval/utt2spk
```

{note}Recordings of another sampling rate than {description.features.sample_rate} Hz are refused; `--resample` converts
them.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return printable(" ".join(str(text).split())).replace("|", r"\|").replace("<", "&lt;")
