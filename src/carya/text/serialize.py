"""What of a text ranker goes into a saved folder, beside what its model puts there. docs/format.md specifies it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import from_json, to_json
from carya.core.storage import Saved
from carya.core.strings import Strings
from carya.errors import ModelFormatError
from carya.models.xr_linear.serialize import KIND as MODEL_KIND
from carya.text.calibration import Calibration
from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf

KIND = "text-ranker"

_TERMS = ("bytes", "ends", "slots")
_LABELS = ("ids", "names", "texts")
_COUNTS = "labels.counts"
_TEXTS = "texts"
_CALIBRATION = ("scores", "chances")


def pack(vectorizer: Tfidf, labels: LabelSet, model: Saved, calibration: Calibration | None = None) -> Saved:
    """The content of the folder."""
    arrays: dict[str, NDArray[Any]] = dict(model.arrays)
    for part, terms in enumerate(vectorizer.terms_):
        arrays |= {f"text.{part}.{name}": array for name, array in zip(_TERMS, terms, strict=True)}
    arrays["text.idf"] = vectorizer.idf_
    for name in _LABELS:
        strings: Strings | None = getattr(labels, name)
        if strings is not None:
            arrays |= {f"labels.{name}.bytes": strings.data, f"labels.{name}.ends": strings.ends}
    shape = dict(model.shape)
    if labels.counts is not None:
        arrays[_COUNTS] = labels.counts
        shape[_TEXTS] = labels.n_texts
    if calibration is not None:
        arrays |= {f"calibration.{name}": getattr(calibration, name) for name in _CALIBRATION}
    how = {"n_jobs": vectorizer.n_jobs, "verbose": vectorizer.verbose}  # may be set otherwise after training
    parameters = {name: to_json(value) for name, value in (vectorizer.learned_with_ | how).items()}
    own: dict[str, Any] = {"model": model.parameters, "text": parameters}
    if model.kind != MODEL_KIND:
        own["model_kind"] = model.kind
    return Saved(KIND, own, shape, arrays)


def unpack(saved: Saved) -> tuple[Tfidf, LabelSet, Calibration | None, Saved]:
    """The parts, and what the model is to be made of; raises ModelFormatError if they do not fit together."""
    try:
        parameters = {name: from_json(value) for name, value in saved.parameters["text"].items()}
        vectorizer = Tfidf(**parameters)
        vectorizer.check_parameters()
        parts = 1 if isinstance(vectorizer.analyzer, str) else len(vectorizer.analyzer)
        terms = [tuple(saved.arrays[f"text.{part}.{name}"] for name in _TERMS) for part in range(parts)]
        vectorizer.set_learned(terms, saved.arrays["text.idf"])  # type: ignore[arg-type]
        if not np.isfinite(vectorizer.idf_).all():
            raise ValueError("an idf is not finite")
        for data, _, _ in vectorizer.terms_:
            data.tobytes().decode()  # UnicodeDecodeError is a ValueError
        strings = {
            name: Strings(saved.arrays[f"labels.{name}.bytes"], saved.arrays[f"labels.{name}.ends"])
            for name in _LABELS
            if name == "ids" or f"labels.{name}.ends" in saved.arrays
        }
        if len({len(one) for one in strings.values()}) != 1:
            raise ValueError("there are more labels than names, or fewer")
        counts, n_texts = _counts(saved, len(strings["ids"]))
        calibration = None
        if f"calibration.{_CALIBRATION[0]}" in saved.arrays:
            calibration = Calibration(*(saved.arrays[f"calibration.{name}"] for name in _CALIBRATION))
        kind = saved.parameters.get("model_kind", MODEL_KIND)
        mine = [name for name in saved.arrays if name.startswith(("text.", "labels.", "calibration."))]
        extras = (counts is not None) + len(_CALIBRATION) * (calibration is not None)
        if len(mine) != len(_TERMS) * parts + 1 + 2 * len(strings) + extras:
            raise ValueError("there are arrays that no part knows")
        model = replace(
            saved,
            kind=kind,
            parameters=dict(saved.parameters["model"]),
            arrays={name: array for name, array in saved.arrays.items() if name not in mine},
        )
    except KeyError as error:
        raise ModelFormatError(f"the parts of the model do not fit together: there is no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    return vectorizer, LabelSet(**strings, counts=counts, n_texts=n_texts), calibration, model


def _counts(saved: Saved, labels: int) -> tuple[NDArray[np.int64] | None, int | None]:
    """How often labels were given, and to how many texts; folders of earlier versions do not say."""
    counts = saved.arrays.get(_COUNTS)
    if counts is None:
        return None, None
    texts = saved.shape[_TEXTS]
    if counts.dtype != np.int64 or counts.shape != (labels,) or type(texts) is not int:
        raise ValueError("there are counts of other labels")
    if counts.min(initial=0) < 0 or counts.max(initial=0) > texts:
        raise ValueError("a label has more texts than there are, or less than none")
    return counts, texts
