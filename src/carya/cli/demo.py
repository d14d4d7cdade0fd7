"""`carya demo`: train, evaluate and ask, on a generated world."""

from __future__ import annotations

import time
from typing import Annotated

import typer


def demo(
    rows: Annotated[int, typer.Option(help="Training rows.", min=100)] = 20_000,
    labels: Annotated[int, typer.Option(help="Labels.", min=20)] = 5_000,
    seed: Annotated[int, typer.Option(help="Another seed, another world.", min=0)] = 0,
) -> None:
    """Train and evaluate XR-Linear on a generated world, and show some rankings.

    Examples:

      carya demo

      carya demo --rows 100000 --labels 50000
    """
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    import carya
    from carya.data import generate

    console = Console()
    console.print(f"Generating a world of {rows:,} + {rows // 10:,} rows and {labels:,} labels (seed {seed}) …")
    test_rows = rows // 10
    world = generate(rows + test_rows, labels, seed=seed)
    X, Xt = world.X[:rows], world.X[rows:]
    Y, Yt = world.Y[:rows], world.Y[rows:]

    model = carya.XRLinear(seed=seed, verbose=True)
    started = time.perf_counter()
    model.fit(X, Y)
    trained = time.perf_counter() - started
    model.verbose = False
    size = sum(layer.weights.n_bytes for layer in model.layers_)
    console.print(f"Trained {model.tree_}, {size / 1e6:.1f} MB, in {trained:.2f} s.")

    started = time.perf_counter()
    S = model.predict(Xt, top_k=10)
    each = (time.perf_counter() - started) / test_rows
    started = time.perf_counter()
    for i in range(200):
        model.rank(Xt[[i % test_rows]], top_k=10)
    one = (time.perf_counter() - started) / 200
    console.print(
        f"Ranked {test_rows:,} rows at {each * 1e6:.0f} µs a row in batch, {one * 1e6:.0f} µs one at a time.\n"
    )

    scores = carya.metrics.report(Yt, S, k=(1, 3, 5), propensity=carya.metrics.propensities(Y))
    table = Table("metric", "@1", "@3", "@5", title=f"On {test_rows:,} rows it has not seen")
    for name in ("P", "R", "nDCG", "PSP"):
        table.add_row(name, *(f"{100 * scores[f'{name}@{k}']:.1f}" for k in (1, 3, 5)))
    console.print(table)

    for row in range(3):
        words = Xt[[row]]
        strongest = words.indices[np.argsort(-words.data, kind="stable")[:6]]
        true = set(Yt[[row]].indices.tolist())
        console.print(f"\nquery: [italic]{' '.join(world.word(w) for w in strongest)} …[/italic]")
        for label, score in zip(*model.rank(words, top_k=5), strict=True):
            mark = "[green]✓[/green]" if int(label) in true else "·"
            console.print(f"  {mark} {score:.3f}  {world.label_name(int(label))}")
    console.print("\n✓ marks the labels the row really has. Next: docs/quickstart.md, or carya --help.")
