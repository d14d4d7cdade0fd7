"""The slow twin of recursive partitioning: the same k-means, written down plainly in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_MASK = (1 << 64) - 1
_ENTRIES_PER_FEATURE = 16  # with fewer, a group is written out anew without the features of a single label


class Random:
    """SplitMix64, with a stream of its own for each (seed, a, b)."""

    def __init__(self, seed: int, a: int, b: int) -> None:
        self.state = seed & _MASK
        self.state = self.next() ^ (a * 0xD1342543DE82EF95 & _MASK)
        self.state = self.next() ^ (b * 0xAF251AF3B0F025B5 & _MASK)

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        return (self.next() >> 32) * bound >> 32


class Group:
    """Some labels and the part of their representations that tells them apart."""

    def __init__(self, labels: np.ndarray, sparse: np.ndarray, dense: np.ndarray) -> None:
        self.labels, self.sparse, self.dense = labels, sparse, dense

    @classmethod
    def whole(cls, sparse: np.ndarray, dense: np.ndarray) -> Group:
        return cls(np.arange(len(sparse)), _shared(sparse), dense)

    def part(self, members: np.ndarray) -> Group:
        sparse = self.sparse[members]
        if np.count_nonzero(sparse) < _ENTRIES_PER_FEATURE * sparse.shape[1]:
            sparse = _shared(sparse)
        return Group(self.labels[members], sparse, self.dense[members])

    @property
    def rows(self) -> np.ndarray:
        return np.hstack([self.sparse, self.dense])


def _shared(sparse: np.ndarray) -> np.ndarray:
    return sparse[:, np.count_nonzero(sparse, axis=0) > 1]


def centres_of(rows: np.ndarray, side: np.ndarray, parts: int, spherical: bool) -> np.ndarray:
    sums = np.stack([rows[side == part].sum(axis=0) for part in range(parts)])
    length = np.linalg.norm(sums, axis=1) if spherical else np.bincount(side[side < parts], minlength=parts)
    return sums / np.where(length > 0, length, 1)[:, None]


def closeness(rows: np.ndarray, centres: np.ndarray, spherical: bool) -> np.ndarray:
    """Members x parts: the angle's cosine, or what orders parts as their distances do."""
    return rows @ centres.T - (0 if spherical else 0.5 * (centres**2).sum(axis=1))


def balanced_in_two(score: np.ndarray, first: int) -> np.ndarray:
    """The `first` members nearest to part 0 go there."""
    side = np.ones(len(score), int)
    side[np.argsort(score[:, 1] - score[:, 0], kind="stable")[:first]] = 0
    return side


def balanced_in_many(score: np.ndarray) -> np.ndarray:
    """Best part that has room, those with most to lose by a second choice first."""
    size, parts = score.shape
    best = np.sort(score, axis=1)[:, ::-1]
    large_left, filled = size % parts, [0] * parts
    side = np.empty(size, int)
    for m in np.argsort(-(best[:, 0] - best[:, 1]), kind="stable"):
        room = [p for p in range(parts) if filled[p] < size // parts + (large_left > 0)]
        side[m] = max(room, key=lambda part: (score[m, part], -part))
        large_left -= filled[side[m]] == size // parts
        filled[side[m]] += 1
    return side


def k_means(
    rows: np.ndarray, side: np.ndarray, parts: int, assign: Callable[[np.ndarray], np.ndarray], **options
) -> np.ndarray:
    """Rounds of centres and assignments from a first one, in which `parts` marks members without a part."""
    for iteration in range(options["max_iter"]):
        centres = centres_of(rows, side, parts, options["spherical"])
        new = assign(closeness(rows, centres, options["spherical"]))
        moved = len(rows) if iteration == 0 else np.count_nonzero(new != side)
        side = new
        if moved <= options["min_moved"] * len(rows):
            break
    return side


def in_two(group: Group, share: float, random: Random, **options) -> np.ndarray:
    size = len(group.labels)
    first = min(max(int(share * size + 0.5), 1), size - 1)
    one, other = random.below(size), random.below(size - 1)
    side = np.full(size, 2)
    side[one], side[other + (other >= one)] = 0, 1

    def assign(score: np.ndarray) -> np.ndarray:
        nearer = (score[:, 1] > score[:, 0]).astype(int)
        alone = nearer.min() == nearer.max()
        return balanced_in_two(score, first) if options["balanced"] or alone else nearer

    return k_means(group.rows, side, 2, assign, **options)


def in_many(group: Group, parts: int, random: Random, **options) -> np.ndarray:
    size = len(group.labels)
    seeds = list(range(size))
    for i in range(size, 1, -1):
        j = random.below(i)
        seeds[i - 1], seeds[j] = seeds[j], seeds[i - 1]
    side = np.full(size, parts)
    side[seeds[:parts]] = np.arange(parts)
    assign = balanced_in_many if options["balanced"] else lambda score: score.argmax(axis=1)
    side = k_means(group.rows, side, parts, assign, **options)
    if not options["balanced"] and side.min() == side.max():
        side = np.arange(size) * parts // size
    return side


def partition(
    sparse: np.ndarray, dense: np.ndarray, branching: list[int], *, bisect: bool, stop_size: int, seed: int, **options
) -> list[np.ndarray]:
    """The cluster of every label, level by level."""
    levels: list[np.ndarray] = []
    clusters = [Group.whole(sparse, dense)]
    for level, parts in enumerate(branching):
        sizes = [len(group.labels) for group in clusters]
        pieces = [
            (group, 1 if size <= stop_size else min(parts, size)) for group, size in zip(clusters, sizes, strict=True)
        ]
        if all(wanted == 1 for _, wanted in pieces):
            break
        cut_round = 0
        while any(wanted > 1 for _, wanted in pieces):
            done: list[tuple[Group, int]] = []
            for i, (group, wanted) in enumerate(pieces):
                if wanted == 1:
                    done.append((group, wanted))
                    continue
                random = Random(seed, level << 40 | cut_round << 32 | i, 1)
                if bisect:
                    shares = [wanted // 2, wanted - wanted // 2]
                    side = in_two(group, shares[0] / wanted, random, **options)
                else:
                    shares = [1] * wanted
                    side = in_many(group, wanted, random, **options)
                for part, share in enumerate(shares):
                    members = np.flatnonzero(side == part)
                    if members.size:
                        done.append((group.part(members), min(share, members.size)))
            pieces, cut_round = done, cut_round + 1
        clusters = [group for group, _ in pieces]
        of_label = np.empty(len(sparse), int)
        for c, group in enumerate(clusters):
            of_label[group.labels] = c
        levels.append(of_label)
    return levels
