"""What of a reranked model goes into a saved folder, and back. docs/format.md specifies it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.core.parameters import from_json, to_json
from carya.core.storage import Saved
from carya.errors import CaryaError, InputError, ModelFormatError
from carya.models.reranked.features import Evidence
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.serialize import KIND as MODEL_KIND
from carya.ranking.ranker import Ranker, ranker_of

KIND = "reranked"

_MATRICES = ("labels", "company")
_MODELS = ("near", "centres", "texts", "words")


def pack(evidence: Evidence, ranker: Ranker, own: dict[str, Any], precision: str | None) -> Saved:
    """The content of the folder."""
    models = {f"member{number}": one.to_saved(precision=precision) for number, one in enumerate(evidence.members)}
    models |= {name: one.to_saved() for name in _MODELS if (one := getattr(evidence, name)) is not None}
    arrays = {f"{name}/{key}": array for name, one in models.items() for key, array in one.arrays.items()}
    for name in _MATRICES:
        matrix: Csr = getattr(evidence, name)
        arrays |= {f"{name}/indptr": matrix.indptr, f"{name}/indices": matrix.indices, f"{name}/values": matrix.values}
    settings, kept = ranker.to_saved()
    arrays |= {f"ranker/{key}": array for key, array in kept.items()}
    parameters = {name: to_json(value) for name, value in own.items()}
    return Saved(
        KIND,
        parameters
        | {"models": {name: one.parameters for name, one in models.items()}}
        | {"ranker": {"name": ranker.name, "parameters": settings}},
        {"members": len(evidence.members), "models": {name: one.shape for name, one in models.items()}},
        arrays,
    )


def unpack(saved: Saved) -> tuple[Evidence, Ranker, dict[str, Any]]:
    """What was learned, and the parameters; raises ModelFormatError if the parts do not fit together."""
    try:
        own = {name: from_json(value) for name, value in saved.parameters.items() if name not in ("models", "ranker")}
        models = {
            name: XRLinear.from_saved(saved.part(name, MODEL_KIND, saved.parameters["models"][name], shape))
            for name, shape in saved.shape["models"].items()
        }
        members = [models[f"member{number}"] for number in range(int(saved.shape["members"]))]
        known = {name: models[name] for name in _MODELS if name in models}
        if len(members) + len(known) != len(models) or not members:
            raise InputError("there are models that no part knows, or none")
        n_labels = members[0].tree_.n_labels
        labels, company = (_matrix(saved.arrays_of(name), n_labels, name) for name in _MATRICES)
        evidence = Evidence(members=members, labels=labels, company=company, **known)
        _check(evidence)
        about = saved.parameters["ranker"]
        ranker = ranker_of(about["name"]).from_saved(dict(about["parameters"]), saved.arrays_of("ranker"))
    except KeyError as error:
        raise ModelFormatError(f"the parts of the model do not fit together: there is no {error}") from None
    except ModelFormatError:
        raise
    except (CaryaError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    return evidence, ranker, own


def _matrix(arrays: dict[str, NDArray[Any]], cols: int, name: str) -> Csr:
    indptr, indices, values = (arrays[key] for key in ("indptr", "indices", "values"))
    if [str(one.dtype) for one in (indptr, indices, values)] != ["int64", "int32", "float32"]:
        raise InputError(f"the arrays of {name} are not those of a matrix")
    return Csr.of(indptr, indices, values, cols, name)


def _check(evidence: Evidence) -> None:
    """That all parts speak of the same rows, labels and features."""
    n_labels, widths = evidence.n_labels, evidence.widths
    of_labels = [*evidence.members, evidence.centres, evidence.texts, evidence.words]
    if any(one.tree_.n_labels != n_labels for one in of_labels if one is not None):
        raise InputError("parts differ in the number of labels")
    seen = evidence.near.widths_  # the first columns of all
    if any(one.widths_ != seen for one in (*evidence.members, evidence.centres)):
        raise InputError("parts differ in the number of features")
    if seen[0] > widths[0] or seen[1] != widths[1] or (evidence.words is not None and evidence.words.widths_ != widths):
        raise InputError("the texts of labels do not have the features of the other parts")
    if evidence.near.tree_.n_labels != evidence.labels.rows or evidence.company.rows != n_labels:
        raise InputError("parts differ in the number of rows")
    if (evidence.texts is None) != (evidence.words is None):
        raise InputError("of the texts of labels there must be both parts or none")
