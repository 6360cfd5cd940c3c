"""Lines of every kind and era with the facts they must read as."""

from __future__ import annotations

from mtpd.engine import facts as f

# One line per kind, from the recorded logs or (older builds) from the sources' formats.
ERAS: list[tuple[str, f.Fact | None]] = [
    (
        "cmn  common_param: common_params_print_info: verbosity = 2147483647 (adjust with …)",
        f.Verbosity(level=2147483647),
    ),
    (
        (
            "cmn  common_param:   - Vulkan0 : llvmpipe (LLVM 15.0.6, 256 bits) (2048 MiB,"
            " 2047 MiB free)"
        ),
        f.DeviceListed(
            name="Vulkan0",
            description="llvmpipe (LLVM 15.0.6, 256 bits)",
            total_mib=2048,
            free_mib=2047,
        ),
    ),
    (
        (
            "llama_prepare_model_devices: using device Vulkan0 (NVIDIA H200) (0000:00:06.0)"
            " - 15799 MiB free"
        ),
        f.UsingDevice(
            name="Vulkan0", description="NVIDIA H200", free_mib=15799, bus_id="0000:00:06.0"
        ),
    ),
    (
        (
            "llama_prepare_model_devices: using device Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits))"
            " (unknown id) - 2048 MiB free"
        ),
        f.UsingDevice(
            name="Vulkan0", description="llvmpipe (LLVM 15.0.6, 256 bits)", free_mib=2048
        ),
    ),
    (
        "ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected",
        f.GpuInitFailed(what="ROCm: no ROCm-capable device is detected"),
    ),
    ("ggml_vulkan: No devices found.", f.GpuInitFailed(what="Vulkan: No devices found.")),
    (
        "ggml_vulkan: Invalid device index in GGML_VK_VISIBLE_DEVICES.",
        f.GpuInitFailed(what="Vulkan: Invalid device index in GGML_VK_VISIBLE_DEVICES."),
    ),
    (
        "srv    load_model: loading model '/srv/a b.gguf'",
        f.ModelLoading(path="/srv/a b.gguf"),
    ),
    ("srv    load_model: loading draft model '/srv/d.gguf'", None),
    (
        "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)",
        f.WeightsLoading(),
    ),
    ("load_tensors: offloaded 59/66 layers to GPU", f.LayersOffloaded(count=59, total=66)),
    ("load_tensors: offloading 8 repeating layers to GPU", None),
    ("load_tensors: offloading output layer to GPU", None),
    (
        "load_tensors: RPC0[127.0.0.1:50052] model buffer size =     5.68 MiB",
        f.Buffer(context="load_tensors", device="RPC0", kind="model", mib=5.68),
    ),
    (
        "llama_kv_cache:        CPU KV buffer size =     8.50 MiB",
        f.Buffer(context="llama_kv_cache", device="CPU", kind="KV", mib=8.5),
    ),
    (
        "llama_context: Vulkan_Host  output buffer size =     0.01 MiB",
        f.Buffer(context="llama_context", device="Vulkan_Host", kind="output", mib=0.01),
    ),
    (
        "llama_adapter_lora_init_impl:      CUDA0 LoRA buffer size =    12.00 MiB",
        f.Buffer(context="llama_adapter_lora_init_impl", device="CUDA0", kind="LoRA", mib=12.0),
    ),
    ("~llama_context:  CPU compute buffer size is   2.5176 MiB, matches expectation of …", None),
    (
        (
            "llama_memory_recurrent: size =    0.67 MiB (     2 cells,   8 layers, "
            " 2 seqs  2 rs_seq),"
            " R (f32):    0.11 MiB, S (f32):    0.56 MiB"
        ),
        f.RecurrentState(mib=0.67, cells=2, layers=8, sequences=2, rollback_rows=2),
    ),
    (
        (
            "llama_memory_recurrent: size =    0.67 MiB (     2 cells,   8 layers,  2 seqs),"
            " R (f32):    0.11 MiB, S (f32):    0.56 MiB"
        ),
        f.RecurrentState(mib=0.67, cells=2, layers=8, sequences=2, rollback_rows=None),
    ),
    ("llama_context: n_rs_seq              = 2", f.RsSeq(rows=2)),
    (
        "common_speculative_init_result: creating MTP draft context against the target model 'x'",
        f.MtpContext(),
    ),
    (
        "spec common_specu: adding speculative implementation 'draft-mtp'",
        f.SpecImplementation(kind="draft-mtp"),
    ),
    (
        "spec common_specu: - n_max=2, n_min=0, p_min=0.90, n_embd=128, backend_sampling=1",
        f.SpecParameters(n_max=2, n_min=0, p_min=0.9),
    ),
    (
        "cmn  common_conte: the context does not support partial sequence removal",
        f.NoRollback(),
    ),
    ("cmn  common_conte: the context supports bounded partial sequence removal", None),
    (
        # b10434
        (
            "resolve_fused_ops: layer 0 is assigned to device CPU but fused Gated"
            " Delta Net (chunked)"
            " is assigned to device Vulkan0 (usually due to missing support)"
        ),
        f.FusedOpMismatch(
            layer=0,
            layer_device="CPU",
            op="fused Gated Delta Net (chunked)",
            op_device="Vulkan0",
        ),
    ),
    (
        # b9246
        (
            "sched_reserve: layer 3 is assigned to device CPU but the fused Gated Delta Net tensor"
            " is assigned to device CUDA0 (usually due to missing support)"
        ),
        f.FusedOpMismatch(
            layer=3, layer_device="CPU", op="fused Gated Delta Net", op_device="CUDA0"
        ),
    ),
    (
        "resolve_fused_ops: fused Gated Delta Net (chunked) not supported, set to disabled",
        f.FusedOpDisabled(op="fused Gated Delta Net (chunked)"),
    ),
    (
        "srv    load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'false'",
        f.SlotsReady(slots=2, context_per_slot=2048),
    ),
    ("srv  llama_server: model loaded", f.ModelLoaded()),
    ("srv          init: model loaded", f.ModelLoaded()),
    ("main: model loaded", f.ModelLoaded()),
    (
        "srv  llama_server: listening on unix:///srv/models/x.sock",
        f.Listening(url="unix:///srv/models/x.sock"),
    ),
    (
        # b9094
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        f.Listening(url="http://127.0.0.1:8080"),
    ),
    (
        (
            "common_params_fit_impl: projected to use 15140 MiB of device memory vs."
            " 16368 MiB of free"
            " device memory"
        ),
        f.FitProjected(used_mib=15140, free_mib=16368, where="device"),
    ),
    (
        (
            "common_params_fit_impl: will leave 1227 >= 1024 MiB of free device memory,"
            " no changes needed"
        ),
        f.FitOk(left_mib=1227, target_mib=1024),
    ),
    (
        (
            "common_params_fit_impl: cannot meet free memory target of 1024 MiB,"
            " need to reduce device"
            " memory by 95 MiB"
        ),
        f.FitShort(target_mib=1024, by_mib=95),
    ),
    (
        "common_params_fit_impl: context size reduced from 262144 to 60160 -> need 197 MiB less",
        f.FitContextReduced(before=262144, after=60160),
    ),
    (
        "common_params_fit_impl: id=0, n_layer=66, n_part= 0, overflow_type=4, mem= 15439 MiB",
        f.FitTrial(device_index=0, layers=66, mib=15439),
    ),
    (
        (
            "common_params_fit_impl:   - RPC0 (127.0.0.1:50052): 65 layers,  15209 MiB used,"
            "   1158 MiB free"
        ),
        f.FitLayers(device="RPC0", layers=65, overflowing=0, used_mib=15209, free_mib=1158),
    ),
    (
        (
            "common_params_fit_impl:   - CUDA0 (X): 49 layers ( 3 overflowing),  15209 MiB used,"
            "   -12 MiB free"
        ),
        f.FitLayers(device="CUDA0", layers=49, overflowing=3, used_mib=15209, free_mib=-12),
    ),
    (
        (
            "common_fit_params: failed to fit params to free device memory:"
            " n_gpu_layers already set"
            " by user to 99, abort"
        ),
        f.FitFailed(why="n_gpu_layers already set by user to 99, abort"),
    ),
    (
        (
            "common_memory_breakdown_print: |   - Vulkan0 (H200)     | 143771 ="
            " 15791 + (14157 = 14007"
            " +      16 +     134) +      113821 |"
        ),
        f.Breakdown(
            device="Vulkan0",
            total_mib=143771,
            free_mib=15791,
            self_mib=14157,
            model_mib=14007,
            context_mib=16,
            compute_mib=134,
        ),
    ),
    (
        (
            "common_memory_breakdown_print: |   - Host               |              "
            "       704 =   682"
            " +       0 +      22                |"
        ),
        f.Breakdown(
            device="Host",
            total_mib=None,
            free_mib=None,
            self_mib=704,
            model_mib=682,
            context_mib=0,
            compute_mib=22,
        ),
    ),
    (
        (
            "slot print_timing: id  1 | task 0 | prompt eval time =      16.92 ms /    11 tokens"
            " (    1.54 ms per token,   649.96 tokens per second)"
        ),
        f.EvalTime(slot=1, task=0, phase=f.Phase.PROMPT, ms=16.92, tokens=11),
    ),
    (
        (
            "slot print_timing: id  1 | task 0 |        eval time =     185.87 ms /    48 tokens"
            " (    3.95 ms per token,   252.87 tokens per second)"
        ),
        f.EvalTime(slot=1, task=0, phase=f.Phase.DECODE, ms=185.87, tokens=48),
    ),
    (
        # b9094 prints one message of several lines
        "       eval time =     185.87 ms /    48 tokens (    3.95 ms per token)",
        f.EvalTime(slot=None, task=None, phase=f.Phase.DECODE, ms=185.87, tokens=48),
    ),
    ("llama_perf_context_print:        eval time =       0.00 ms /     1 runs", None),
    ("slot print_timing: id  1 | task 0 |       total time =     202.79 ms /    59 tokens", None),
    (
        # b9870 to b11434
        (
            "slot print_timing: id  1 | task 7 | draft acceptance = 0.06098 (    5 accepted /"
            "    82 generated), mean len =  1.12"
        ),
        f.DraftAcceptance(slot=1, task=7, rate=0.06098, accepted=5, drafted=82, mean_len=1.12),
    ),
    (
        # b9702
        (
            "slot print_timing: id  0 | task 3 | draft acceptance = 0.81500 (  163 accepted /"
            "   200 generated), mean acceptance length =  2.63, acceptance rate per position ="
            " (0.900, 0.730)"
        ),
        f.DraftAcceptance(
            slot=0,
            task=3,
            rate=0.815,
            accepted=163,
            drafted=200,
            mean_len=2.63,
            per_position=(0.9, 0.73),
        ),
    ),
    (
        # b9246
        (
            "slot print_timing: id  0 | task 3 | draft acceptance = 0.81500 (  163 accepted /"
            "   200 generated)"
        ),
        f.DraftAcceptance(slot=0, task=3, rate=0.815, accepted=163, drafted=200),
    ),
    (
        # b9094
        "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)",
        f.DraftAcceptance(slot=None, task=None, rate=0.57576, accepted=171, drafted=297),
    ),
    (
        # the wheel's engine with LLAMA_TRACE=1
        "0.05.466.440 I slot   operator(): id  0 | task 7 | accepted  2/ 3 draft tokens",
        f.DraftVerified(slot=0, task=7, accepted=2, drafted=3, restored=False),
    ),
    (
        # tools/server/server-context.cpp, an architecture without rollback
        "slot update_slots: id  0 | task 7 | accepted 12/16 draft tokens (restore checkpoint)",
        f.DraftVerified(slot=0, task=7, accepted=12, drafted=16, restored=True),
    ),
    (
        (
            "0.00.292.471 I slot      release: id  0 | task 1 | stop processing: n_tokens = 153,"
            " truncated = 0"
        ),
        f.SlotReleased(slot=0, task=1, tokens=153),
    ),
    (
        "slot print_timing: id  1 | task 0 |      acc per pos = (0.122, 0.000)",
        f.AcceptancePerPosition(slot=1, task=0, rates=(0.122, 0.0)),
    ),
    (
        "slot print_timing: id  1 | task 0 |      acc per pos = ()",
        f.AcceptancePerPosition(slot=1, task=0, rates=()),
    ),
    (
        (
            "spec common_specu: statistics        draft-mtp: #calls(b,g,a) =    1     41     40,"
            " #gen drafts =     41, #acc drafts =     5, #gen tokens =     82, #acc tokens =     6,"
            " #mean acc len = 1.12, #acc rate/pos = (0.122), dur(b,g,a) = 0.004, 64.301, 0.012 ms"
        ),
        f.SpecStatistics(
            kind="draft-mtp",
            calls=(1, 41, 40),
            drafts=41,
            drafts_accepted=5,
            drafted=82,
            accepted=6,
            mean_len=1.12,
            rates=(0.122,),
            ms=(0.004, 64.301, 0.012),
        ),
    ),
    (
        # b9094
        (
            "statistics ngram-simple: #calls(b,g,a) =    1     41     40, #gen drafts =     41,"
            " #acc drafts =     5, #gen tokens =     82, #acc tokens =     6"
        ),
        f.SpecStatistics(
            kind="ngram-simple",
            calls=(1, 41, 40),
            drafts=41,
            drafts_accepted=5,
            drafted=82,
            accepted=6,
        ),
    ),
    (
        "slot print_timing: id  0 | task 96 | n_gen =    100, tg =  23.24 t/s, tg_3s =  23.47 t/s",
        f.Progress(slot=0, task=96, tokens=100, tps=23.24, tps_3s=23.47),
    ),
    ("srv          stop: cancel task, id_task = 12", f.TaskCancelled(task=12)),
    (
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0:"
            " cudaMalloc failed: out of memory"
        ),
        f.OutOfMemory(device="device 0", amount="512.00 MiB"),
    ),
    (
        "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 6067648",
        f.OutOfMemory(device="Vulkan0", amount="6067648 bytes"),
    ),
    ("ROCm error: out of memory", f.OutOfMemory(device="device")),
    ("ROCm error: unspecified launch failure", f.GpuError(what="unspecified launch failure")),
    (
        "HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang",
        f.GpuHang(what="HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang"),
    ),
    (
        "srv update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost",
        f.DeviceLost(what="ErrorDeviceLost"),
    ),
    (
        "llama_model_load: error loading model: unknown model architecture: 'foo'",
        f.LoadFailed(why="unknown model architecture: 'foo'"),
    ),
    (
        "llama-server: error while loading shared libraries: libvulkan.so.1: cannot open",
        f.LibraryMissing(name="libvulkan.so.1"),
    ),
    (
        "error: the embedded engine needs the xllamacpp wheel, which is not installed",
        f.LibraryMissing(name="xllamacpp"),
    ),
    ("Received second interrupt, terminating immediately.", f.SecondInterrupt()),
    ("", None),
    ("main: something else entirely", None),
]
