"""What is counted of a scenario, and the table of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass
class Row:
    """The counts of a scenario.

    Attributes:
      name: of it.
      tries: how often something was hurt.
      lost: how often something that was promised was gone.
      hung: how often a command did not end.
      unsaid: how often the message lacked cause or mend, or was a traceback.
      said: the message, as an example.
      note: what else was counted.
      problems: what each of the failures was.
    """

    name: str
    tries: int = 0
    lost: int = 0
    hung: int = 0
    unsaid: int = 0
    said: str = ""
    note: str = ""
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)

    def bad(self, problem: str) -> None:
        self.problems.append(problem)

    def check_kept(self, kept: bool, problem: str) -> None:
        """Counts a loss where something is gone."""
        if not kept:
            self.lost += 1
            self.bad(f"lost: {problem}")

    def check_said(self, text: str, *parts: str) -> None:
        """Counts a message that lacks one of the parts that tell cause and mend."""
        self.said = self.said or text
        if "Traceback" in text or not all(part in text for part in parts):
            self.unsaid += 1
            self.bad(f"said: {text[-1500:]!r}, without {[part for part in parts if part not in text]}")

    def line(self) -> str:
        said = self.said.replace("|", "\\|").replace("\n", " ")
        said = said if len(said) <= 220 else said[:217] + "..."
        counts = f"{self.tries} | {self.lost} | {self.hung} | {self.unsaid}"
        return f"| {self.name} | {counts} | {said} | {self.note} | {self.seconds:.0f} |"


def table(rows: Sequence[Row]) -> str:
    """Returns the table of all scenarios in Markdown."""
    head = "| scenario | tries | losses | hangs | messages without cause or mend | said | counted | seconds |"
    return "\n".join([head, "|---" * 8 + "|", *(row.line() for row in rows)])
