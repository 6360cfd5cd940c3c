from __future__ import annotations

import pytest

from mtpd.gpu.base import Device
from mtpd.gpu.identity import pinned, same_card
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


AMD = Device(key=KEY, vendor="amd", uuid="GPU-2172c0de5eed0906")
NVIDIA = Device(key=KEY, vendor="nvidia", uuid="GPU-7a3b1c2d-0000-1111-2222-333344445555")


def test_a_rocm_engine_is_pinned_by_serial_number_and_nothing_else() -> None:
    assert pinned(AMD) == {"ROCR_VISIBLE_DEVICES": "GPU-2172c0de5eed0906"}


def test_a_cuda_engine_is_pinned_by_uuid() -> None:
    assert pinned(NVIDIA) == {
        "CUDA_VISIBLE_DEVICES": "GPU-7a3b1c2d-0000-1111-2222-333344445555",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_vulkan_engine_is_pinned_where_its_index_is_known() -> None:
    assert pinned(AMD, vulkan_index=1)["GGML_VK_VISIBLE_DEVICES"] == "1"
    assert pinned(Device(key=KEY, vendor="amd")) == {}
    assert pinned(Device(key=HOST, vendor="cpu"), vulkan_index=0) == {}
