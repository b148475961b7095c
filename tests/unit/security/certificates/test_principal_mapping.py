"""Rules that make a user of a subject, with Kafka's own examples among them."""

import time

import pytest

from cordwood.security.certificates.principal_mapping import SUBJECT_CHARS_MAX, PrincipalMapping

SERVICE = "CN=kafka-svc1,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
ADMIN = "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
KAFKAS = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        (KAFKAS, SERVICE, "kafka-svc1"),
        (KAFKAS, ADMIN, "adminuser@admin"),
        (KAFKAS, "OU=x,CN=Some.One,C=y", "some.one"),
        (KAFKAS, "OU=nobody", "OU=nobody"),
        (" RULE:^CN=(.*?),.*$/$1/U , DEFAULT ", ADMIN, "ADMINUSER"),
        (r"RULE:^CN=([^,]*),.*$/a\/b\$$1/", ADMIN, "a/b$adminUser"),
        (r"RULE:^CN=a\/b,(.*)$/$1/", "CN=a/b,C=x", "C=x"),
        ("RULE:^CN=(?<who>.*?),.*$/${who}/", ADMIN, "adminUser"),
        ("RULE:^CN=(.*?),.*$/$0/", "CN=a,C=b", "CN=a,C=b"),
        # As in Java: of $12 the first digit, if there are only nine groups; $2 as it is.
        ("RULE:^CN=(.*?),.*$/$12$2/", "CN=a,C=b", "a2$2"),
        # As in Java: what matches is replaced each time, also nothing at the end.
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:CN=(a|b)?,?(.*)/$1$2/", "CN=C=x", "C=x"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapping(rules).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject"),
    [
        ("RULE:^CN=admin,.*$/admin/", SERVICE),
        # As in Java: a long s and the sign of Kelvin are no letters of such patterns.
        ("RULE:(?i)^CN=(ops),.*$/ops/", "CN=op\u017f,C=x"),
        ("RULE:(?i)^CN=(kafka),.*$/kafka/", "CN=\u212aafka,C=x"),
        (r"RULE:^CN=(\w+),.*$/$1/", "CN=\u0430dmin,C=x"),
        ("RULE:^CN=(.*?)$/$1/", "CN="),
        ("DEFAULT", ""),
        ("DEFAULT", "CN=" + "x" * SUBJECT_CHARS_MAX),
    ],
    ids=["no rule", "long s", "kelvin", "cyrillic", "empty name", "empty subject", "too long"],
)
def test_without_a_name_there_is_none(rules: str, subject: str) -> None:
    assert PrincipalMapping(rules).name_of(subject) is None


@pytest.mark.parametrize(
    "rules",
    [
        "",
        " , ",
        "default",
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:a/b/ RULE:c/d/",
        "DEFAULTS",
        "RULE:(a/b/",
        "RULE:a/$1/",
        "RULE:(a)/$/",
        "RULE:(a)/${b}/",
        r"RULE:\p{L}+/x/",
        "RULE:[a&&[b]]/x/",
        "RULE:(a+)+/x/",
        "RULE:(a|b)*/x/",
        "RULE:(?:x(a*)y){3,}/x/",
        "RULE:((a*)){9}/x/",
        "x" * 200_000,
    ],
)
def test_rules_that_are_not_understood_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        PrincipalMapping(rules)


def test_a_long_subject_does_not_keep_the_usual_rules_busy() -> None:
    mapping = PrincipalMapping(KAFKAS)
    subject = ("CN=a," + "OU=b," * 300)[: SUBJECT_CHARS_MAX - 1] + "!"

    began_s = time.thread_time()
    mapping.name_of(subject)

    assert time.thread_time() - began_s < 1.0
