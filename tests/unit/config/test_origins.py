from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config.load import load
from mtpd.config.origins import describe_origins

if TYPE_CHECKING:
    from pathlib import Path


def test_every_value_is_told_once_with_its_key_value_and_origin(tmp_path: Path) -> None:
    path = tmp_path / "mtpd.toml"
    path.write_text(
        '[server]\nlisten = "[::1]:80"\n'
        "[engine.extra_env]\nHIP_VISIBLE_DEVICES = '0'\n"
        '[pools.p]\nmembers = ["tiny-chained"]\n'
        '[models."a.b"]\nmodel = "/m"\nquality = { perplexity = 5.5, corpus = "c", chunks = 32 }\n'
    )
    views = describe_origins(load(path, overrides={"engine.threads": 2}))
    told = {view.key: (view.value, view.origin) for view in views}
    assert len(told) == len(views)
    assert told["server.listen"] == ("[::1]:80", f"{path}:2")
    assert told["engine.extra_env.HIP_VISIBLE_DEVICES"] == ("0", f"{path}:4")
    assert told["engine.threads"] == (2, "command line")
    assert told["pools.p.members"] == (["tiny-chained"], f"{path}:6")
    assert told["pools.p.objective"] == ("balanced", "default")
    assert told['models."a.b".model'] == ("/m", f"{path}:8")
    assert told['models."a.b".quality.chunks'] == (32, f"{path}:9")
    assert told['models."a.b".quality.stderr'] == (None, "default")
    assert told["budget.hardware"] == (None, "default")
