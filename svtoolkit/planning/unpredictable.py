"""The error for a step whose memory cannot be predicted."""

from __future__ import annotations

from svtoolkit.errors import UserError


class UnpredictableError(UserError):
    """Fake tensors have no values, and what they go through has to be torch's.

    Attributes:
        what: has no prediction, as the words that chose it.
        why: and what to do.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"the memory of {what} cannot be predicted: {why}")
        self.what, self.why = what, why

    def __reduce__(self) -> tuple[type[UnpredictableError], tuple[str, str]]:
        return type(self), (self.what, self.why)
