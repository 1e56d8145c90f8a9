"""An error of `worldline.errors` as it crosses a process boundary and lies in the journal."""

from __future__ import annotations

from typing import Self

import msgspec

from worldline.errors import Fact, WorldlineError, from_record


class ErrorRecord(msgspec.Struct, frozen=True):
    """Code, sentence and facts of one error."""

    code: str
    sentence: str
    facts: dict[str, Fact]

    @classmethod
    def of(cls, error: WorldlineError) -> Self:
        return cls(error.code, error.sentence, dict(error.facts))

    def to_error(self, **more: Fact) -> WorldlineError:
        """The error again, with further facts."""
        return from_record(self.code, self.sentence, {**self.facts, **more})
