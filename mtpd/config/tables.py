"""Parts of the configuration that stand for themselves: cards, workloads, drafters, programs.

Parts of ``mtpd.config.model``, which offers them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.types import Drafter

__all__ = [
    "SIMPLE",
    "DrafterConfig",
    "Filters",
    "Group",
    "HardwareProfile",
    "Message",
    "Opaque",
    "Setting",
    "Workload",
    "WorkloadPrompt",
]

SIMPLE = "simple"
"""The n-gram drafter that ``kind = "ngram"`` means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterConfig:
    """What proposes tokens for a profile, and how deep it may.

    Attributes:
        kind: The drafter; NONE exactly where ``max_depth`` is 0.
        max_depth: Largest depth that may be measured or started.
        depth: Depth to use until one is measured; None means no speculation until then.
        p_min: Probability below which a draft is cut short.
        model: File of a separate head or draft model, or None.
        ngram: How a drafter of kind NGRAM looks into the text: "simple", "map-k", "map-k4v"
            or "mod".
        several_slots: "accept" where an MTP head may draft for several slots, else "refuse".
    """

    kind: Drafter = Drafter.NONE
    max_depth: int = 0
    depth: int | None = None
    p_min: float = 0.0
    model: str | None = None
    ngram: str = SIMPLE
    several_slots: str = "refuse"

    @property
    def word(self) -> str:
        """The kind as the configuration writes it, e.g. "ngram-mod"."""
        return self.kind.value if self.ngram == SIMPLE else f"{self.kind.value}-{self.ngram}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """What is known of a card under its power cap.

    Attributes:
        name: File name without suffix.
        description: One line.
        isa: Instruction set as the driver names it, e.g. "gfx906".
        vram_mib: Device memory in MiB.
        power_cap_w: Cap under which its facts were measured, in W.
        gate_edge_c: Edge temperature at or below which a measurement may start, in degrees C.
        gate: absolute (that temperature), or relative for a card without a fan of its own,
            which rests at the temperature of its surroundings.
        row_cost: c of t(k) = t0 (1 + c k), the step time over verification rows.
        row_cost_sd: Standard deviation of ``row_cost`` from card to card and build to build.
        row_cost_source: Which measured cells it was fitted to.
        drafting_note: One sentence for reports and forecasts, or None.
    """

    name: str
    description: str
    isa: str
    vram_mib: int
    power_cap_w: float | None
    gate_edge_c: float | None
    row_cost: float | None
    row_cost_source: str | None
    drafting_note: str | None
    gate: str = "absolute"
    row_cost_sd: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A program that is started in place of llama-server; ``${PORT}`` is a free port.

    Attributes:
        command: Program and arguments.
        proxy: Base URL of where it listens.
        check: Path that is answered with 200 once it serves; None if it is not asked.
        env: Variables beside those that every such program gets.
    """

    command: tuple[str, ...]
    proxy: str
    check: str | None = "/health"
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A parameter that requests for a model get.

    Attributes:
        path: Its name; more than one where it stands in a table.
        value: As JSON.
        soft: Whether only requests get it that have none.
    """

    path: tuple[str, ...]
    value: str
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What is changed in the JSON body of every request for a model, in this order.

    Attributes:
        strip: Parameters that are taken out.
        set: Parameters that are put in.
        by_name: Those of requests that ask for the model by a certain name.
    """

    strip: tuple[tuple[str, ...], ...] = ()
    set: tuple[Setting, ...] = ()
    by_name: tuple[tuple[str, tuple[Setting, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPrompt:
    """One request of a workload; chat has messages, completion has a prompt.

    Attributes:
        path: "/v1/chat/completions" or "/completion".
        messages: Turns of the chat; empty for a completion.
        prompt: Text to continue; None for a chat.
    """

    path: str
    messages: tuple[Message, ...] = ()
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A fixed prompt set.

    Attributes:
        name: short, prose, code, long-reasoning or the user's own.
        description: One line.
        max_tokens: Tokens generated per prompt.
        prompts: The requests, in order.
    """

    name: str
    description: str
    max_tokens: int
    prompts: tuple[WorkloadPrompt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Profiles whose engines go by the same rule beside others, as llama-swap has it.

    Attributes:
        name: For sentences.
        members: Profile names.
        swap: Whether one engine of the group runs at a time; else each member has a place
            of its own.
        exclusive: Whether bringing a member up unloads the engines of other groups.
        persistent: Whether its engines stay when others want their memory or their place.
    """

    name: str
    members: tuple[str, ...] = ()
    swap: bool = True
    exclusive: bool = True
    persistent: bool = False
