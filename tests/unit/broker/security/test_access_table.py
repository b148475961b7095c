"""The access table knows every API, and the handlers ask about all that it says."""

import ast
from pathlib import Path

import cordwood.broker
from cordwood.broker.security import access_table
from cordwood.broker.security.access_table import ACCESS_TABLE, OPEN_APIS, Need, Shown
from cordwood.protocol.api_catalog import API_CATALOG

BROKER = Path(cordwood.broker.__file__).parent


def test_every_served_api_is_in_the_table_or_open_to_everybody() -> None:
    served = {api.name for api in API_CATALOG.values()}

    assert served <= set(ACCESS_TABLE) | OPEN_APIS
    assert not set(ACCESS_TABLE) & OPEN_APIS


def test_every_need_of_a_served_api_is_asked_about_by_the_broker() -> None:
    served = {api.name for api in API_CATALOG.values()}
    named = {
        name: need
        for name, need in vars(access_table).items()
        if isinstance(need, Need) and need.api in served
    }
    asked = {
        node.attr
        for path in BROKER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"needs", "access_table"}
    }

    assert set(named) - asked == set()


def test_an_api_whose_need_may_be_replaced_by_another_has_one_that_refuses() -> None:
    for api, needs in ACCESS_TABLE.items():
        if any(need.shown is Shown.OTHERWISE for need in needs):
            assert any(need.shown is not Shown.OTHERWISE for need in needs), api
