"""What the models of one file share: the binary, variables, names and aliases."""

from __future__ import annotations

import pytest

from mtpd.compat.remarks import Kind
from tests.unit.compat.translating import one_model, profile, swap, told

TWO = """\
models:
  a:
    cmd: {a}
  b:
    cmd: {b}
"""


@pytest.mark.parametrize(
    ("a", "b", "binary", "lost"),
    [
        ("llama-server", "llama-server", None, 0),
        ("/x/llama-server", "/x/llama-server", "/x/llama-server", 0),
        ("/x/llama-server", "/y/llama-server", "/x/llama-server", 1),
        ("llama-server-vulkan", "llama-server", "llama-server-vulkan", 1),
        ("llama-server", "/y/llama-server", None, 1),
    ],
)
def test_all_models_run_on_one_binary(a: str, b: str, binary: str | None, lost: int) -> None:
    text = TWO.format(a=f"{a} --port ${{PORT}} -m /a", b=f"{b} --port ${{PORT}} -m /b")
    made = swap(text)
    assert made.tree.get("engine") == (None if binary is None else {"binary": binary})
    assert told(made) == [f"5: models.b.cmd: all models run on one llama-server here: '{a}'"] * lost
    own = swap(f"mtpd: {{engine: {{binary: embedded}}}}\n{text}")
    assert own.tree["engine"] == {"binary": "embedded"}
    assert told(own) == []


def test_a_relative_binary_is_looked_for_beside_the_file() -> None:
    made = swap("models:\n  m:\n    cmd: bin/llama-server --port ${PORT} -m /m -c 1 -np 1\n")
    assert told(made, Kind.CHANGED) == [
        "3: models.m.cmd: 'bin/llama-server' is looked for beside this file"
    ]


@pytest.mark.parametrize(
    ("a", "b", "env", "lost"),
    [
        ("HIP_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=0", {"HIP_VISIBLE_DEVICES": "0"}, []),
        ("HIP_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1", None, ["a", "b"]),
        ("HIP_VISIBLE_DEVICES=0", "HSA_X=1", None, ["a", "b"]),
        ("HF_TOKEN=x", "HF_TOKEN=x", None, ["a", "b"]),
        ("LD_PRELOAD=x", "LD_PRELOAD=x", None, ["a", "b"]),
    ],
)
def test_variables_are_set_where_every_model_agrees(
    a: str, b: str, env: dict[str, str] | None, lost: list[str]
) -> None:
    made = swap(
        TWO.format(
            a=f'llama-server --port ${{PORT}} -m /a\n    env: ["{a}"]',
            b=f'llama-server --port ${{PORT}} -m /b\n    env: ["{b}"]',
        )
    )
    assert made.tree.get("engine") == (None if env is None else {"extra_env": env})
    assert [one.split(":")[1] for one in told(made)] == [f" models.{name}.env.0" for name in lost]


@pytest.mark.parametrize(
    ("b", "lost"),
    [
        ("/b", []),
        ('/b\n    env: ["HSA_X=1"]', []),
        (
            '/b\n    env: ["HSA_X=2"]',
            ["8: models.b.env.0: mtpd.engine.extra_env gives HSA_X another value"],
        ),
    ],
)
def test_a_variable_that_the_file_sets_itself(b: str, lost: list[str]) -> None:
    text = "mtpd: {engine: {extra_env: {HSA_X: '1'}}}\n" + TWO.format(
        a='llama-server --port ${PORT} -m /a\n    env: ["HSA_X=1"]',
        b=f"llama-server --port ${{PORT}} -m {b}",
    )
    made = swap(text)
    assert made.tree["engine"] == {"extra_env": {"HSA_X": "1"}}
    assert told(made) == lost


def test_names_that_a_profile_cannot_have() -> None:
    text = "models:\n" + "".join(
        f"  {name!r}: {{cmd: 'llama-server --port ${{PORT}} -m /x -c 1 -np 1'}}\n"
        for name in ("org/m", "org-m", "m q", "/")
    )
    made = swap(text)
    assert made.names == {"/": "model", "m q": "m-q", "org-m": "org-m", "org/m": "org-m-2"}
    assert profile(made, "org-m-2")["aliases"] == ["org/m"]
    assert told(made, Kind.CHANGED) == [
        "2: models.\"org/m\": is the profile 'org-m-2' here, and is served as 'org/m'"
    ]
    assert told(made) == [
        "4: models.\"m q\": no client can ask for 'm q' here; its name is 'm-q'",
        "5: models.\"/\": no client can ask for '/' here; its name is 'model'",
    ]


def test_aliases_keep_their_lines() -> None:
    made = one_model("", "    aliases:\n      - x/y@1\n      - 'a b'\n      - 7\n")
    assert profile(made)["aliases"] == ["x/y@1", "7"]
    assert made.lines["models", "m", "aliases", 1] == 7
    assert made.keys["models", "m", "aliases", 1] == ("models", "m", "aliases", 2)
    assert told(made) == ["6: models.m.aliases.1: no client can ask for 'a b' here"]
