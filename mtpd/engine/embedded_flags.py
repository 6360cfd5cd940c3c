"""The one table of what the embedded engine takes: flag, field of the wheel, accepted values.

Covers llama-server's own spellings for everything mtpd passes to an engine (llama.cpp
build b11434). It does not cover the rest of llama-server's flags: those are refused.
`docs/embedded_engine.md` lists the same table for people; a test compares the two.
"""

from __future__ import annotations

from mtpd.engine import embedded_values as v
from mtpd.engine.embedded_flag import Flag, Setting
from mtpd.engine.embedded_flag import switch as _switch
from mtpd.engine.embedded_flag import value as _value

__all__ = ["DEFAULTS", "FLAGS", "SECTIONS"]

_count, _at_least_one, _or_auto = v.integer(0), v.integer(1), v.integer(-1)
_KV = f"allowed values: {', '.join(v.CACHE_TYPES)} (default: f16)"

_COMMON = (
    _switch("-h --help --usage", "", "", "print usage and exit"),
    _switch("--version", "", "", "show version and build info"),
    _value(
        "-t --threads",
        "N",
        "cpuparams.n_threads",
        _or_auto,
        "number of CPU threads to use during generation (default: -1 = as many as cores)",
    ),
    _value(
        "-tb --threads-batch",
        "N",
        "cpuparams_batch.n_threads",
        _or_auto,
        "number of threads to use during batch and prompt processing (default: same as --threads)",
    ),
    _value(
        "-c --ctx-size",
        "N",
        "n_ctx",
        _count,
        "size of the prompt context (default: 0, 0 = loaded from model)",
    ),
    _value(
        "-b --batch-size", "N", "n_batch", _at_least_one, "logical maximum batch (default: 2048)"
    ),
    _value(
        "-ub --ubatch-size", "N", "n_ubatch", _at_least_one, "physical maximum batch (default: 512)"
    ),
    _value(
        "-fa --flash-attn",
        "[on|off|auto]",
        "flash_attn_type",
        v.flash_attention,
        "set Flash Attention use ('on', 'off', or 'auto', default: 'auto')",
    ),
    _switch("--embedding --embeddings", "", "embedding", "only support embedding use case"),
    _value("--pooling", "[none|mean|cls|last|rank]", "pooling_type", v.pooling, "pooling type"),
    _value(
        "-ctk --cache-type-k",
        "TYPE",
        "cache_type_k",
        v.cache_type,
        f"KV cache data type for K; {_KV}",
    ),
    _value(
        "-ctv --cache-type-v",
        "TYPE",
        "cache_type_v",
        v.cache_type,
        f"KV cache data type for V; {_KV}",
    ),
    _value(
        "-dev --device",
        "none",
        "",
        v.device,
        "devices to use for offloading: this build has none, so only 'none' is taken",
    ),
    _value(
        "-ngl --gpu-layers --n-gpu-layers",
        "N",
        "n_gpu_layers",
        v.layers,
        "layers to store in VRAM, a number, 'auto' or 'all': no effect without a device",
    ),
    _value(
        "-fit --fit",
        "[on|off]",
        "fit_params",
        v.switch,
        "whether to adjust unset arguments to fit in memory (default: 'on')",
    ),
    _value(
        "-fitt --fit-target",
        "MiB0,MiB1,...",
        "fit_params_target",
        v.fit_margins,
        "margin per device for --fit in MiB, a single value holds for all (default: 1024)",
    ),
    _value(
        "-fitc --fit-ctx",
        "N",
        "fit_params_min_ctx",
        _at_least_one,
        "minimum ctx size that --fit can set (default: 4096)",
    ),
    _value("-m --model", "FNAME", "model.path", v.text, "model path to load"),
    _switch("--offline", "", "offline", "prevents network access"),
    _value(
        "-lv --verbosity --log-verbosity",
        "N",
        "verbosity",
        _count,
        "verbosity threshold: 0 output, 1 error, 2 warning, 3 info, 4 trace, 5 debug (default: 3)",
    ),
    _value(
        "--spec-draft-type-k -ctkd --cache-type-k-draft",
        "TYPE",
        "speculative.draft.cache_type_k",
        v.cache_type,
        f"KV cache data type for K for the draft model; {_KV}",
    ),
    _value(
        "--spec-draft-type-v -ctvd --cache-type-v-draft",
        "TYPE",
        "speculative.draft.cache_type_v",
        v.cache_type,
        f"KV cache data type for V for the draft model; {_KV}",
    ),
)

_SAMPLING = (
    _value(
        "-s --seed",
        "SEED",
        "sampling.seed",
        v.seed,
        "RNG seed (default: -1, use random seed for -1)",
    ),
)

_SPECULATIVE = (
    _value(
        "--spec-draft-n-max",
        "N",
        "speculative.draft.n_max",
        v.depth,
        "number of tokens to draft, at least 1 (default: 3)",
    ),
    _value(
        "--spec-draft-n-min",
        "N",
        "speculative.draft.n_min",
        _count,
        "minimum number of draft tokens to use (default: 0)",
    ),
    _value(
        "--spec-synth-rates",
        "P0,P1,...",
        "speculative.synth_rates",
        v.rates,
        "unconditional acceptance probability of each draft position, exactly as many as "
        "--spec-draft-n-max, never rising (benchmarking only: the text is invalid)",
    ),
    _value(
        "--spec-draft-p-min --draft-p-min",
        "P",
        "speculative.draft.p_min",
        v.fraction,
        "minimum probability of a drafted token (default: 0.00)",
    ),
    _value(
        "--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft",
        "N",
        "speculative.draft.n_gpu_layers",
        v.layers,
        "draft model layers to store in VRAM: no effect without a device",
    ),
    _value(
        "--spec-draft-model -md --model-draft",
        "FNAME",
        "speculative.draft.mparams.path",
        v.text,
        "draft model, or a file that holds a draft head (default: unused)",
    ),
    _value(
        "--spec-ngram-simple-size-n",
        "N",
        "speculative.ngram_simple.size_n",
        v.integer(1),
        "ngram-simple: tokens that must have come before; no draft is shorter (default: 12)",
    ),
    _value(
        "--spec-ngram-simple-size-m",
        "N",
        "speculative.ngram_simple.size_m",
        v.integer(1),
        "ngram-simple: length of the draft (default: 48)",
    ),
    _value(
        "--spec-ngram-map-k-size-m",
        "N",
        "speculative.ngram_map_k.size_m",
        v.integer(1),
        "ngram-map-k: length of the draft (default: 48)",
    ),
    _value(
        "--spec-ngram-map-k4v-size-m",
        "N",
        "speculative.ngram_map_k4v.size_m",
        v.integer(1),
        "ngram-map-k4v: length of the draft (default: 48)",
    ),
    _value(
        "--spec-ngram-mod-n-max",
        "N",
        "speculative.ngram_mod.n_max",
        v.integer(1),
        "ngram-mod: longest draft (default: 64)",
    ),
    _value(
        "--spec-ngram-mod-n-min",
        "N",
        "speculative.ngram_mod.n_min",
        _count,
        "ngram-mod: shortest draft (default: 48)",
    ),
    _value(
        "--spec-type",
        ",".join(v.SPEC_TYPES),
        "speculative.types",
        v.spec_types,
        "comma-separated list of types of speculative decoding to use (default: none)",
    ),
)

_EXAMPLE = (
    _value(
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "N",
        "n_ctx_checkpoints",
        _count,
        "max number of context checkpoints to create per slot (default: 32)",
    ),
    _value(
        "-cms --checkpoint-min-step",
        "N",
        "checkpoint_min_step",
        _count,
        "minimum spacing between context checkpoints in tokens (default: 8192, 0 = no minimum)",
    ),
    _value(
        "-cram --cache-ram",
        "N",
        "cache_ram_mib",
        _or_auto,
        "maximum prompt cache size in MiB (default: 8192, -1 = no limit, 0 = disable)",
    ),
    _switch(
        "-kvu --kv-unified",
        "-no-kvu --no-kv-unified",
        "kv_unified",
        "use single unified KV buffer shared across all sequences",
    ),
    _switch(
        "--context-shift",
        "--no-context-shift",
        "ctx_shift",
        "whether to use context shift on infinite text generation (default: disabled)",
    ),
    _switch(
        "--warmup",
        "--no-warmup",
        "warmup",
        "whether to perform warmup with an empty run (default: enabled)",
    ),
    _value(
        "-np --parallel",
        "N",
        "n_parallel",
        _or_auto,
        "number of server slots (default: -1, -1 = auto)",
    ),
    _switch(
        "-cb --cont-batching",
        "-nocb --no-cont-batching",
        "cont_batching",
        "whether to enable continuous batching (default: enabled)",
    ),
    _value(
        "-a --alias",
        "STRING",
        "model_alias",
        v.names,
        "model name aliases, comma-separated (to be used by API)",
    ),
    _value(
        "--host",
        "HOST",
        "hostnames",
        v.names,
        "addresses to listen on, comma-separated, or a UNIX socket path ending in .sock "
        "(default: 127.0.0.1)",
    ),
    _value(
        "--port",
        "PORT",
        "port",
        v.integer(0, 65535),
        "port to listen, 0 = a free one (default: 8080)",
    ),
    _switch(
        "--ui --webui",
        "--no-ui --no-webui",
        "ui",
        "whether to enable the Web UI (default: enabled)",
    ),
    _value(
        "--api-key",
        "KEY",
        "api_keys",
        v.names,
        "API keys to use for authentication, comma-separated (default: none)",
        env="LLAMA_API_KEY",
    ),
    _value(
        "-to --timeout",
        "N",
        "timeout_read timeout_write",
        _count,
        "server read/write timeout in seconds (default: 3600)",
    ),
    _value(
        "--sse-ping-interval",
        "N",
        "sse_ping_interval",
        _or_auto,
        "server SSE ping interval in seconds (-1 = disabled, default: 30)",
    ),
    _value(
        "--threads-http",
        "N",
        "n_threads_http",
        _or_auto,
        "number of threads used to process HTTP requests (default: -1)",
    ),
    _switch(
        "--cache-prompt",
        "--no-cache-prompt",
        "cache_prompt",
        "whether to enable prompt caching (default: enabled)",
    ),
    _switch(
        "--metrics",
        "",
        "endpoint_metrics",
        "enable prometheus compatible metrics endpoint (default: disabled)",
    ),
    _switch(
        "--slots",
        "--no-slots",
        "endpoint_slots",
        "expose slots monitoring endpoint (default: enabled)",
    ),
    _value("--slot-save-path", "PATH", "slot_save_path", v.text, "path to save slot kv cache"),
    _switch(
        "--jinja",
        "--no-jinja",
        "use_jinja",
        "whether to use jinja template engine for chat (default: enabled)",
    ),
)

SECTIONS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("common params", _COMMON),
    ("sampling params", _SAMPLING),
    ("speculative params", _SPECULATIVE),
    ("example-specific params", _EXAMPLE),
)
"""The table in the order and under the headings of llama-server's help."""

FLAGS: tuple[Flag, ...] = tuple(flag for _, flags in SECTIONS for flag in flags)

DEFAULTS: tuple[Setting, ...] = (Setting("port", 8080), Setting("n_parallel", -1))
"""Where the wheel's defaults differ from llama-server's."""
