"""pydantic models and msgspec structs as parameters, if those libraries are installed."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Annotated, Any

import pytest

import glue
from glue.function.schema import shape_of
from glue.function.validation import ValidationError

pydantic = pytest.importorskip("pydantic")
msgspec = pytest.importorskip("msgspec")


class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    name: str
    price: float = pydantic.Field(ge=0, description="in euros")


class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    items: list[Item]
    due: datetime.date | None = None
    parent: Order | None = None


class Strict(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime.date


class Cell(msgspec.Struct):  # type: ignore[misc, name-defined]
    row: int
    label: str = ""


class Chain(msgspec.Struct):  # type: ignore[misc, name-defined]
    cell: Cell
    next: Chain | None = None


def faults(annotation: Any, value: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        shape_of(annotation).read(value)
    return caught.value.lines


def test_json_is_converted_to_a_pydantic_model() -> None:
    made = shape_of(list[Order]).read(
        [{"items": {"name": "tea", "price": "2"}, "due": "2026-01-02", "parent": {"items": []}}]
    )

    assert made == [
        Order(
            items=[Item(name="tea", price=2.0)],
            due=datetime.date(2026, 1, 2),
            parent=Order(items=[]),
        ),
    ]


def test_definitions_of_a_model_are_at_the_root_of_the_schema() -> None:
    @glue.tool
    def place(order: Order, item: Item) -> None: ...

    schema = place.spec.parameters

    assert sorted(schema["$defs"]) == ["Item", "Order"]
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert place.signature.parse('{"order": {"items": []}, "item": {"name": "x", "price": 1}}') == {
        "order": Order(items=[]),
        "item": Item(name="x", price=1),
    }


def test_two_models_with_the_same_name_get_two_definitions() -> None:
    def other() -> Any:
        class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
            number: int

        class Basket(pydantic.BaseModel):  # type: ignore[misc, name-defined]
            items: list[Item]

        return pydantic.create_model("Basket", items=(list[Item], ...))

    basket = other()
    shape = shape_of(dict.__class_getitem__((str, Order | basket)))

    assert sorted(shape.schema["$defs"]) == ["Item", "Item_2", "Order"]
    assert shape.read({"a": {"items": [{"number": 1}]}})["a"].items[0].number == 1


def test_faults_of_a_pydantic_model_have_a_path() -> None:
    assert faults(dict[str, Order], {"a": {"items": [{"name": "x", "price": -1}]}}) == [
        "a.items[0].price: got -1, expected a number of at least 0"
    ]
    assert faults(Order, {"items": [], "due": "soon"})[0].startswith(
        "due: Input should be a valid date"
    )


def test_a_strict_pydantic_model_accepts_a_date_as_text() -> None:
    assert shape_of(Strict).read({"when": "2026-01-02"}) == Strict(when=datetime.date(2026, 1, 2))


def test_pydantic_fields_in_annotations_are_used() -> None:
    @glue.tool
    def page(number: Annotated[int, pydantic.Field(gt=0, description="from 1")]) -> None: ...

    assert page.spec.parameters["properties"]["number"] == {
        "type": "integer",
        "exclusiveMinimum": 0,
        "description": "from 1",
    }
    assert page.signature.parse('{"number": "3"}') == {"number": 3}


def test_json_is_converted_to_a_msgspec_struct() -> None:
    assert shape_of(Cell).schema["properties"]["row"] == {"type": "integer"}
    assert shape_of(Cell).read({"row": "3"}) == Cell(row=3)
    made = shape_of(list[Chain]).read(
        [{"cell": {"row": 1}, "next": {"cell": {"row": 2, "label": "x"}}}]
    )

    assert made == [Chain(cell=Cell(row=1), next=Chain(cell=Cell(row=2, label="x")))]


def test_faults_of_a_struct_have_a_path() -> None:
    assert faults(list[Cell], [{"row": 1}, {"row": "x"}]) == [
        '[1].row: got "x", expected an integer'
    ]


def test_a_tool_may_return_a_model() -> None:
    from glue.function.call import as_result

    assert as_result("t", Item(name="x", price=1)).text == '{"name": "x", "price": 1.0}'
    assert as_result("t", [Cell(row=1)]).text == '[{"row": 1, "label": ""}]'


def test_glue_imports_neither_library_by_itself() -> None:
    code = """
import sys, glue
from dataclasses import dataclass
from typing import Annotated
@dataclass
class Point: x: float
@glue.tool
def one(point: Point, number: Annotated[int, glue.Field(ge=1)]) -> str: return ""
one.signature.parse('{"point": {"x": 1}, "number": 2}')
assert not {"pydantic", "msgspec"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
