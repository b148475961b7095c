"""Quix Streams: a stateful stream that counts the records of each key."""

import sys

from quixstreams import Application

app = Application(
    broker_address=sys.argv[1],
    consumer_group="quix",
    auto_offset_reset="earliest",
    state_dir=sys.argv[3],
)
orders = app.topic("orders", value_serializer="json", value_deserializer="json")
counts = app.topic("counts", value_serializer="json", value_deserializer="json")

with app.get_producer() as producer:
    for n in range(int(sys.argv[2])):
        message = orders.serialize(key=f"user:{n % 2}", value={"amount": n})
        producer.produce(topic=orders.name, key=message.key, value=message.value)


def count(value: dict, state: object) -> dict:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {"total": total}


stream = app.dataframe(orders).apply(count, stateful=True).to_topic(counts)
found = []
stream = stream.update(lambda value: found.append(value["total"]))
app.run(count=int(sys.argv[2]), timeout=60)
print(sorted(found))
