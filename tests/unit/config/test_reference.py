from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
import tomli
from pydantic import TypeAdapter, ValidationError

from mtpd.config import schema
from mtpd.config.reference import SECTIONS, Key, Section, meanings
from mtpd.config.schema import RootTable, Table

TABLES = [
    table
    for table in vars(schema).values()
    if isinstance(table, type) and issubclass(table, Table) and table not in {Table, RootTable}
]
PLACES = [(section, key) for section in SECTIONS for key in section.keys]
NAMES = [f"{section.name}.{key.name}" for section, key in PLACES]


def test_every_key_of_every_table_stands_in_one_section() -> None:
    listed = [(section.table, key.name) for section, key in PLACES]
    wanted = {
        (table, name)
        for table in TABLES
        for name in table.model_fields
        if table is not schema.LaunchTable
        and (table is not schema.CandidateTable or name not in schema.DrafterTable.model_fields)
    }
    assert set(listed) == wanted
    assert len(listed) == len(wanted) > 100


@pytest.mark.parametrize("table", [*TABLES, RootTable], ids=lambda table: table.__name__)
def test_the_docstring_tells_of_the_keys_that_there_are_and_no_others(table: type[Table]) -> None:
    assert set(meanings(table)) == set(table.model_fields)


@pytest.mark.parametrize(("section", "key"), PLACES, ids=NAMES)
def test_a_meaning_is_sentences_and_an_unset_key_says_what_holds(
    section: Section, key: Key
) -> None:
    assert key.meaning[0].isupper() or key.meaning[0] in "`c"
    assert key.meaning.endswith(".")
    assert "Unset" not in key.meaning
    assert key.default != "`null`", f"{section.name}.{key.name} needs a sentence 'Unset: …'"


RANGE = re.compile(r", (?:(above|at least) )?(\d+)(?: … (below )?(\d+))?$")


@pytest.mark.parametrize(("section", "key"), PLACES, ids=NAMES)
def test_the_range_is_the_one_that_is_checked(section: Section, key: Key) -> None:
    field = section.table.model_fields[key.name]
    if (told := RANGE.search(key.type)) is None:
        assert not re.search(r"\d|°C|MiB|seconds|integer|number", key.type.partition("`")[0])
        return
    annotated: Any = Annotated[field.annotation, field]
    checks: Any = TypeAdapter(annotated)
    above, low, below, high = told.groups()
    for text, excluded, beyond in ((low, above == "above", -1), (high, below is not None, 1)):
        if text is None:
            continue
        if not excluded:
            assert checks.validate_python(int(text)) == int(text)
        for value in (int(text) + beyond, *([int(text)] if excluded else ())):
            with pytest.raises(ValidationError):
                checks.validate_python(value)


@pytest.mark.parametrize(("section", "key"), PLACES, ids=NAMES)
def test_a_default_that_is_written_is_the_default(section: Section, key: Key) -> None:
    field = section.table.model_fields[key.name]
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if field.is_required():
        assert key.default == "required"
    elif default not in (None, [], {}) and not isinstance(default, Table):
        assert tomli.loads(f"x = {key.default.strip('`')}")["x"] == default
