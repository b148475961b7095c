"""The two forms of each inlined function have the same body, and the same numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "cordwood"
PAIRS = ["primitives", "format/json_bytes", "log/compaction/key_slots"]


def bodies(tree: ast.Module) -> dict[str, str]:
    return {
        node.name: ast.dump(ast.Module(body=node.body, type_ignores=[]))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def as_python(declarations: str) -> str:
    """The inline functions of a .pxd as functions of Python without arguments."""
    functions = re.split(r"^cdef inline ", declarations, flags=re.M)[1:]
    signature = re.compile(r"(?:\([^)]*\) )?[\w ]*?(\w+)\([^)]*\) noexcept nogil:")
    return "\n".join(signature.sub(r"def \1():", function, count=1) for function in functions)


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_inlined_has_the_body_of_the_plain_function(pair: str) -> None:
    plain = (SOURCE / f"{pair}.py").read_text()
    inlined = (SOURCE / f"{pair}.pxd").read_text()

    assert bodies(ast.parse(as_python(inlined))) == bodies(ast.parse(plain))


@pytest.mark.parametrize("name", ["format/kernel_tables", "log/compaction/key_slots"])
def test_the_numbers_of_both_forms_are_equal(name: str) -> None:
    source = (SOURCE / f"{name}.py").read_text()
    declarations = (SOURCE / f"{name}.pxd").read_text()

    plain = re.findall(r"^([A-Z]\w+)(?:: Final)? = (\d+)", source, re.M)
    inlined = re.findall(r"^    ([A-Z]\w+) = (\d+)$", declarations, re.M)

    assert plain
    assert inlined == plain
