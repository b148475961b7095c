"""Kafka's text for users of PLAIN, read strictly."""

import pytest

from cordwood.errors import ConfigError
from cordwood.security.sasl.jaas_users import parse_jaas_users

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ("", {}),
        ('username="admin" password="x"', {}),
        ('user_alice="secret" user_bob=word', {"alice": "secret", "bob": "word"}),
        ("user_alice='a\"b'", {"alice": 'a"b'}),
        (r'user_alice="a\"b\\c\n\101"', {"alice": 'a"b\\c\nA'}),
        ('"user_al ice"="x"', {"al ice": "x"}),
        ('// a comment\n user_alice="//no" /* user_bob="x" */', {"alice": "//no"}),
        ("user_alice=\"a;b='c'\"", {"alice": "a;b='c'"}),
    ],
)
def test_users_are_read(options: str, users: dict[str, str]) -> None:
    assert parse_jaas_users(f"{PLAIN} required\n  {options};") == users


def test_other_modules_have_no_users() -> None:
    assert parse_jaas_users(f'{SCRAM} REQUIRED username="a" password="b";') == {}

    with pytest.raises(ConfigError, match="PlainLoginModule"):
        parse_jaas_users(f'{SCRAM} required user_alice="x";')


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN,
        f"{PLAIN};",
        f"{PLAIN} required",
        f"{PLAIN} always;",
        f'{PLAIN} required user_alice="x"',
        f"{PLAIN} required user_alice;",
        f"{PLAIN} required user_alice=;",
        f"{PLAIN} required user_alice= =;",
        f'{PLAIN} required ="secret";',
        f'{PLAIN} required user_alice="secret;',
        f'{PLAIN} required user_alice="sec\nret";',
        f'{PLAIN} required user_alice="secret" user_alice="secret";',
        f'{PLAIN} required user_="secret";',
        f'{PLAIN} required user_alice="";',
        f'{PLAIN} required alice="secret";',
        f"{PLAIN} required /* secret;",
        f"{PLAIN} required; {PLAIN} required;",
        f'"{PLAIN}" required;',
        "com.example.Module required;",
        f"{PLAIN} required user_alice=sec&ret;",
        "x" * (1024 * 1024 + 1),
    ],
)
def test_everything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_jaas_users(text)

    assert refused.value.key == "sasl.jaas.config"
    assert "secret" not in str(refused.value)
