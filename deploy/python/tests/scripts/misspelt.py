"""Gives observers an option that there is not, and prints how each refuses it."""

from __future__ import annotations

import loadmaster.torch
import loadmaster.torch.deepspeed


def main() -> None:
    # A reader of types is told as well.
    try:
        loadmaster.torch.observe("plans/7f3c", warmup=20)  # type: ignore[call-arg]
    except TypeError as error:
        print(error)
    try:
        loadmaster.torch.deepspeed.observe(object(), "plans/7f3c", warmup=20)  # type: ignore[call-arg]
    except TypeError as error:
        print(error)


if __name__ == "__main__":
    main()
