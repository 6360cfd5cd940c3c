from __future__ import annotations

import pytest

from mtpd.compat.remarks import Fault
from mtpd.compat.yaml_text import MAX_DEPTH, MAX_VALUES, Document, read


def value(text: str) -> object:
    found = read(text)
    assert isinstance(found, Document), found
    return found.value


def fault(text: str) -> str:
    found = read(text)
    assert isinstance(found, Fault)
    return f"{found.line}:{found.column}: {found.message}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2026-11-30", "2026-11-30"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("0x10", 16),
        ("0o17", 15),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("! 5", "5"),
        ("9" * 40, float("9" * 40)),
    ],
)
def test_scalars_are_typed_as_yaml_1_2_does(text: str, meant: object) -> None:
    found = value(f"a: {text}")
    assert found == {"a": meant}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(meant)


def test_every_value_has_its_line() -> None:
    found = read("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\ne: {f: 4}\n")
    assert isinstance(found, Document)
    assert found.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1): 4,
        ("b", 1, "c"): 4,
        ("b", 1, "d"): 5,
        ("e",): 6,
        ("e", "f"): 6,
    }


def test_a_block_of_text_knows_its_first_line() -> None:
    found = read("a:\n  b: |\n    one\n    two\n  c: >\n    folded\n")
    assert isinstance(found, Document)
    assert found.blocks == {("a", "b"): 3}


def test_anchors_and_merge_keys() -> None:
    text = "x: &x {q: 1, r: 2}\ny: &y {r: 3, s: 4}\nz:\n  <<: [*x, *y]\n  q: 9\nw: *x\n"
    assert value(text) == {
        "x": {"q": 1, "r": 2},
        "y": {"r": 3, "s": 4},
        "z": {"q": 9, "r": 2, "s": 4},
        "w": {"q": 1, "r": 2},
    }


def test_a_merge_in_a_merge() -> None:
    text = "x: &x {q: 1}\ny: &y\n  <<: *x\n  r: 2\nz:\n  <<: *y\n"
    assert value(text) == {"x": {"q": 1}, "y": {"r": 2, "q": 1}, "z": {"r": 2, "q": 1}}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert value("'<<': 1") == {"<<": 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2", "2:1: the key 'a' is already in line 1"),
        ("x:\n  b: 1\n  'b': 2", "3:3: the key 'b' is already in line 2"),
        ("a: &x [*x]", "1:8: &x contains itself"),
        ("a: *y", "1:4: there is no anchor &y"),
        ("a: !foo 1", "1:4: the tag !foo has no meaning here"),
        (
            "a: !!python/object/apply:os.system [x]",
            "1:4: the tag tag:yaml.org,2002:python/object/apply:os.system has no meaning here",
        ),
        ("a: 1\n---\nb: 2", "2:1: a second document begins here"),
        ("? [a]\n: b", "1:3: a key must be text"),
        ("a: 1\nb:\n\tc: 2", "3:1: not YAML: while scanning for the next token found character"),
        ("a: b: c", "1:5: not YAML: mapping values are not allowed here"),
        ("a: 'x\n", "2:1: not YAML: while scanning a quoted scalar found unexpected end of stream"),
        ("a: 1\nb: \x01", "2:0: not YAML: a control character"),
        ('a: 1\nb: "\\UFFFFFFFF"', "2:0: not YAML: Python int too large to convert to C int"),
        ('a: "\\ud800"', "1:4: is not text: it holds half of a surrogate pair"),
        (f"%YAML 1.{'9' * 6000}\n---\na: 1", "1:0: not YAML: Exceeds the limit (4300 digits)"),
        ("a: 1\n<<: 3", "2:1: << takes a table or a list of tables"),
        ("[" * 100_000, f"1:{MAX_DEPTH + 2}: lists and tables are nested deeper than {MAX_DEPTH}"),
        ("- " * 9_000, f"1:83: lists and tables are nested deeper than {MAX_DEPTH}"),
    ],
)
def test_what_is_wrong_has_its_place(text: str, told: str) -> None:
    assert fault(text).startswith(told)


def laughs(first: str, level: str) -> str:
    lines = [f"a0: &a0 {first}"]
    for number in range(1, 12):
        uses = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {level.format(uses)}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (laughs("[x, y]", "[{}]"), f"more than {MAX_VALUES} values or {MAX_DEPTH} levels"),
        (laughs("{x: y}", "{{<<: [{}]}}"), f"<< brings more than {MAX_VALUES} values"),
    ],
    ids=["lists", "merges"],
)
def test_a_billion_laughs_end_early(text: str, told: str) -> None:
    assert told in fault(text)


def test_deep_aliases_end_early() -> None:
    deep = ["a0: &a0 [x]"]
    deep += [f"a{number}: &a{number} [*a{number - 1}]" for number in range(1, MAX_DEPTH + 5)]
    assert f"{MAX_DEPTH} levels" in fault("\n".join(deep))
    merges = ["a0: &a0 {x: y}"]
    merges += [f"a{n}: &a{n} {{<<: *a{n - 1}}}" for n in range(1, MAX_DEPTH + 5)]
    assert f"<< is nested deeper than {MAX_DEPTH}" in fault("\n".join(merges))


def test_a_large_document_within_the_bound_is_read() -> None:
    assert value("\n".join(f"k{n}: v" for n in range(MAX_VALUES - 1))) is not None
    assert "more than" in fault("\n".join(f"k{n}: v" for n in range(MAX_VALUES)))


def test_nothing_is_an_empty_document() -> None:
    assert value("") is None
    assert value("# only a comment\n") is None
    assert value("\ufeffa: 1") == {"a": 1}


def test_scalars_are_substituted_before_they_are_typed() -> None:
    found = read("a: $n\nb: '$n'\n$n: c", substitute=lambda text: text.replace("$n", "7"))
    assert isinstance(found, Document)
    assert found.value == {"a": 7, "b": "7", "7": "c"}


def test_a_substitution_that_fails_is_a_fault_at_its_place() -> None:
    def refuse(text: str) -> str:
        if text == "$x":
            message = "there is no x"
            raise LookupError(message)
        return text

    assert read("a: 1\nb: $x", substitute=refuse) == Fault(
        line=2, column=4, message="there is no x"
    )
