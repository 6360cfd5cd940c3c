"""Plans engine starts: command line, endpoint and fingerprint of an arm.

Reads the model file's size, time and header, which no pure module may; decides nothing
about which arm. A start that cannot work (no file, no GGUF, a flag the binary lacks) is
refused here, before any process exists.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.compat import hub
from mtpd.config.diff import engine_settings
from mtpd.engine import command, gguf, opaque
from mtpd.engine.fingerprint import FileIdentity, Fingerprint, fingerprint, identify
from mtpd.engine.needed import needed
from mtpd.engine.tool_command import Machine
from mtpd.errors import EngineError, NoModelFileError
from mtpd.types import EngineKey, FailureClass, LaunchPlan, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.config.live import Configuration
    from mtpd.config.model import Config, Opaque, Profile
    from mtpd.types import Endpoint, EngineBinary
    from mtpd.units import DeviceKey
    from tuner.types import Arm

__all__ = ["LaunchPlanner", "size_and_time"]

READY_S = 1800.0
"""No load takes longer, however much it prints."""
_SOCKET_PATH_LIMIT = 100
"""sockaddr_un holds 108 bytes; a longer path would fail at bind with a riddle."""


class LaunchPlanner:
    """Turns an arm into a complete launch plan.

    Args:
        config: Profiles and engine settings.
        binary: The engine that was found.
        device: Where engines run.
        device_present: Whether there is a card that layers can go to.
        sockets: Private directory for engine sockets.
        home: Private directory that engines take for their home.
        driver: Driver version, or None where none applies.
        power_cap_w: Cap in force at the start, or None where none applies.
        new_token: Makes the unguessable part of names and keys.
        free_port: Finds a loopback port, for engines without unix sockets.
        device_env: Variables that leave an engine that card only.
        foreign_env: Variables of programs that are no llama-server, and of stop commands.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        binary: EngineBinary,
        device: DeviceKey,
        device_present: bool,
        sockets: Path,
        home: Path,
        driver: str | None,
        power_cap_w: float | None,
        new_token: Callable[[], str],
        free_port: Callable[[], int],
        device_env: Mapping[str, str] | None = None,
        foreign_env: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._binary = binary
        self._device = device
        self._device_present = device_present
        self._sockets = sockets
        self._home = home
        self._driver = driver
        self._power_cap_w = power_cap_w
        self._new_token = new_token
        self._free_port = free_port
        self._device_env = device_env or {}
        self._foreign_env = foreign_env or {}
        self._headers: dict[tuple[str, int, int], str] = {}

    def plan(self, arm: Arm, *, fits: bool = False) -> LaunchPlan:
        """Plan one start; every plan has an endpoint of its own.

        Args:
            arm: What to start.
            fits: Whether it is certain to fit into the device memory that is free.

        Raises:
            EngineError: The model file is missing or no whole GGUF.
            BinaryError: There is no engine, or it lacks a flag that the arm needs.
        """
        config = self._config.now
        profile = config.profiles[arm.profile]
        key = EngineKey(self._device, profile.name)
        if profile.opaque is not None:
            return self._opaque(config, profile, profile.opaque, key)
        binary = needed(self._binary)
        digest = self._fingerprint(config, profile).digest
        endpoint = self._endpoint()
        stop = opaque.stop_command(profile.stop_command, self._foreign_env, profile=profile.name)
        return LaunchPlan(
            key=key,
            arm=arm,
            command=command.build(
                binary=binary,
                profile=profile,
                arm=arm,
                endpoint=endpoint,
                threads=config.engine.threads,
                device_present=self._device_present,
                home=str(self._home),
                headroom_mib=config.budget.headroom_mib,
                fits=fits,
                extra_env=config.engine.extra_env,
                device_env=self._device_env,
            ),
            endpoint=endpoint,
            fingerprint=digest,
            load_stall_s=config.engine.load_stall_s,
            ready_timeout_s=profile.ready_timeout_s or config.engine.ready_timeout_s or READY_S,
            stop_timeout_s=profile.stop_timeout_s or config.engine.stop_timeout_s,
            stop_command=stop,
            purpose=profile.purpose.value,
            accept_offload=profile.offload.value == "accept",
            settings=engine_settings(config, profile.name),
        )

    def _opaque(
        self, config: Config, profile: Profile, program: Opaque, key: EngineKey
    ) -> LaunchPlan:
        port, env = self._free_port(), {**self._foreign_env, **self._device_env}
        plan = opaque.plan_opaque(config, profile, program, key=key, port=port, env=env)
        return replace(
            plan,
            stop_timeout_s=profile.stop_timeout_s or config.engine.stop_timeout_s,
            stop_command=opaque.stop_command(
                profile.stop_command, plan.command.env, profile=profile.name, port=str(port)
            ),
            settings=engine_settings(config, profile.name),
        )

    @property
    def binary(self) -> EngineBinary:
        """The engine that was found."""
        return self._binary

    @property
    def machine(self) -> Machine:
        """Where the engine's tools run, as itself does."""
        return Machine(
            device_present=self._device_present,
            device_env=self._device_env,
            home=str(self._home),
            search=self._foreign_env.get("PATH", command.DEFAULT_PATH),
        )

    def is_current(self, plan: LaunchPlan) -> bool:
        """Whether a plan still says what is configured; files that were replaced do not count."""
        config, name = self._config.now, plan.arm.profile
        profile = config.profiles.get(name)
        if profile is None or plan.arm.depth > profile.drafter.max_depth:
            return False
        return plan.settings == engine_settings(config, name)

    def digest(self, profile: Profile) -> str:
        """The fingerprint of a profile, also of one that nothing is measured of.

        Raises:
            EngineError: The model file is missing or no whole GGUF.
        """
        if profile.opaque is not None:
            return opaque.digest_of(profile.opaque)
        return self.fingerprint(profile).digest

    def fingerprint(self, profile: Profile) -> Fingerprint:
        """Everything that a result of this profile depends on except the depth.

        Raises:
            EngineError: The model file is missing or no whole GGUF.
        """
        return self._fingerprint(self._config.now, profile)

    def _fingerprint(self, config: Config, profile: Profile) -> Fingerprint:
        draft = profile.drafter.model
        return fingerprint(
            binary=self._binary,
            profile=profile,
            flags=command.effective_flags(
                binary=self._binary,
                profile=profile,
                threads=config.engine.threads,
                device_present=self._device_present,
                headroom_mib=config.budget.headroom_mib,
            ),
            model_file=self._identity(profile.model, profile.name),
            draft_file=None if draft is None else self._identity(draft, profile.name),
            device=self._device,
            driver=self._driver,
            power_cap_w=self._cap_w(config),
            threads=config.engine.threads,
            gate=self._gate(config),
        )

    def _cap_w(self, config: Config) -> float | None:
        """The cap that results hold for: nothing is measured under another than the declared.

        So it stays the same where a reset loses the cap, or where it is set after the start.
        """
        hardware = config.hardware if self._device_present else None
        declared_w = None if hardware is None else hardware.power_cap_w
        return self._power_cap_w if declared_w is None else declared_w

    def _gate(self, config: Config) -> str | None:
        hardware = config.hardware if self._device_present else None
        return None if hardware is None or hardware.gate == "absolute" else hardware.gate

    @staticmethod
    def files(profile: Profile) -> tuple[tuple[int, int] | None, ...]:
        """Size and time of a model's files as they are now, None for one that is not there.

        Of a fingerprint's parts these are what can change while a daemon runs; asked for
        every request, so no file is read.
        """
        return tuple(size_and_time(path) for path in (profile.model, profile.drafter.model) if path)

    def _endpoint(self) -> Endpoint:
        key = self._new_token()
        if self._binary.unix_socket:
            # Clients are told the name of the socket; it must say nothing about the key.
            path = self._sockets / f"{self._new_token()[:12]}.sock"
            if len(str(path).encode()) <= _SOCKET_PATH_LIMIT:
                return UnixEndpoint(str(path), api_key=key)
        return TcpEndpoint("127.0.0.1", self._free_port(), api_key=key)

    def _identity(self, path: str, profile: str) -> FileIdentity:
        model = hub.parse(path)
        if model is not None:
            msg = f"the model file of {profile}, {path}, {model.missing}"
            raise NoModelFileError(msg, failure=FailureClass.CONFIG)
        file = Path(path)
        try:
            found = file.stat()
        except OSError as error:
            msg = f"the model file of {profile} cannot be read: {path}: {error.strerror}"
            raise NoModelFileError(
                msg,
                failure=FailureClass.CONFIG,
                hint="correct `model` in its profile, or put the file there",
            ) from error
        key = (path, found.st_size, found.st_mtime_ns)
        if key not in self._headers:
            self._headers[key] = self._header(file, profile)
        return identify(file, header=self._headers[key])

    @staticmethod
    def _header(file: Path, profile: str) -> str:
        try:
            header = gguf.read_header(file)
        except gguf.GgufError as error:
            msg = f"the model file of {profile} is damaged: {error}"
            raise EngineError(
                msg, failure=FailureClass.CONFIG, hint="download or copy the file again"
            ) from error
        if not header.data_complete:
            msg = f"the model file of {profile} is cut short: {file} ends before its last tensor"
            raise EngineError(
                msg, failure=FailureClass.CONFIG, hint="download or copy the file again"
            )
        return header.digest


def size_and_time(path: str) -> tuple[int, int] | None:
    """Bytes and time of the last change (ns) of a file as it is now; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
