"""Logs of a machine-learning model: replay what the old model saw into a new one.

    python examples/model_replay.py [DIRECTORY]

A service logs each prediction with its features. The outcome comes later, with the same key. To
judge a new model, the log is replayed from a date on. The old model's answers, the new model's
answers and the outcomes are compared, and the new answers are kept in a topic of their own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cordwood

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
Features = dict[str, float]
Model = Callable[[Features], bool]


def model_v1(features: Features) -> bool:
    return features["amount"] > 900


def model_v2(features: Features) -> bool:
    return features["amount"] > 700 and features["hour"] < 6


def serve(store: cordwood.Store) -> None:
    """Three days of requests. Fraud is a large amount at night, which only v2 knows."""
    answers, outcomes = store["answers"], store["outcomes"]
    for number in range(72):
        moment = BEGIN + timedelta(hours=number)
        features: Features = {"amount": number * 37 % 1000, "hour": number % 24}
        answer = {"features": features, "is_fraud": model_v1(features), "model": "v1"}
        key = b"payment-%d" % number
        answers.append(json.dumps(answer).encode(), key=key, timestamp_ms=moment)
        truth = features["amount"] > 700 and features["hour"] < 6
        outcomes.append(b"fraud" if truth else b"fine", key=key, timestamp_ms=moment)


def replay(store: cordwood.Store, model: Model, name: str, since: datetime) -> cordwood.Topic:
    """Give the logged features to `model`. The records keep their keys and times."""
    config = {"durability": "os"}  # what is lost in a power cut can be made again
    replayed = store.create_topic(f"answers-{name}", config=config, exist_ok=True)
    log = store["answers"][0]
    first = log.offset_for_time(since)
    for record in log.read(log.high_watermark if first is None else first):
        features = json.loads(record.value or b"{}")["features"]
        answer = {"features": features, "is_fraud": model(features), "model": name}
        replayed.append(
            json.dumps(answer).encode(),
            key=record.key,
            timestamp_ms=record.timestamp_ms,
            headers={"source-offset": b"%d" % record.offset},
        )
    return replayed


def accuracy(store: cordwood.Store, topic: cordwood.Topic, since: datetime) -> float:
    truth = {record.key: record.value == b"fraud" for record in store["outcomes"]}
    since_ms = since.timestamp() * 1000
    hits = [
        bool(json.loads(record.value or b"{}")["is_fraud"]) == truth[record.key]
        for record in topic
        if record.timestamp_ms >= since_ms
    ]
    return sum(hits) / len(hits)


def main(directory: Path) -> None:
    with cordwood.open(directory, config={"retention.ms": -1}) as store:
        store.create_topic("answers")
        store.create_topic("outcomes")
        serve(store)
        since = BEGIN + timedelta(days=1)

        candidate = replay(store, model_v2, "v2", since)

        print(f"replayed {len(candidate[0])} requests since {since:%F}")
        print(f"v1: {accuracy(store, store['answers'], since):.0%} right")
        print(f"v2: {accuracy(store, candidate, since):.0%} right")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
