"""Matches topic names against a regular expression, in linear time for every pattern. Pure.

Clients send patterns, and they are matched on the thread that all groups share. Python's `re`
backtracks: a pattern such as ``(a*)*b`` keeps it busy for years. RE2, whose syntax this is,
follows all alternatives at once, and so do we. A pattern is compiled to steps. `_closure` computes
the set of steps that a match may be at. Each set is cached with its successor for each character.
"""

from typing import Final

from cordwood.broker.patterns.topic_pattern_syntax import (
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
from cordwood.value_class import dataclass, field

_STEPS_MAX: Final = 20_000  # enough for an alternative of a thousand long names
# Steps visited over all names, about 0.2 s of work. Each set of steps is computed once, so usual
# patterns stay far below the limit, however many topics there are.
_WORK_MAX: Final = 500_000
_SITUATIONS_MAX: Final = 10_000  # cached, at most about 10 MB; then the cache is cleared


@dataclass(slots=True)
class _Step:
    """Consumes one character of `chars`, or requires a place, or neither; then goes to `after`.

    A step without successors is the end of the match.
    """

    chars: frozenset[str] | None = None
    place: Place | None = None
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class _Situation:
    """The steps that a match may be at after a character. `before` is the kind of character."""

    steps: frozenset[int]
    before: str
    next: dict[str, "_Situation"] = field(default_factory=dict)
    is_match: bool | None = None


class TopicPattern:
    """A regular expression for whole topic names. Used by one thread."""

    def __init__(self, text: str) -> None:
        """Raises `InvalidPatternError` if the pattern is invalid or has too many steps."""
        self.text = text
        self._steps: list[_Step] = [_Step()]
        self._situations: dict[tuple[frozenset[int], str], _Situation] = {}
        self._work_left = _WORK_MAX
        end = 0
        start = self._compile(parse_pattern(text), end)
        self._start = self._situation(frozenset({start}), "")

    def matches(self, name: str) -> bool:
        """Whether the whole name matches.

        Raises `InvalidPatternError` if the pattern has taken too many steps so far.
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

    # --- matching ----------------------------------------------------------------------------

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
        # Only the kind of the previous character matters: none, word character, or other.
        kind = "" if not before else "w" if before in WORD_CHARS else "."
        if len(self._situations) >= _SITUATIONS_MAX:
            self._situations.clear()
            self._start.next.clear()
        return self._situations.setdefault((steps, kind), _Situation(steps, kind))

    def _closure(self, situation: _Situation, char: str) -> set[int]:
        """All steps reachable before `char` is consumed. `char` is empty at the end of the name."""
        seen = set(situation.steps)
        waiting = list(seen)
        while waiting:
            self._work_left -= 1
            if self._work_left < 0:
                raise InvalidPatternError("takes too many steps to match; simplify it")
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
        """Add the steps of `node`, which lead to `after`; return the first step."""
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
                break  # the empty match: repeating it changes nothing
        return start

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= _STEPS_MAX:
            raise InvalidPatternError(f"has more than {_STEPS_MAX} steps; simplify it")
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
