"""What may be written of a model: its file, how it is started, what drafts, what it is worth.

Part of ``mtpd.config.schema``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mtpd.config.schema_words import (
    Batch,
    DrafterWord,
    KvType,
    Limit,
    LoadingWord,
    OffloadWord,
    Patience,
    Table,
    Text,
    Threads,
    Ttl,
    Word,
)

__all__ = [
    "CandidateTable",
    "DrafterTable",
    "EngineTimeoutsTable",
    "FiltersTable",
    "LaunchTable",
    "ModelTable",
    "QualityTable",
]


class EngineTimeoutsTable(Table):
    """``[models.NAME.timeouts]``: what is left out follows ``[server.timeouts]``.

    Attributes:
        connect_s: As in `[server.timeouts]`, for this model. Unset: as there.
        first_byte_s: As in `[server.timeouts]`, for this model. Unset: as there.
        idle_s: As in `[server.timeouts]`, for this model. Unset: as there.
        total_s: As in `[server.timeouts]`, for this model. Unset: as there.
    """

    connect_s: Limit | None = None
    first_byte_s: Limit | None = None
    idle_s: Limit | None = None
    total_s: Limit | None = None


class QualityTable(Table):
    """``[quality]`` of a model profile.

    Attributes:
        perplexity: The perplexity that was measured.
        stderr: Its standard error. Unset: unknown.
        corpus: What it was measured on, e.g. `"wikitext-2"`.
        chunks: How many chunks of the corpus were used: the same file scores 7.76 over 16 chunks
            and 5.84 over 32 (study 000).
    """

    perplexity: float = Field(gt=0.0)
    stderr: float | None = Field(default=None, ge=0.0)
    corpus: Text
    chunks: int = Field(ge=1)


class DrafterTable(Table):
    """``[drafter]`` of a model profile.

    Attributes:
        kind: What proposes tokens: the model's own head, a head in a file of its own, a small
            model, an EAGLE-3 head, text that came before (`ngram` is llama-server's
            `ngram-simple`), or a head whose depth the engine adapts itself. A start fails with the
            type that is missing where the engine lacks it.
        max_depth: Largest depth that is ever measured or started; at least 1 with any kind but
            `none`. Depth 0, no speculation, is always a candidate.
        depth: Depth to start with until one is measured; at most `max_depth`. Unset: 0.
        p_min: Cut a draft where its probability falls below. Above 0 the counters take a cut draft
            for a miss, so the engine traces every step (`LLAMA_TRACE=1`), and the acceptance of
            each position is that of the drafts that reached it, at this `p_min` and no other.
        model: The file of `mtp-file`, `draft-model` and `eagle3`. Unset: none, as the other kinds
            have.
        several_slots: Whether a head that predicts several tokens (`mtp`, `mtp-file`, `adaptive`)
            may draft where `slots` is above 1. Builds of llama-server were seen to put text of one
            slot into another's answer then, and to accept no draft at all: `accept` it only for a
            build that does neither.
    """

    kind: DrafterWord = "none"
    max_depth: int = Field(default=0, ge=0, le=16)
    depth: int | None = Field(default=None, ge=0, le=16)
    p_min: float = Field(default=0.0, ge=0.0, lt=1.0)
    model: Text | None = None
    several_slots: Literal["refuse", "accept"] = "refuse"


class FiltersTable(Table):
    """``[models.NAME.filters]``.

    Attributes:
        strip: Parameters that are taken out of the request.
        set: Parameters that are then put in, in place of what the client sent.
        set_by_name: Then those of the name that the client asked for: the model's own or one of its
            `aliases`.
    """

    strip: list[Text] = Field(default_factory=list)
    set: dict[str, object] = Field(default_factory=dict)
    set_by_name: dict[str, dict[str, object]] = Field(default_factory=dict)


class CandidateTable(DrafterTable):
    """``[[drafters]]`` of a model profile.

    Attributes:
        name: What is put behind the model's name. Unset: its kind, with its `p_min` behind it where
            it has one, e.g. `mtp-p0.75`.
    """

    name: Text | None = None


class LaunchTable(Table):
    """How an engine is started; also ``[model_defaults]`` of a hardware profile.

    Attributes:
        context: Context over all slots; at least 256 per slot.
        slots: Requests at once. With a recurrent model each slot costs (1 + depth) state rows,
            149.6 MiB each on a 27B hybrid; fewer slots are the cheapest way to buy depth. Another
            program gets 10 requests at once where nothing is said.
        kv_type: Type of the key and value cache. Changes the text.
        draft_kv_type: Type of the key and value cache of the draft context, where the engine's own
            default is f16. Unset: as `kv_type`.
        offload: Whether the model may be served with layers outside device memory.
        fit: `auto`: the engine fits the model into the device memory less `headroom_mib` (without a
            device its fit is switched off: there is nothing to fit into); `off`: all layers go to
            the device, or `n_gpu_layers`; `engine`: the engine's own rule, which keeps 1 GiB free.
        n_gpu_layers: Layers for the device; switches the engine's fit off. The draft head's block
            counts as one. Unset: all.
        threads: Threads of the engine. Unset: `[engine] threads`.
        batch: Tokens per logical batch. Unset: the engine decides.
        ubatch: Tokens per physical batch; at most `batch`. Unset: the engine decides.
        flash_attention: Whether the engine uses flash attention. Changes the text, so results with
            another value are not compared.
        purpose: What its engine answers: text, `/v1/embeddings`, or `/v1/rerank`. Nothing of an
            engine for the last two is drafted or tuned.
        pooling: How the tokens of a text become one embedding; with `purpose = "embedding"`. A
            model that was not made for embeddings has none of its own, and `/v1/embeddings` then
            answers 400. Unset: the model's own.
        device: One device by the engine's name, e.g. `"ROCm0"`. Unset: the engine decides.
    """

    context: int = Field(default=4096, ge=256, le=16_777_216)
    slots: int = Field(default=1, ge=1, le=64)
    kv_type: KvType = "f16"
    draft_kv_type: KvType | None = None
    offload: OffloadWord = "refuse"
    fit: Literal["auto", "off", "engine"] = "auto"
    n_gpu_layers: int | None = Field(default=None, ge=0, le=10_000)
    threads: Threads | None = None
    batch: Batch | None = None
    ubatch: Batch | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    purpose: Literal["text", "embedding", "rerank"] = "text"
    pooling: Literal["none", "mean", "cls", "last"] | None = None
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] | None = None


class ModelTable(LaunchTable):
    """A model profile: ``profiles/models/NAME.toml`` and ``[models.NAME]``.

    Attributes:
        kind: What serves it: `opaque` is any other program (docs/configuration.md#other-programs).
        model: The GGUF file: a path, `"hf:OWNER/NAME[:QUANT]"` or `"bundled:FILE"`. `hf:` names one
            that `hf download` or `llama-server -hf` has downloaded, by its quantisation (else
            Q4_K_M, then Q8_0, then the only one) or as `"hf:OWNER/NAME:FILE.gguf"`; likewise the
            `model` of a drafter. It is looked for in `$HF_HUB_CACHE`, `$HF_HOME/hub` or
            `~/.cache/huggingface/hub`, and in `$LLAMA_CACHE` or `~/.cache/llama.cpp`, when the
            configuration is read. mtpd downloads nothing. `bundled:` names one that comes with
            mtpd. Unset: another program has none; else it is required.
        command: Program and arguments; required. The program is looked up on the `PATH`, or is a
            path; no shell reads any of it. `${PORT}` is a free port, another one at each start.
        proxy: URL where the program listens. Unset: `"http://127.0.0.1:${PORT}"`.
        check: Path that the program answers with 200 once it serves. With `none` it counts as ready
            once it runs.
        env: Variables beside `PATH`, `HOME`, the locale, `XDG_*`, `DOCKER_HOST` and the like, and
            the card's; nothing else of the daemon's environment reaches it. Secrets belong here,
            not into `command`, which `/running` shows.
        vram_mib: Memory that it takes beside other engines: what counts where no start of it was
            measured and its header does not tell, see docs/memory.md. Without a card it is memory
            of the machine, the model file included. Unset: unknown.
        aliases: Other names for clients to use.
        served_as: Its name in `/v1/models` and in the engine's replies, e.g. `"org/model"` (`/` and
            `@` are allowed); an alias too. Unset: the profile's name.
        concurrency_limit: So many requests for the model may be open at once, running or waiting;
            the next one gets 429 `concurrency_limit`. 0: only the queue limits them.
        title: What programs with a user interface show as its `name` in `/v1/models` and
            `/running`. Unset: nothing.
        description: Likewise its `description`. Unset: nothing.
        unlisted: Whether to leave it out of `/v1/models`; it can be asked for all the same.
        upstream_model: The model's name in requests to the engine, in JSON bodies and in forms;
            every other byte stays as the client sent it. llama-server does not need it. Unset: as
            the client sent it.
        filters: What else is changed in requests to the engine.
        ttl_s: Its engine is unloaded after so long without a request; 0 keeps it loaded. Unset:
            `[server] ttl_s`.
        ready_timeout_s: A load that takes longer has failed. Unset: as in `[engine]`.
        stop_timeout_s: How long its engine may take to end. Unset: as in `[engine]`.
        stop_command: What is run in place of the first SIGTERM, e.g. `["docker", "stop", "NAME"]`;
            `${PID}` is the process. Where it fails, or is not enough, the signals follow in their
            time. No shell reads it.
        tags: Facts that a pool or a request may require (`auto:uncensored`); without commas.
        seed: Seed for requests that name none. Unset: random.
        drafter: What drafts for it, and how deep.
        drafters: Several candidates instead of one `drafter`; see docs/configuration.md#drafters.
        quality: What somebody measured of it. Unset: unknown.
        loading_state: What a client is told while this model is not ready, as in `[server]`. Unset:
            `[server] loading_state`.
        timeouts: How long its engine may take to answer.
    """

    kind: Literal["llama-server", "opaque"] = "llama-server"
    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    command: list[Word] = Field(default_factory=list)
    proxy: Text | None = None
    check: Text = "/health"
    env: dict[str, str] = Field(default_factory=dict)
    vram_mib: int | None = Field(default=None, ge=0, le=16_777_216)
    aliases: list[Text] = Field(default_factory=list)
    served_as: Text | None = None
    concurrency_limit: int = Field(default=0, ge=0, le=100_000)
    title: Text | None = None
    description: Text | None = None
    unlisted: bool = False
    upstream_model: Text | None = None
    filters: FiltersTable = Field(default_factory=FiltersTable)
    ttl_s: Ttl | None = None
    ready_timeout_s: Patience | None = None
    stop_timeout_s: Patience | None = None
    stop_command: list[Word] = Field(default_factory=list)
    tags: list[Text] = Field(default_factory=list)
    seed: int | None = Field(default=None, ge=0, le=4_294_967_294)
    drafter: DrafterTable = Field(default_factory=DrafterTable)
    drafters: list[CandidateTable] = Field(default_factory=list)
    quality: QualityTable | None = None
    loading_state: LoadingWord | None = None
    timeouts: EngineTimeoutsTable = Field(default_factory=EngineTimeoutsTable)
