"""Whatever a file says: a configuration, or problems with their places; never a traceback."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.config.load import load
from mtpd.config.schema import ModelTable, RootTable
from mtpd.errors import ConfigError

words = st.sampled_from(
    [*RootTable.model_fields, *ModelTable.model_fields, "max_depth", "kind", "members", "listen"]
)
values = st.sampled_from(
    ["1", "-1", "2.5", "nan", "true", '"mtp"', '"auto"', '""', "[]", '["x"]', "{}", "1979-01-01"]
)
lines = st.one_of(
    st.builds("[{}]".format, words),
    st.builds("[models.tiny-chained.{}]".format, words),
    st.builds("[[{}]]".format, words),
    st.builds("{} = {}".format, words, values),
    st.text(max_size=12),
)


@settings(max_examples=150)
@given(st.lists(lines, max_size=12).map("\n".join))
def test_any_text_is_a_configuration_or_a_list_of_problems(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mtpd.toml")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        assert outcome(path)


def outcome(path: Path) -> bool:
    """Whether loading ends as it may end."""
    try:
        return bool(load(path).sources)
    except ConfigError as error:
        problems = error.problems
    return bool(problems) and all(one.startswith("/") for one in problems)
