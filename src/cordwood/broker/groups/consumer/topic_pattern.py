"""Whether a topic's name matches a regular expression, in time that a pattern cannot inflate.

Patterns come from clients and are tried on the thread that all groups share. Python's own `re`
tries one way after the other, and a pattern such as ``(a*)*b`` makes it try for years; RE2, whose
syntax this is, follows all ways at once. So do we: a pattern becomes steps, `_closure` is the set
of steps a match may be at, and each set met is kept with where each character leads from it.
"""

from dataclasses import dataclass, field
from typing import Final

from cordwood.broker.groups.consumer.topic_pattern_syntax import (
    WORD_CHARS,
    At,
    Choice,
    InvalidPatternError,
    Node,
    OneOf,
    Place,
    Repeat,
    Series,
    parse_pattern,
)

_STEPS_MAX: Final = 20_000  # an alternative of a thousand long names
# Steps looked at over all names, about 0.2 s of work. Sets of steps are found once each, so a
# pattern that people write stays far below however many topics there are.
_WORK_MAX: Final = 500_000
_SITUATIONS_MAX: Final = 10_000  # kept at a time, some 10 MB at worst; then they are found anew


@dataclass(slots=True)
class _Step:
    """One character of `chars`, or the place asked for, or nothing; then on to each of `after`.

    The step with nowhere to go is the end of the match.
    """

    chars: frozenset[str] | None = None
    place: Place | None = None
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class _Situation:
    """The steps a match may be at, between two characters of a name. `before` is the last one."""

    steps: frozenset[int]
    before: str
    next: dict[str, "_Situation"] = field(default_factory=dict)
    is_match: bool | None = None


class TopicPattern:
    """A regular expression for whole topic names. Used by one thread."""

    def __init__(self, text: str) -> None:
        """Raises `InvalidPatternError` for what is none, or takes too much to follow."""
        self.text = text
        self._steps: list[_Step] = [_Step()]
        self._situations: dict[tuple[frozenset[int], str], _Situation] = {}
        self._work_left = _WORK_MAX
        end = 0
        start = self._compile(parse_pattern(text), end)
        self._start = self._situation(frozenset({start}), "")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches.

        Raises `InvalidPatternError` when following the pattern has become too much work.
        """
        situation = self._start
        for char in name:
            following = situation.next.get(char)
            if following is None:
                following = self._advance(situation, char)
            if not following.steps:
                return False
            situation = following
        if situation.is_match is None:
            ends = self._closure(situation, "")
            situation.is_match = any(not self._steps[step].after for step in ends)
        return situation.is_match

    # --- following ---------------------------------------------------------------------------

    def _advance(self, situation: _Situation, char: str) -> _Situation:
        reached: set[int] = set()
        for number in self._closure(situation, char):
            step = self._steps[number]
            if step.chars is not None and char in step.chars:
                reached.update(step.after)
        following = self._situation(frozenset(reached), char)
        situation.next[char] = following
        return following

    def _situation(self, steps: frozenset[int], before: str) -> _Situation:
        # Of the character before, only this much is ever asked.
        kind = "" if not before else "w" if before in WORD_CHARS else "."
        if len(self._situations) >= _SITUATIONS_MAX:
            self._situations.clear()
            self._start.next.clear()
        return self._situations.setdefault((steps, kind), _Situation(steps, kind))

    def _closure(self, situation: _Situation, char: str) -> set[int]:
        """All steps that can be reached before `char`, which is empty at the end of the name."""
        seen = set(situation.steps)
        waiting = list(seen)
        while waiting:
            self._work_left -= 1
            if self._work_left < 0:
                raise InvalidPatternError("takes too many steps to follow; make it simpler")
            step = self._steps[waiting.pop()]
            if step.chars is not None or not _is_at(step.place, situation.before, char):
                continue
            for number in step.after:
                if number not in seen:
                    seen.add(number)
                    waiting.append(number)
        return seen

    # --- compiling ---------------------------------------------------------------------------

    def _compile(self, node: Node, after: int) -> int:
        """Add the steps of `node`, leading to `after`; return where they start."""
        match node:
            case OneOf(chars):
                return self._add(_Step(chars=chars, after=(after,)))
            case At(place):
                return self._add(_Step(place=place, after=(after,)))
            case Series(parts):
                for part in reversed(parts):
                    after = self._compile(part, after)
                return after
            case Choice(options):
                return self._add(_Step(after=tuple(self._compile(o, after) for o in options)))
            case Repeat(part, minimum, maximum):
                return self._compile_repeat(part, minimum, maximum, after)

    def _compile_repeat(self, node: Node, minimum: int, maximum: int | None, after: int) -> int:
        if maximum is None:
            loop = _Step()
            start = self._add(loop)
            loop.after = (self._compile(node, start), after)
        else:
            start = after
            for _ in range(maximum - minimum):
                start = self._add(_Step(after=(self._compile(node, start), after)))
        for _ in range(minimum):
            unrepeated = start
            start = self._compile(node, start)
            if start == unrepeated:
                break  # the empty match, of which more is no more
        return start

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= _STEPS_MAX:
            raise InvalidPatternError(f"has more than {_STEPS_MAX} steps; make it simpler")
        self._steps.append(step)
        return len(self._steps) - 1


def _is_at(place: Place | None, before: str, char: str) -> bool:
    match place:
        case None:
            return True
        case Place.START:
            return before == ""
        case Place.END:
            return char == ""
    is_boundary = (before == "w") != (char in WORD_CHARS)
    return is_boundary == (place is Place.WORD_BOUNDARY)
