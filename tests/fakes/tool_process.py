"""Scripted llama-perplexity, llama-bench and llama-quantize: one process, real formats.

Run as ``tool_process.py NAME ARGS``; FAKE_TOOL is a JSON object of knobs: ``fail`` (a line to
end with), ``hang`` (no more after the first chunk), ``perplexity`` (by the model file's name),
``chunks`` (how many the text holds), ``spoil`` (a tensor that llama-quantize changes, too).
The texts have the form of build b11434 (tests/corpus/logs), which a test compares.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from mtpd.engine.gguf import read_header
from tests.fakes.gguf_files import quantize
from tests.fakes.perplexities import running

HELP = {
    "llama-perplexity": """----- common params -----
-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context
-b,    --batch-size N                   logical maximum batch size
-ub,   --ubatch-size N                  physical maximum batch size
-fa,   --flash-attn [on|off|auto]       set Flash Attention use
-t,    --threads N                      number of CPU threads
-ctk,  --cache-type-k TYPE              KV cache data type for K
-ctv,  --cache-type-v TYPE              KV cache data type for V
-dev,  --device <dev1,dev2,..>          devices to use
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM
-fit,  --fit [on|off]                   whether to adjust unset arguments
-fitt, --fit-target MiB                 target margin
-m,    --model FNAME                    model path
-f,    --file FNAME                     a file containing the prompt
--chunks N                              max number of chunks to process
--log-colors [on|off|auto]              set colored logging
""",
    "llama-bench": """usage: llama-bench [options]

options:
  -h, --help
  -r, --repetitions <n>                     number of times to repeat each test (default: 5)
  -o, --output <csv|json|jsonl|md|sql>      output format printed to stdout (default: md)
  --progress                                print test progress indicators

test parameters:
  -m, --model <filename>                    (default: models/7B/ggml-model-q4_0.gguf)
  -p, --n-prompt <n>                        (default: 512)
  -n, --n-gen <n>                           (default: 128)
  -b, --batch-size <n>                      (default: 2048)
  -ub, --ubatch-size <n>                    (default: 512)
  -ctk, --cache-type-k <t>                  (default: f16)
  -ctv, --cache-type-v <t>                  (default: f16)
  -t, --threads <n>                         (default: 2)
  -ngl, --n-gpu-layers <n>                  (default: 99)
  -fa, --flash-attn <0|1>                   (default: 0)
  -dev, --device <dev0/dev1/...>            (default: auto)
""",
    "llama-quantize": """usage: llama-quantize [--help] [--allow-requantize] [--output-tensor-type]
       [--tensor-type] model-f32.gguf [model-quant.gguf] type [nthreads]

  --allow-requantize: Allows requantizing tensors that have already been quantized.
  --output-tensor-type ggml_type: Use this ggml_type for the output.weight tensor
  --tensor-type TENSOR=TYPE: Quantize this tensor to this ggml_type.
""",
}


def option(args: list[str], *names: str) -> str:
    return next(args[args.index(name) + 1] for name in names if name in args)


def stamped(text: str) -> None:
    sys.stderr.write(f"0.00.232.350 I {text}\n")
    sys.stderr.flush()


def perplexity(args: list[str], knobs: dict[str, object]) -> None:
    model = Path(option(args, "--model", "-m")).name
    asked, context = int(option(args, "--chunks")), int(option(args, "--ctx-size", "-c"))
    held = knobs.get("chunks")
    chunks = min(asked, held) if isinstance(held, int) else asked
    known = knobs.get("perplexity")
    value = known.get(model, 5.7722) if isinstance(known, dict) else 5.7722
    stamped("perplexity: tokenizing the input ..")
    stamped("perplexity: tokenization took 27.606 ms")
    n_seq = f"n_ctx={context}, batch_size=2048, n_seq=4"
    stamped(f"perplexity: calculating perplexity over {chunks} chunks, {n_seq}")
    sys.stderr.write("0.01.533.071 I perplexity: 1.30 seconds per pass - ETA ")
    sys.stdout.write("0.02 minutes\n")
    values = running(value, chunks=chunks, own=0.01 if value > 5.8 else 0.0)
    for number, now in enumerate(values, start=1):
        sys.stdout.write(f"[{number}]{now:.4f},")
        sys.stdout.flush()
        if knobs.get("hang"):
            time.sleep(3600)
    sys.stdout.write("\n\n")
    sys.stderr.write(f"0.02.096.243 I Final estimate: PPL = {values[-1]:.4f} +/- {0.15:.5f}\n")


def bench(args: list[str], _knobs: dict[str, object]) -> None:
    sizes = (int(option(args, "-p", "--n-prompt")), int(option(args, "-n", "--n-gen")))
    repetitions = int(option(args, "-r", "--repetitions"))
    tests = [(sizes[0], 0), (0, sizes[1])]
    tests = [test for test in tests if any(test)]
    out = []
    for number, (prompt, generated) in enumerate(tests, start=1):
        sys.stderr.write(f"llama-bench: benchmark {number}/{len(tests)}: starting\n")
        sys.stderr.flush()
        speed = 410.5 if prompt else 32.4
        out.append(
            {
                "build_commit": "8c60b8a2b",
                "build_number": 11434,
                "backends": "CPU",
                "model_filename": option(args, "-m", "--model"),
                "n_gpu_layers": 99,
                "n_prompt": prompt,
                "n_gen": generated,
                "n_depth": 0,
                "avg_ns": 1000000,
                "stddev_ns": 1000,
                "avg_ts": speed,
                "stddev_ts": 0.12,
                "samples_ns": [1000000] * repetitions,
                "samples_ts": [speed] * repetitions,
            }
        )
    sys.stdout.write(json.dumps(out, indent=2) + "\n")


def requantize(args: list[str], knobs: dict[str, object]) -> None:
    if args[-1].isdigit():  # the number of threads
        args = args[:-1]
    count = len(read_header(Path(args[-3])).tensors)
    for number in range(1, count + 1):
        sys.stdout.write(f"[{number:4d}/{count:4d}] tensor, type = q4_0, size = 1.0 MB\n")
        sys.stdout.flush()
        if knobs.get("hang"):
            time.sleep(3600)
    spoil = knobs.get("spoil")
    quantize(args, spoil=spoil if isinstance(spoil, str) else None)


def main() -> int:
    name, args = sys.argv[1], sys.argv[2:]
    knobs = json.loads(os.environ.get("FAKE_TOOL", "{}"))
    if "--help" in args:
        sys.stdout.write(HELP[name])
        return 1 if name == "llama-quantize" else 0
    if "fail" in knobs:
        stamped("load_model: loading")
        sys.stderr.write(f"{knobs['fail']}\n")
        return 1
    tools = {"llama-perplexity": perplexity, "llama-bench": bench, "llama-quantize": requantize}
    tools[name](args, knobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
