"""Simulated payments from card terminals and web shops; the same seed gives the same events.

A payment is authorised, most are captured, and a few of those are refunded; each step is an event.
The key of an event is its account, which keeps the events of an account in order. One event in
thirty arrives late, by up to twenty minutes, and all timestamps jitter by a second or two, so
timestamps are not in order. Captures and refunds change an account's balance. The changelog of
accounts has the newest balance, and a tombstone for a closed account.
"""

from __future__ import annotations

import json
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

AUTHORISED: Final = "authorised"
CAPTURED: Final = "captured"
REFUNDED: Final = "refunded"

_LATE_SHARE: Final = 1 / 30
_LATE_MS_MAX: Final = 20 * 60_000
_JITTER_MS: Final = 2_000
_CAPTURED_SHARE: Final = 0.9
_REFUNDED_SHARE: Final = 0.08
_CLOSED_SHARE: Final = 1 / 1_000
_UNDER_WAY: Final = 200  # payments that have begun and are not finished
_SOURCES: Final = (b"terminal", b"web", b"app")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merchant:
    """A merchant. `price` is a typical amount, in hundredths of the currency."""

    name: str
    currency: str
    price: int
    weight: int


MERCHANTS: Final = (
    Merchant(name="Harbour Coffee", currency="EUR", price=420, weight=24),
    Merchant(name="Tram 28", currency="EUR", price=310, weight=20),
    Merchant(name="Corner Bakery", currency="GBP", price=560, weight=16),
    Merchant(name="Nordlys Groceries", currency="NOK", price=38_900, weight=14),
    Merchant(name="Alpine Rail", currency="CHF", price=5_400, weight=10),
    Merchant(name="Paper & Ink", currency="EUR", price=1_890, weight=8),
    Merchant(name="Bluebird Hotels", currency="USD", price=18_900, weight=5),
    Merchant(name="Atlas Bicycles", currency="EUR", price=74_900, weight=3),
)


@dataclass(slots=True)
class MerchantTotal:
    """The amount that a merchant earned, in hundredths of its currency, and its events."""

    currency: str
    events: int = 0
    amount: int = 0


@dataclass(slots=True)
class Tally:
    """The producer's own count of what it produced."""

    totals: dict[str, MerchantTotal] = field(
        default_factory=lambda: {m.name: MerchantTotal(m.currency) for m in MERCHANTS}
    )
    events: int = 0
    late: int = 0
    changes: int = 0
    accounts: dict[bytes, bytes | None] = field(default_factory=dict)

    def add(self, kind: str, merchant: str, amount: int) -> None:
        total = self.totals[merchant]
        total.events += 1
        self.events += 1
        if kind != AUTHORISED:
            total.amount += amount if kind == CAPTURED else -amount

    def table(self) -> dict[str, tuple[str, int, int]]:
        """By merchant: currency, events, amount. Spark's totals are compared with it."""
        return {name: (t.currency, t.events, t.amount) for name, t in self.totals.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentEvent:
    """One event, ready to send. `number` counts from 0; the value has it as `event`."""

    number: int
    key: bytes
    value: bytes
    timestamp_ms: int
    source: bytes
    change: bytes | None = None  # the new value of the account, for its changelog
    closes: bool = False  # closes the account: its changelog gets a tombstone


@dataclass(frozen=True, slots=True)
class _Payment:
    number: int
    account: int
    merchant: Merchant
    amount: int
    next_kind: str


class PaymentStream:
    """Generates events and counts them in `tally`. Use it from one thread."""

    def __init__(self, *, seed: int, account_count: int) -> None:
        self.tally = Tally()
        self._random = random.Random(seed)
        self._accounts = list(range(account_count))  # slots; a new account replaces a closed one
        self._next_account = account_count
        self._balances: dict[int, int] = {}
        self._closed: set[int] = set()
        self._under_way: deque[_Payment] = deque()
        self._payments = 0
        self._weights = [merchant.weight for merchant in MERCHANTS]

    def next_event(self, at_ms: int) -> PaymentEvent:
        """An event that happened about `at_ms`."""
        payment, kind = self._step()
        number = self.tally.events
        self.tally.add(kind, payment.merchant.name, payment.amount)
        timestamp_ms = self._timestamp(at_ms)
        body = {
            "event": number,
            "payment": f"p-{payment.number:07d}",
            "kind": kind,
            "account": f"a-{payment.account:06d}",
            "merchant": payment.merchant.name,
            "amount": payment.amount,
            "currency": payment.merchant.currency,
        }
        key = f"a-{payment.account:06d}".encode()
        change, closes = self._change(payment, kind, key)
        return PaymentEvent(
            number=number,
            key=key,
            value=json.dumps(body).encode(),
            timestamp_ms=timestamp_ms,
            source=_SOURCES[number % len(_SOURCES)],
            change=change,
            closes=closes,
        )

    def _step(self) -> tuple[_Payment, str]:
        """The next step of an open payment, or the first step of a new one."""
        chance = self._random.random
        if len(self._under_way) < _UNDER_WAY or chance() < 0.5:
            payment = self._new_payment()
            if chance() < _CAPTURED_SHARE:
                self._under_way.append(payment)
            return payment, AUTHORISED
        payment = self._under_way.popleft()
        if payment.next_kind == CAPTURED and chance() < _REFUNDED_SHARE:
            refund = _Payment(
                payment.number, payment.account, payment.merchant, payment.amount, REFUNDED
            )
            self._under_way.append(refund)
        return payment, payment.next_kind

    def _new_payment(self) -> _Payment:
        merchant = self._random.choices(MERCHANTS, self._weights)[0]
        amount = max(100, int(self._random.lognormvariate(0, 0.4) * merchant.price))
        account = self._random.choice(self._accounts)
        self._payments += 1
        return _Payment(self._payments, account, merchant, amount, CAPTURED)

    def _timestamp(self, at_ms: int) -> int:
        late_ms = 0
        if self._random.random() < _LATE_SHARE:
            self.tally.late += 1
            late_ms = self._random.randrange(60_000, _LATE_MS_MAX)
        return at_ms - late_ms - self._random.randrange(_JITTER_MS)

    def _change(self, payment: _Payment, kind: str, key: bytes) -> tuple[bytes | None, bool]:
        """The new value of the event's account, and whether the event closes it."""
        if kind == AUTHORISED or payment.account in self._closed:
            return None, False
        signed = payment.amount if kind == CAPTURED else -payment.amount
        spent = self._balances.get(payment.account, 0) + signed
        self._balances[payment.account] = spent
        change = json.dumps({"account": key.decode(), "spent": spent}).encode()
        self.tally.changes += 1
        self.tally.accounts[key] = change
        closes = self._random.random() < _CLOSED_SHARE
        if closes:
            self._closed.add(payment.account)
            self._accounts[self._accounts.index(payment.account)] = self._next_account
            self._next_account += 1
            self.tally.changes += 1
            self.tally.accounts[key] = None
        return change, closes
