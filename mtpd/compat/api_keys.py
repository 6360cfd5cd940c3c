"""llama-swap's ``apiKeys`` as access tokens; what stands in the file is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.access import Scope, Token, digest_of
from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["put_api_keys"]

KEY = "apiKeys"


def put_api_keys(value: object, lines: Mapping[Path, int], into: Import) -> None:
    """Make a token of each key.

    A key that cannot be one is a fault, as in llama-swap: without it the models might be
    open to everybody. No message repeats a key.

    Args:
        value: What stands under ``apiKeys``.
        lines: Line of each key path of the file.
        into: Takes the tokens, the remark and the faults.
    """
    if value is None or value == []:
        return
    line = lines.get((KEY,), 1)
    if not isinstance(value, list):
        into.fault(line, (KEY,), "must be a list of keys")
        return
    for number, key in enumerate(value):
        here: Path = (KEY, number)
        wrong = _wrong(key)
        if wrong is not None:
            into.fault(lines.get(here, line), here, wrong)
            continue
        into.tokens.append(
            Token(
                name=f"{KEY}[{number}]",
                digest=digest_of(str(key)),
                scopes=frozenset({Scope.INFER, Scope.READ}),
            )
        )
    message = (
        "each is an access token for inference and for what changes nothing; a change such as "
        "/unload needs one with the scope admin, or the control socket. They stand here in "
        "plain text: mtpd token add makes tokens that are kept nowhere"
    )
    into.remark(Kind.CHANGED, line, (KEY,), message)


def _wrong(key: object) -> str | None:
    if not isinstance(key, str):
        return "must be text: write it in quotes"
    if not key:
        return "must not be empty"
    if any(sign.isspace() or not sign.isprintable() for sign in key):
        return "must not hold spaces or control characters"
    return None
