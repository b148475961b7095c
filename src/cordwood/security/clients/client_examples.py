"""How to connect to a broker that `cordwood serve --secure` set up, with each kind of client."""

import os
from typing import Final

_EXAMPLES: Final = """\
This broker accepts clients with TLS and a password. The user {user} may do everything.
Its password is in {folder}/admin.password.

To connect from another machine, copy {folder}/ca.pem there, which is not secret, or
admin.properties, which has the password of {user} in it.

cordwood
    cordwood topics list --command-config {folder}/admin.properties
    cordwood topics list --at {address} --ca {folder}/ca.pem \\
        --user {user} --password-file {folder}/admin.password

More users, and what they may do
    cordwood users add alice --command-config {folder}/admin.properties
    cordwood acls add --help

Kafka's own tools (Java)
    kafka-topics.sh --bootstrap-server {address} --list \\
        --command-config {folder}/admin.properties

kcat
    kcat -F {folder}/kcat.conf -L

Python, confluent-kafka
    from confluent_kafka import Producer
    password = open("{folder}/admin.password").read().strip()
    producer = Producer({{
        "bootstrap.servers": "{address}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "{folder}/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "{user}",
        "sasl.password": password,
    }})

Python, kafka-python
    from kafka import KafkaProducer
    password = open("{folder}/admin.password").read().strip()
    producer = KafkaProducer(
        bootstrap_servers="{address}",
        security_protocol="SASL_SSL",
        ssl_cafile="{folder}/ca.pem",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="{user}",
        sasl_plain_password=password,
    )

Spark, with Spark's own Kafka source
    password = open("{folder}/admin.password").read().strip()
    spark.readStream.format("kafka").options(**{{
        "kafka.bootstrap.servers": "{address}",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "{folder}/ca.pem",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config":
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{{password}}";',
        "subscribe": "orders",
    }}).load()
"""


def render_examples(folder: str, address: str, user: str) -> str:
    """The text, without any password."""
    return _EXAMPLES.format(folder=os.path.abspath(folder), address=address, user=user)
