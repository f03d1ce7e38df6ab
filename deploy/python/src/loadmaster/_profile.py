"""Profiles: the measurements of a model."""

from __future__ import annotations

from dataclasses import dataclass

from ._wire.v1 import profile_pb2
from ._words import short, word_of


@dataclass(frozen=True, repr=False)
class Profile:
    """All measurements of one model under one training spec on one kind of device."""

    #: The planner's whole message.
    message: profile_pb2.Profile

    def __repr__(self) -> str:
        return short(self, self.name, self.state, self.model)

    @property
    def name(self) -> str:
        """`profiles/ID`."""
        return self.message.name

    @property
    def model(self) -> str:
        """`models/ID`."""
        return self.message.model

    @property
    def state(self) -> str:
        """`running`, `complete`, `incomplete` or `cancelled`."""
        return word_of(profile_pb2.Profile.State.DESCRIPTOR, self.message.state)

    @property
    def complete(self) -> bool:
        """Whether plans can be made from it."""
        return self.message.state == profile_pb2.Profile.COMPLETE

    @property
    def missing(self) -> list[str]:
        """Missing measurements, human-readable."""
        return list(self.message.missing)

    @property
    def operation(self) -> str:
        """The newest operation that measures it: `operations/ID`."""
        return self.message.operation
