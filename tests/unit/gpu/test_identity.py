from __future__ import annotations

import pytest

from mtpd.gpu.identity import same_card
from mtpd.units import HOST, DeviceKey

KEY = DeviceKey("0000:03:00.0")


@pytest.mark.parametrize("said", ["0000:03:00.0", "0000:03:00.0 ", "00000000:03:00.0", "03:00.0"])
def test_one_card_is_known_however_its_address_is_written(said: str) -> None:
    assert same_card(said, KEY) is True
    assert same_card(said.upper(), KEY) is True


@pytest.mark.parametrize("said", ["0000:0a:00.0", "0000:03:00.1", "0001:03:00.0"])
def test_another_address_is_another_card(said: str) -> None:
    assert same_card(said, KEY) is False


@pytest.mark.parametrize("said", ["unknown id", "", "127.0.0.1 50052", "03:00"])
def test_what_is_no_address_says_nothing(said: str) -> None:
    assert same_card(said, KEY) is None
    assert same_card("0000:03:00.0", HOST) is None
