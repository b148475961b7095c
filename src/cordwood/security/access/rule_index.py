"""Access rules, arranged so that the rules for a name are found without looking at the others.

For each kind of client that rules speak of, a principal and a host, and each type of resource:

    literals  name -> what rules for exactly that name say; ``*`` is every name
    prefixes  sorted; the rules for a prefix include those for all shorter prefixes of it

What rules say is two sets of bits: the operations that are allowed and those that are denied. So a
lookup decides about all operations at once.

Longest prefix of a name: let c be the last prefix that is not behind the name in sorted order, and
p the longest prefix that the name begins with. Then p <= c <= name, and every text between p and a
name that begins with p begins with p itself. So p is c, or one of the prefixes that c begins with,
whose lengths are kept with c.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Final, NamedTuple

from cordwood.protocol.acl_codes import AclOperation, AclPattern, AclPermission, AclResource
from cordwood.security.security_state import AclRule

ANY_NAME: Final = "*"  # of a literal rule: all resources of the type
ANY_HOST: Final = "*"
EVERY_OPERATION: Final = (1 << (max(AclOperation) + 1)) - 1

_IMPLIED: Final[Mapping[AclOperation, AclOperation]] = MappingProxyType(
    {
        AclOperation.READ: AclOperation.DESCRIBE,
        AclOperation.WRITE: AclOperation.DESCRIBE,
        AclOperation.DELETE: AclOperation.DESCRIBE,
        AclOperation.ALTER: AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
    }
)


class Verdict(NamedTuple):
    """Operations that rules allow, and operations that they deny, as bits."""

    allowed: int = 0
    denied: int = 0

    def __or__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.allowed | other.allowed, self.denied | other.denied)


SILENCE: Final = Verdict()


def verdict_of(rule: AclRule) -> Verdict:
    """What one rule says. To allow implies something; to deny does not."""
    bits = EVERY_OPERATION if rule.operation is AclOperation.ALL else 1 << rule.operation
    if rule.permission is AclPermission.DENY:
        return Verdict(denied=bits)
    implied = _IMPLIED.get(rule.operation)
    return Verdict(allowed=bits if implied is None else bits | 1 << implied)


def canonical_host(host: str) -> str:
    """One text for each address: rules and connections may write an IPv6 address differently."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(address if mapped is None else mapped)


class PrefixTable:
    """Finds the longest of some prefixes that a name begins with, in a few steps at worst."""

    __slots__ = ("_lengths", "_prefixes")

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = sorted(set(prefixes))
        # The lengths, as bits, of the other prefixes that a prefix begins with.
        self._lengths: dict[str, int] = {}
        begun: list[str] = []  # the prefixes that the present one begins with
        for prefix in self._prefixes:
            while begun and not prefix.startswith(begun[-1]):
                begun.pop()
            shorter = begun[-1] if begun else None
            self._lengths[prefix] = (
                0 if shorter is None else self._lengths[shorter] | 1 << len(shorter)
            )
            begun.append(prefix)

    def __iter__(self) -> Iterator[str]:
        """Each prefix comes after the prefixes that it begins with."""
        return iter(self._prefixes)

    def parent(self, prefix: str) -> str | None:
        """The longest of the other prefixes that `prefix` begins with."""
        lengths = self._lengths[prefix]
        return prefix[: lengths.bit_length() - 1] if lengths else None

    def longest(self, name: str) -> str | None:
        at = bisect_right(self._prefixes, name)
        if not at:
            return None
        found = self._prefixes[at - 1]
        if name.startswith(found):
            return found
        lengths = self._lengths[found] & ((2 << _common(found, name)) - 1)
        return found[: lengths.bit_length() - 1] if lengths else None


def _common(text: str, other: str) -> int:
    """The number of characters that both begin with."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(text[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


class NamedRules:
    """What rules say about the names of one type of resource."""

    __slots__ = ("_literals", "_prefixes", "_table")

    def __init__(self, rules: Iterable[AclRule]) -> None:
        literals: defaultdict[str, Verdict] = defaultdict(Verdict)
        prefixes: defaultdict[str, Verdict] = defaultdict(Verdict)
        for rule in rules:
            found = prefixes if rule.pattern is AclPattern.PREFIXED else literals
            found[rule.name] |= verdict_of(rule)
        self._literals = dict(literals)
        self._table = PrefixTable(prefixes)
        self._prefixes: dict[str, Verdict] = {}
        for prefix in self._table:
            parent = self._table.parent(prefix)
            inherited = SILENCE if parent is None else self._prefixes[parent]
            self._prefixes[prefix] = prefixes[prefix] | inherited

    def about(self, name: str) -> Verdict | None:
        """What the rules say about a name; None if there is no rule for it."""
        prefix = self._table.longest(name)
        found = [self._literals.get(name), self._literals.get(ANY_NAME)]
        found.append(None if prefix is None else self._prefixes[prefix])
        verdicts = [verdict for verdict in found if verdict is not None]
        if not verdicts:
            return None
        verdict = verdicts[0]
        for other in verdicts[1:]:
            verdict |= other
        return verdict

    def prefixes_of(self, name: str) -> Iterator[str]:
        """The prefixes in rules that a name begins with, longest first."""
        prefix = self._table.longest(name)
        while prefix is not None:
            yield prefix
            prefix = self._table.parent(prefix)


class _Speakers(NamedTuple):
    """Whom a rule is about, and the type of resource."""

    principal: str
    host: str
    resource: AclResource


class RuleIndex:
    """All rules, by whom they are about and by name. Immutable; any thread may read it."""

    def __init__(self, rules: frozenset[AclRule]) -> None:
        grouped: defaultdict[_Speakers, list[AclRule]] = defaultdict(list)
        by_resource: defaultdict[AclResource, list[AclRule]] = defaultdict(list)
        by_name: defaultdict[tuple[_Speakers, AclPattern, str], list[AclRule]] = defaultdict(list)
        for rule in rules:
            speakers = _Speakers(rule.principal, canonical_host(rule.host), rule.resource)
            grouped[speakers].append(rule)
            by_resource[rule.resource].append(rule)
            by_name[speakers, rule.pattern, rule.name].append(rule)
        self._rules = dict(grouped)
        self._named = {speakers: NamedRules(found) for speakers, found in grouped.items()}
        self._of_anybody = {res: NamedRules(found) for res, found in by_resource.items()}
        self._by_name = dict(by_name)

    def verdict(
        self, principals: Iterable[str], host: str, resource: AclResource, name: str
    ) -> Verdict:
        """What all rules for these principals at that host say about a resource."""
        verdict = SILENCE
        for principal in principals:
            for place in (host, ANY_HOST):
                named = self._named.get(_Speakers(principal, place, resource))
                found = None if named is None else named.about(name)
                if found is not None:
                    verdict |= found
        return verdict

    def has_rules(self, resource: AclResource, name: str) -> bool:
        """Whether there is a rule for the resource, whomever it is about."""
        named = self._of_anybody.get(resource)
        return named is not None and named.about(name) is not None

    def rules_of(
        self, principals: Iterable[str], host: str, resource: AclResource
    ) -> Iterable[AclRule]:
        """All rules for these principals at that host, for any name."""
        for principal in principals:
            for place in (host, ANY_HOST):
                yield from self._rules.get(_Speakers(principal, place, resource), ())

    def rules_for(
        self, principals: Iterable[str], host: str, resource: AclResource, name: str
    ) -> Iterable[AclRule]:
        """All rules for these principals at that host that count for a resource."""
        for principal in principals:
            for place in (host, ANY_HOST):
                speakers = _Speakers(principal, place, resource)
                named = self._named.get(speakers)
                if named is None:
                    continue
                for literal in dict.fromkeys((name, ANY_NAME)):
                    yield from self._by_name.get((speakers, AclPattern.LITERAL, literal), ())
                for prefix in named.prefixes_of(name):
                    yield from self._by_name[speakers, AclPattern.PREFIXED, prefix]
