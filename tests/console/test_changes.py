"""Changes: through a broker and in a directory, with and without rights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from console.served_console import ServedConsole, served
from cordwood.console.console_config import ConsoleConfig
from cordwood.security.setup.local_security import BrokerSecurity, allow


@pytest.fixture(params=["directory", "broker"])
def changeable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedConsole]:
    with cordwood.Broker(tmp_path / "data", topics=["orders"], durability="os") as broker:
        broker.store.topic("orders").append_many([(b"k", b"%d" % n) for n in range(100)])
        broker.store.group("billing").commit({("orders", 0): 70})
        config = ConsoleConfig(
            directories=(broker.data_dir,),
            addresses=(("127.0.0.1", broker.port),) if request.param == "broker" else (),
            port=0,
            interval_s=0.3,
            allows_changes=True,
        )
        with served(config) as found:
            yield found


def test_a_configuration_is_changed_and_reset(changeable: ServedConsole) -> None:
    token = changeable.token("/topics/orders/config?key=retention.ms&value=1h")
    fields = {"token": token, "key": "retention.ms", "value": "1h", "confirm": "orders"}

    changed = changeable.post("/topics/orders/config", fields)
    rows = changeable.get("/api/v1/topics/orders/config").json["rows"]

    assert changed.status == 303
    assert {"key": "retention.ms", "value": "3600000", "source": "topic"}.items() <= next(
        row for row in rows if row["key"] == "retention.ms"
    ).items()
    assert changeable.post("/topics/orders/config", {**fields, "value": ""}).status == 303
    rows = changeable.get("/api/v1/topics/orders/config").json["rows"]
    assert next(row for row in rows if row["key"] == "retention.ms")["source"] == "default"
    assert "set retention.ms = 1h for topic orders" in changeable.get("/log").text


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"confirm": "order"}, 400),
        ({"value": "soon"}, 400),
        ({"key": ""}, 400),
        ({"token": "x"}, 403),
    ],
)
def test_what_is_not_confirmed_or_not_valid_changes_nothing(
    changeable: ServedConsole, change: dict[str, str], status: int
) -> None:
    token = changeable.token("/topics/orders/config?key=retention.ms&value=1h")
    fields = {"token": token, "key": "retention.ms", "value": "1h", "confirm": "orders", **change}

    assert changeable.post("/topics/orders/config", fields).status == status
    rows = changeable.get("/api/v1/topics/orders/config").json["rows"]
    assert next(row for row in rows if row["key"] == "retention.ms")["source"] == "default"


def test_offsets_are_reset_to_what_the_preview_showed(changeable: ServedConsole) -> None:
    preview = changeable.get("/api/v1/groups/reset?name=billing&to=shift&value=-20").json
    token = changeable.token("/groups/reset?name=billing&to=shift&value=-20")
    fields = {"token": token, "name": "billing", "to": "shift", "value": "-20", "topic": ""}

    refused = changeable.post("/groups/reset", {**fields, "confirm": "billin"})
    done = changeable.post("/groups/reset", {**fields, "confirm": "billing"})
    row = changeable.get("/api/v1/groups/view?name=billing").json["table"]["rows"][0]

    assert [(r["current"], r["target"]) for r in preview["rows"]] == [(70, 50)]
    assert refused.status == 400
    assert done.status == 303
    assert (row["offset"], row["lag"]) == (50, 50)


def test_a_group_is_deleted_by_its_name(changeable: ServedConsole) -> None:
    token = changeable.token("/groups/view?name=billing")
    fields = {"token": token, "name": "billing", "confirm": "billing"}

    assert changeable.post("/groups/delete", fields).status == 303
    assert changeable.get("/groups/view?name=billing").status == 404


@pytest.fixture
def secured() -> Iterator[tuple[cordwood.Broker, ServedConsole]]:
    security = BrokerSecurity(
        protocol="SASL_PLAINTEXT",
        users={"anna": "anna-secret", "ben": "ben-secret", "root": "root-secret"},
        acls=[
            allow("anna", "read", topic="orders"),
            allow("anna", "read", group="billing"),
            allow("ben", "describe", topic="orders"),
        ],
        super_users=["root"],
    )
    with cordwood.Broker(security=security, topics={"orders": 1, "secret": 1}) as broker:
        broker.store.topic("orders").append(b"visible to anna")
        broker.store.topic("secret").append(b"visible to root only")
        broker.store.group("billing").commit({("orders", 0): 0, ("secret", 0): 0})
        config = ConsoleConfig(
            directories=(broker.data_dir,),
            addresses=(("127.0.0.1", broker.port),),
            port=0,
            interval_s=0.3,
            needs_login=True,
            allows_changes=True,
        )
        with served(config) as found:
            yield broker, found


def log_in(found: ServedConsole, user: str, password: str) -> ServedConsole:
    session = ServedConsole(found.server)
    fields = {"token": session.token("/login"), "user": user, "password": password}
    session.login_status = session.post("/login", fields).status
    return session


def test_without_a_login_nothing_is_shown(secured: tuple[cordwood.Broker, ServedConsole]) -> None:
    _, found = secured

    for address in ("/", "/topics/orders", "/groups", "/settings", "/topics/orders/export"):
        answer = found.get(address)
        assert answer.status == 303
        assert answer.headers["location"].startswith("/login?next=")
    assert found.get("/api/v1/topics").status == 401
    assert found.get("/topics/orders/tail").status == 401


def test_a_wrong_password_is_refused(secured: tuple[cordwood.Broker, ServedConsole]) -> None:
    _, found = secured

    session = log_in(found, "anna", "wrong")

    assert session.login_status == 401
    assert session.get("/topics").status == 303


def test_a_user_sees_what_the_broker_lets_them_see(
    secured: tuple[cordwood.Broker, ServedConsole],
) -> None:
    _, found = secured
    anna, ben, root = (log_in(found, n, f"{n}-secret") for n in ("anna", "ben", "root"))

    assert "visible to anna" in anna.get("/topics/orders").text
    assert anna.get("/topics/secret").status == 404
    assert "secret" not in anna.get("/groups/view?name=billing").text.replace("anna-secret", "")
    assert anna.get("/settings").status == 403
    assert ben.get("/topics/orders").status == 403
    assert ben.get("/topics/orders/segments").status == 200
    assert ben.get("/topics/orders/export").status == 403
    assert ben.get("/topics/orders/messages/0/0/value").status == 403
    assert ben.get("/groups/view?name=billing").status == 404
    assert "visible to root only" in root.get("/topics/secret").text
    assert root.get("/settings").status == 200
    assert "anna" in root.get("/security").text


def test_a_change_is_made_as_the_user(secured: tuple[cordwood.Broker, ServedConsole]) -> None:
    _, found = secured
    fields = {"key": "retention.ms", "value": "1h", "confirm": "orders"}
    anna, root = log_in(found, "anna", "anna-secret"), log_in(found, "root", "root-secret")
    address = "/topics/orders/config"

    refused = anna.post(address, {**fields, "token": anna.token("/topics/orders/config")})
    done = root.post(address, {**fields, "token": root.token("/topics/orders/config")})

    assert refused.status == 403
    assert done.status == 303
    log = root.get("/api/v1/log").json["table"]["rows"]
    assert {(event["severity"], event["user"]) for event in log if event["kind"] == "change"} == {
        ("warning", "anna"),
        ("info", "root"),
    }


def test_after_logging_out_nothing_is_shown(
    secured: tuple[cordwood.Broker, ServedConsole],
) -> None:
    _, found = secured
    anna = log_in(found, "anna", "anna-secret")

    assert anna.post("/logout", {"token": anna.token("/topics")}).status == 303
    assert anna.get("/topics").status == 303


def test_a_login_leads_to_no_other_site(secured: tuple[cordwood.Broker, ServedConsole]) -> None:
    _, found = secured
    for target in ("https://evil.example", "//evil.example", "/\\evil.example"):
        session = ServedConsole(found.server)
        fields = {
            "token": session.token("/login"),
            "user": "anna",
            "password": "anna-secret",
            "next": target,
        }

        assert session.post("/login", fields).headers["location"] == "/"
