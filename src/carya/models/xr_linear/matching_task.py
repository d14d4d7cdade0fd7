"""Task that retrieves the clusters in the beam for each training row of a block; used for matcher negatives."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from carya.core import storage
from carya.models.xr_linear.serialize import pack, unpack
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, csr_arrays
from carya.ranking.tasks.solve_part import load_arrays, load_data
from carya.trees.beam_search import BeamSearcher, Rankings
from carya.trees.trained_tree import TrainedTree

ROWS_PER_TASK = 20_000


@dataclass(frozen=True)
class MatchRows:
    """Task that retrieves the highest-scoring clusters for each row of a block.

    Attributes
    ----------
    folder : str
        The checkpoint folder, which all processes can access.
    data_key, matcher_key : str
        The hashes of the training data and of the matcher.
    first : int
        The first row of the block.
    beam_width : int
    """

    folder: str
    data_key: str
    matcher_key: str
    first: int
    beam_width: int

    @property
    def work(self) -> float:
        """The estimated amount of work, which is the same for all blocks."""
        return 1.0

    @property
    def _key(self) -> str:
        return f"{self.matcher_key}-{self.first}"

    def is_done(self) -> bool:
        """Return whether the result is stored."""
        return CheckpointFolder(self.folder).contains("shortlist", self._key)

    def run(self, threads: int) -> None:
        """Retrieve the clusters and store them, unless another run of this task has already done so."""
        if self.is_done():
            return
        features = load_data(self.folder, self.data_key).features
        rows = features.take(slice(self.first, self.first + ROWS_PER_TASK))
        matched = _load_matcher(self.folder, self.matcher_key).shortlist(
            rows, beam_width=self.beam_width, threads=threads
        )
        CheckpointFolder(self.folder).store("shortlist", self._key, csr_arrays(matched))

    def result(self) -> Rankings:
        """Return the stored result as the arrays of a CSR matrix."""
        arrays = load_arrays(self.folder, "shortlist", self._key)
        return arrays["indptr"], arrays["indices"], arrays["values"]


def store_matcher(checkpoints: CheckpointFolder, key: str, trained: TrainedTree) -> None:
    """Store the layers of a matcher, unless they are stored already."""
    path = checkpoints.path / f"matcher-{key}"
    if not path.exists():
        storage.save(path, pack(trained, {}))


@functools.lru_cache(maxsize=1)
def _load_matcher(folder: str, key: str) -> BeamSearcher:
    return BeamSearcher(unpack(storage.load(CheckpointFolder(folder).path / f"matcher-{key}")).layers)
