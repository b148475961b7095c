"""JAAS texts, as Kafka reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.security.sasl.jaas import parse_jaas, parse_plain_users, render_jaas

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_an_entry_has_a_module_and_options() -> None:
    entry = parse_jaas(f'{_PLAIN} required username="alice" password="pencil";')

    assert entry.module == _PLAIN
    assert entry.name == "PlainLoginModule"
    assert entry.options == {"username": "alice", "password": "pencil"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', "a\\b"),
        (r'"tab\there"', "tab\there"),
        (r'"\101\60"', "A0"),
        ("'single \"quoted\"'", 'single "quoted"'),
        ("word-1.x_$", "word-1.x_$"),
        ("1234", "1234"),
        ('"with = and ; inside"', "with = and ; inside"),
        ('"// no comment"', "// no comment"),
        ('""', ""),
        ('"pässwörd"', "pässwörd"),
    ],
)
def test_values_are_quoted_or_words(written: str, value: str) -> None:
    assert parse_jaas(f"M required password={written};").options == {"password": value}


def test_comments_and_lines_are_passed_over() -> None:
    entry = parse_jaas("M required // the flag\n  a=1 /* two\nlines */ b = '2'\n;\n")

    assert entry.options == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin with a login module"),
        ("M", "must begin with a login module"),
        ("M maybe a=1;", "must begin with a login module"),
        ("; required", "must begin with a login module"),
        ("M required a=1", "must end with a semicolon"),
        ("M required a;", "option 1 has no value"),
        ("M required a=;", "option 1 has no value"),
        ("M required =1;", "without the name"),
        ('M required a="hunter2;', "a quote is missing"),
        ("M required a=1; N required;", "one login module"),
        ("M required a=1 a=2;", "option 2 is given twice"),
        ('"M" required a=1;', "must begin with a login module"),
        ('M "required" a=1;', "must begin with a login module"),
        ("M required a=;b", "option 1 has no value"),
        ("x" * (1024 * 1024 + 1), "at most"),
    ],
)
def test_a_broken_text_is_refused_with_the_rule(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_jaas(text)


@pytest.mark.parametrize(
    "text",
    [
        'M required password="hunter2',
        "M required password=pass hunter2;",
        "M required p=a/hunter2;",
    ],
)
def test_no_error_shows_a_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"quote|value") as raised:
        parse_jaas(text)

    assert "hunter2" not in str(raised.value)


def test_an_entry_does_not_show_its_options() -> None:
    assert "hunter2" not in repr(parse_jaas("M required password=hunter2;"))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(), max_size=3))
def test_what_is_rendered_is_read_back(options: dict[str, str]) -> None:
    assert parse_jaas(render_jaas(_PLAIN, options)).options == options


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_jaas(text)
    except ValueError as error:
        assert str(error)


# --- users of a broker ----------------------------------------------------------------------------


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
    assert parse_plain_users(f"{_PLAIN} required\n  {options};") == users


def test_other_modules_have_no_users() -> None:
    assert parse_plain_users(f'{_SCRAM} REQUIRED username="a" password="b";') == {}

    with pytest.raises(ValueError, match="PlainLoginModule"):
        parse_plain_users(f'{_SCRAM} required user_alice="x";')


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        _PLAIN,
        f"{_PLAIN};",
        f"{_PLAIN} required",
        f"{_PLAIN} always;",
        f'{_PLAIN} required user_alice="x"',
        f"{_PLAIN} required user_alice;",
        f"{_PLAIN} required user_alice=;",
        f"{_PLAIN} required user_alice= =;",
        f'{_PLAIN} required ="secret";',
        f'{_PLAIN} required user_alice="secret;',
        f'{_PLAIN} required user_alice="sec\nret";',
        f'{_PLAIN} required user_alice="secret" user_alice="secret";',
        f'{_PLAIN} required user_="secret";',
        f'{_PLAIN} required user_alice="";',
        f'{_PLAIN} required alice="secret";',
        f"{_PLAIN} required /* secret;",
        f"{_PLAIN} required; {_PLAIN} required;",
        f'"{_PLAIN}" required;',
        "com.example.Module required;",
        f"{_PLAIN} required user_alice=sec&ret;",
        "x" * (1024 * 1024 + 1),
    ],
)
def test_everything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_plain_users(text)

    assert "secret" not in str(refused.value)
