"""Plan training on a folder of matrices: python run_plan.py FOLDER --threads 2 [--set name=JSON ...]"""

from __future__ import annotations

import argparse

import carya

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a parameter of XRLinear")
    arguments = parser.parse_args()
    model = carya.XRLinear(n_jobs=arguments.threads, **measure.settings(arguments.set))
    measure.emit(carya.plan(carya.data.open_data(arguments.folder), model).to_dict())


if __name__ == "__main__":
    main()
