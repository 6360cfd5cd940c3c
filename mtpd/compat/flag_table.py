"""Every flag of llama-server build b11434: spellings, whether a value follows, what it is for.

The build's own ``--help``, as stored in tests/corpus; a test compares the two. Says
nothing of what mtpd makes of a flag (``mtpd.compat.settings``) and nothing of what a
given binary takes (``mtpd.engine.flags``): a file is translated without any binary.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BY_ENV", "BY_KEY", "BY_NAME", "Flag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option of llama-server.

    Attributes:
        key: Its last spelling without dashes, e.g. ``ctx-size``.
        names: Spellings that give the value, or that turn a switch on.
        off: Spellings that turn a switch off.
        values: How many words follow; 0 for a switch.
        env: Environment variable with the same effect, or None.
        purpose: What kind of flag it is, one of the headings below.
    """

    key: str
    names: tuple[str, ...]
    off: tuple[str, ...]
    values: int
    env: str | None
    purpose: str


# A heading in brackets is the purpose of the rows below it. A row is the spellings, those
# that turn the switch off with "!", one "=" per value, and the environment variable.
_ROWS = """\
[bounded]
-t --threads = LLAMA_ARG_THREADS
-tb --threads-batch =
--prio =
--poll =
--prio-batch =
--poll-batch =
-c --ctx-size = LLAMA_ARG_CTX_SIZE
-n --predict --n-predict = LLAMA_ARG_N_PREDICT
-b --batch-size = LLAMA_ARG_BATCH
-ub --ubatch-size = LLAMA_ARG_UBATCH
-lm --load-mode = LLAMA_ARG_LOAD_MODE
--numa = LLAMA_ARG_NUMA
--spec-draft-threads -td --threads-draft =
--spec-draft-threads-batch -tbd --threads-batch-draft =
--spec-draft-prio --prio-draft =
--spec-draft-poll --poll-draft =
--spec-draft-prio-batch --prio-batch-draft =
--spec-draft-poll-batch --poll-batch-draft =
--kv-unified-per-slot = LLAMA_ARG_KV_UNIFIED_PER_SLOT
-ctxcp --ctx-checkpoints --swa-checkpoints = LLAMA_ARG_CTX_CHECKPOINTS
-cram --cache-ram = LLAMA_ARG_CACHE_RAM
-np --parallel = LLAMA_ARG_N_PARALLEL
[typed]
-C --cpu-mask =
-Cr --cpu-range =
--cpu-strict =
-Cb --cpu-mask-batch =
-Crb --cpu-range-batch =
--cpu-strict-batch =
--keep =
--swa-full LLAMA_ARG_SWA_FULL
-fa --flash-attn = LLAMA_ARG_FLASH_ATTN
-e --escape !--no-escape
--rope-scaling = LLAMA_ARG_ROPE_SCALING_TYPE
--rope-scale = LLAMA_ARG_ROPE_SCALE
--rope-freq-base = LLAMA_ARG_ROPE_FREQ_BASE
--rope-freq-scale = LLAMA_ARG_ROPE_FREQ_SCALE
--yarn-orig-ctx = LLAMA_ARG_YARN_ORIG_CTX
--yarn-ext-factor = LLAMA_ARG_YARN_EXT_FACTOR
--yarn-attn-factor = LLAMA_ARG_YARN_ATTN_FACTOR
--yarn-beta-slow = LLAMA_ARG_YARN_BETA_SLOW
--yarn-beta-fast = LLAMA_ARG_YARN_BETA_FAST
-kvo --kv-offload !-nkvo !--no-kv-offload LLAMA_ARG_KV_OFFLOAD
--repack !-nr !--no-repack LLAMA_ARG_REPACK
--no-host LLAMA_ARG_NO_HOST
-ctk --cache-type-k = LLAMA_ARG_CACHE_TYPE_K
-ctv --cache-type-v = LLAMA_ARG_CACHE_TYPE_V
-lzm --lazy-mode = LLAMA_ARG_LAZY_MODE
-ot --override-tensor = LLAMA_ARG_OVERRIDE_TENSOR
-cmoe --cpu-moe LLAMA_ARG_CPU_MOE
-ncmoe --n-cpu-moe = LLAMA_ARG_N_CPU_MOE
-ncffn --n-cpu-ffn = LLAMA_ARG_N_CPU_FFN
-ngl --gpu-layers --n-gpu-layers = LLAMA_ARG_N_GPU_LAYERS
-sm --split-mode = LLAMA_ARG_SPLIT_MODE
-ts --tensor-split = LLAMA_ARG_TENSOR_SPLIT
-mg --main-gpu = LLAMA_ARG_MAIN_GPU
--check-tensors
--op-offload !--no-op-offload
--control-vector-layer-range ==
--spec-draft-type-k -ctkd --cache-type-k-draft = LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K
--spec-draft-type-v -ctvd --cache-type-v-draft = LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V
--samplers =
-s --seed =
--sampler-seq --sampling-seq =
--ignore-eos
--temp --temperature = LLAMA_ARG_TEMPERATURE
--top-k = LLAMA_ARG_TOP_K
--top-p = LLAMA_ARG_TOP_P
--min-p = LLAMA_ARG_MIN_P
--top-nsigma --top-n-sigma =
--xtc-probability =
--xtc-threshold =
--typical --typical-p =
--repeat-last-n =
--repeat-penalty = LLAMA_ARG_REPEAT_PENALTY
--presence-penalty = LLAMA_ARG_PRESENCE_PENALTY
--frequency-penalty = LLAMA_ARG_FREQUENCY_PENALTY
--dry-multiplier =
--dry-base =
--dry-allowed-length =
--dry-penalty-last-n =
--dry-sequence-breaker =
--adaptive-target =
--adaptive-decay =
--dynatemp-range =
--dynatemp-exp =
--mirostat =
--mirostat-lr =
--mirostat-ent =
-l --logit-bias =
--grammar =
-j --json-schema =
-bs --backend-sampling LLAMA_ARG_BACKEND_SAMPLING
--spec-draft-cpu-mask -Cd --cpu-mask-draft =
--spec-draft-cpu-range -Crd --cpu-range-draft =
--spec-draft-cpu-strict --cpu-strict-draft =
--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft =
--spec-draft-cpu-strict-batch --cpu-strict-batch-draft =
--spec-draft-override-tensor -otd --override-tensor-draft =
--spec-draft-cpu-moe -cmoed --cpu-moe-draft LLAMA_ARG_SPEC_DRAFT_CPU_MOE
--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft =
  LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE
--spec-draft-backend-sampling !--no-spec-draft-backend-sampling
  LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
--spec-draft-sampling = LLAMA_ARG_SPEC_DRAFT_SAMPLING
--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft = LLAMA_ARG_N_GPU_LAYERS_DRAFT
--spec-ngram-mod-n-min =
--spec-ngram-mod-n-max =
--spec-ngram-mod-n-match =
--spec-ngram-simple-size-n =
--spec-ngram-simple-size-m =
--spec-ngram-simple-min-hits =
--spec-ngram-map-k-size-n =
--spec-ngram-map-k-size-m =
--spec-ngram-map-k-min-hits =
--spec-ngram-map-k4v-size-n =
--spec-ngram-map-k4v-size-m =
--spec-ngram-map-k4v-min-hits =
-cms --checkpoint-min-step = LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
-kvu --kv-unified !-no-kvu !--no-kv-unified LLAMA_ARG_KV_UNIFIED
--cache-idle-slots !--no-cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS
--context-shift !--no-context-shift LLAMA_ARG_CONTEXT_SHIFT
-r --reverse-prompt =
-sp --special
--warmup !--no-warmup
--spm-infill
--pooling = LLAMA_ARG_POOLING
-cb --cont-batching !-nocb !--no-cont-batching LLAMA_ARG_CONT_BATCHING
--mmproj-auto !--no-mmproj !--no-mmproj-auto LLAMA_ARG_MMPROJ_AUTO
--mmproj-offload !--no-mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD
-mmdev --mmproj-device = MTMD_BACKEND_DEVICE
--image-min-tokens = LLAMA_ARG_IMAGE_MIN_TOKENS
--image-max-tokens = LLAMA_ARG_IMAGE_MAX_TOKENS
--mtmd-batch-max-tokens = LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
--video-fps = LLAMA_ARG_VIDEO_FPS
--video-timestamp-interval = LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL
--embd-normalize =
--embedding --embeddings LLAMA_ARG_EMBEDDINGS
--rerank --reranking LLAMA_ARG_RERANKING
--chat-template-kwargs = LLAMA_ARG_CHAT_TEMPLATE_KWARGS
--cache-prompt !--no-cache-prompt LLAMA_ARG_CACHE_PROMPT
--cache-reuse = LLAMA_ARG_CACHE_REUSE
--jinja !--no-jinja LLAMA_ARG_JINJA
--reasoning-format = LLAMA_ARG_THINK
-rea --reasoning = LLAMA_ARG_REASONING
--reasoning-effort = LLAMA_ARG_REASONING_EFFORT
--reasoning-budget = LLAMA_ARG_THINK_BUDGET
--reasoning-budget-message = LLAMA_ARG_THINK_BUDGET_MESSAGE
--reasoning-preserve !--no-reasoning-preserve LLAMA_ARG_REASONING_PRESERVE
--chat-template = LLAMA_ARG_CHAT_TEMPLATE
--skip-chat-parsing !--no-skip-chat-parsing LLAMA_ARG_SKIP_CHAT_PARSING
--prefill-assistant !--no-prefill-assistant LLAMA_ARG_PREFILL_ASSISTANT
-sps --slot-prompt-similarity =
--lora-init-without-apply
--spec-default
[tuner]
--spec-draft-n-max = LLAMA_ARG_SPEC_DRAFT_N_MAX
--spec-draft-n-min = LLAMA_ARG_SPEC_DRAFT_N_MIN
--spec-draft-p-split --draft-p-split = LLAMA_ARG_SPEC_DRAFT_P_SPLIT
--spec-draft-p-min --draft-p-min = LLAMA_ARG_SPEC_DRAFT_P_MIN
--spec-type = LLAMA_ARG_SPEC_TYPE
[path_in_root]
--lora =
--lora-scaled =
--control-vector =
--control-vector-scaled =
-m --model = LLAMA_ARG_MODEL
--grammar-file =
-jf --json-schema-file =
--spec-draft-model -md --model-draft = LLAMA_ARG_SPEC_DRAFT_MODEL
-lcs --lookup-cache-static =
-mm --mmproj = LLAMA_ARG_MMPROJ
--chat-template-file = LLAMA_ARG_CHAT_TEMPLATE_FILE
[daemon]
--perf !--no-perf LLAMA_ARG_PERF
-dev --device = LLAMA_ARG_DEVICE
-fit --fit = LLAMA_ARG_FIT
-fitt --fit-target = LLAMA_ARG_FIT_TARGET
-fitc --fit-ctx = LLAMA_ARG_FIT_CTX
--log-jsonl !--no-log-jsonl LLAMA_ARG_LOG_JSONL
--log-colors = LLAMA_ARG_LOG_COLORS
--offline LLAMA_ARG_OFFLINE
-lv --verbosity --log-verbosity = LLAMA_ARG_LOG_VERBOSITY
--log-prefix !--no-log-prefix LLAMA_ARG_LOG_PREFIX
--log-timestamps !--no-log-timestamps LLAMA_ARG_LOG_TIMESTAMPS
--spec-draft-device -devd --device-draft =
-a --alias = LLAMA_ARG_ALIAS
--tags = LLAMA_ARG_TAGS
--host = LLAMA_ARG_HOST
--port = LLAMA_ARG_PORT
--reuse-port LLAMA_ARG_REUSE_PORT
--cors-origins = LLAMA_ARG_CORS_ORIGINS
--cors-methods = LLAMA_ARG_CORS_METHODS
--cors-headers = LLAMA_ARG_CORS_HEADERS
--cors-credentials !--no-cors-credentials LLAMA_ARG_CORS_CREDENTIALS
--api-prefix = LLAMA_ARG_API_PREFIX
--ui --webui !--no-ui !--no-webui LLAMA_ARG_UI
--api-key = LLAMA_API_KEY
-to --timeout = LLAMA_ARG_TIMEOUT
--sse-ping-interval = LLAMA_ARG_SSE_PING_INTERVAL
--threads-http = LLAMA_ARG_THREADS_HTTP
--metrics LLAMA_ARG_ENDPOINT_METRICS
--slots !--no-slots LLAMA_ARG_ENDPOINT_SLOTS
[deny_removed]
-dt --defrag-thold = LLAMA_ARG_DEFRAG_THOLD
--draft --draft-n --draft-max = LLAMA_ARG_DRAFT_MAX
--draft-min --draft-n-min = LLAMA_ARG_DRAFT_MIN
--spec-ngram-size-n =
--spec-ngram-size-m =
--spec-ngram-min-hits =
[deny_net]
--rpc = LLAMA_ARG_RPC
-mu --model-url = LLAMA_ARG_MODEL_URL
-dr --docker-repo = LLAMA_ARG_DOCKER_REPO
-hf -hfr --hf-repo = LLAMA_ARG_HF_REPO
-hff --hf-file = LLAMA_ARG_HF_FILE
-hft --hf-token = HF_TOKEN
--spec-draft-hf -hfd -hfrd --hf-repo-draft = LLAMA_ARG_SPEC_DRAFT_HF_REPO
-mmu --mmproj-url = LLAMA_ARG_MMPROJ_URL
--ui-mcp-proxy --webui-mcp-proxy !--no-ui-mcp-proxy !--no-webui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY
--embd-gemma-default
--fim-qwen-1.5b-default
--fim-qwen-3b-default
--fim-qwen-7b-default
--fim-qwen-7b-spec
--fim-qwen-14b-spec
--fim-qwen-30b-default
--gpt-oss-20b-default
--gpt-oss-120b-default
--vision-gemma-4b-default
--vision-gemma-12b-default
[deny_exec]
--video-ffmpeg-dir = LLAMA_ARG_VIDEO_FFMPEG_DIR
--tools = LLAMA_ARG_TOOLS
--tools-runtime = LLAMA_ARG_TOOLS_RUNTIME
--mcp-servers-config = LLAMA_ARG_MCP_SERVERS_CONFIG
--mcp-servers-json = LLAMA_ARG_MCP_SERVERS_JSON
-ag --agent !-no-ag !--no-agent LLAMA_ARG_AGENT
[deny_read]
--path = LLAMA_ARG_STATIC_PATH
--ui-config --webui-config = LLAMA_ARG_UI_CONFIG
--ui-config-file --webui-config-file = LLAMA_ARG_UI_CONFIG_FILE
--api-key-file = LLAMA_ARG_API_KEY_FILE
--ssl-key-file = LLAMA_ARG_SSL_KEY_FILE
--ssl-cert-file = LLAMA_ARG_SSL_CERT_FILE
--media-path =
[deny_write]
--log-file = LLAMA_ARG_LOG_FILE
-lcd --lookup-cache-dynamic =
--slot-save-path =
--log-prompts-dir =
[deny_debug]
--override-kv =
--log-disable
-v --verbose --log-verbose
--spec-synth-len = LLAMA_ARG_SPEC_SYNTH_LEN
--spec-synth-rates = LLAMA_ARG_SPEC_SYNTH_RATES
--props LLAMA_ARG_ENDPOINT_PROPS
[deny_router]
--models-dir = LLAMA_ARG_MODELS_DIR
--models-preset = LLAMA_ARG_MODELS_PRESET
--models-max = LLAMA_ARG_MODELS_MAX
--models-autoload !--no-models-autoload LLAMA_ARG_MODELS_AUTOLOAD
--sleep-idle-seconds =
[deny_meta]
-h --help --usage
--version
-cl --cache-list
--completion-bash
--list-devices
"""


def _flags(rows: str) -> Iterator[Flag]:
    purpose = ""
    for row in rows.replace("\n  ", " ").splitlines():
        if row.startswith("["):
            purpose = row.strip("[]")
            continue
        words = row.split()
        names = tuple(word for word in words if word.startswith("-"))
        yield Flag(
            key=names[-1].lstrip("-"),
            names=names,
            off=tuple(word[1:] for word in words if word.startswith("!")),
            values=sum(word.count("=") for word in words),
            env=next((word for word in words if word[0].isupper()), None),
            purpose=purpose,
        )


_FLAGS = tuple(_flags(_ROWS))

BY_NAME: Mapping[str, Flag] = MappingProxyType(
    {name: flag for flag in _FLAGS for name in (*flag.names, *flag.off)}
)
"""By every spelling, dashes included."""

BY_KEY: Mapping[str, Flag] = MappingProxyType(
    {name.lstrip("-"): flag for name, flag in BY_NAME.items()}
)
"""By every spelling without its dashes, as preset files write them."""

BY_ENV: Mapping[str, Flag] = MappingProxyType(
    {flag.env: flag for flag in _FLAGS if flag.env is not None}
)
"""By environment variable."""
