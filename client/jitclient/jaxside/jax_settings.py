"""The settings of JAX, and the treatment of each for calls on a daemon. Each setting is in one of these tables."""

from typing import Any

CARRIED: dict[str, Any] = {
    "eager_constant_folding": False,
    "jax_enable_x64": False,
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_device": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_allow_f16_reductions": True,
    "jax_auto_pcast": True,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_debug_nans": False,
    "jax_enable_custom_prng": False,
    "jax_legacy_prng_key": "allow",
    "jax_remove_size_one_mesh_axis_from_type": False,
    "jax_softmax_custom_jvp": False,
}
"""Settings that are sent with each call. The values are JAX's defaults."""

REFUSED: dict[str, Any] = {
    "check_vma": False,
    "jax_accurate_erf_inv": False,
    "jax_check_static_indices": False,
    "jax_custom_jvp3": False,
    "jax_custom_vjp3": False,
    "jax_embedded_constants_max_bytes": 32,
    "jax_enable_pgle": False,
    "jax_error_checking_behavior_divide": "ignore",
    "jax_error_checking_behavior_nan": "ignore",
    "jax_error_checking_behavior_oob": "ignore",
    "jax_explicit_x64_dtypes": 1,
    "jax_high_dynamic_range_gumbel": False,
    "jax_mutable_array_checks": True,
    "jax_no_execution": False,
    "jax_pallas_enable_debug_checks": False,
    "jax_pallas_use_mosaic_gpu": True,
    "jax_ragged_dot_use_gpu_pallas_triton_lowering": False,
    "jax_raise_on_ppermute_sort_diff": True,
    "jax_random_seed_offset": 0,
    "jax_remat_barrier_no_cotangents": False,
    "jax_remat3": False,
    "jax_scan3": False,
    "jax_threefry_gpu_kernel_lowering": False,
    "jax_use_direct_linearize": True,
    "jax_use_emit_pipeline_primitive": False,
    "jax_use_shardy_partitioner": True,
    "jax_use_simplified_jaxpr_constants": False,
    "jax_xla_profile_version": 0,
}
"""Settings that change the effect of a call but hold for a whole process.

A call under a setting that differs from the default given here runs in the client.
"""

REFUSED_WHEN_COMPILING: dict[str, Any] = {
    "jax_bcoo_cusparse_lowering": False,
    "jax_check_tracer_leaks": False,
    "jax_compiler_enable_remat_pass": True,
    "jax_disable_bwd_checks": False,
    "jax_disable_most_optimizations": False,
    "jax_disable_vmap_shmap_error": False,
    "jax_exec_time_optimization_effort": 0.0,
    "jax_experimental_unsafe_xla_runtime_errors": False,
    "jax_memory_fitting_effort": 0.0,
    "jax_memory_fitting_level": "O2",
    "jax_mosaic_allow_hlo": False,
    "jax_mosaic_unzip_debug_locations": True,
    "jax_optimization_level": "UNKNOWN",
    "jax_pallas_auto_assign_collective_ids": "no",
    "jax_pallas_auto_assign_collective_ids_limit": 25,
    "jax_pallas_poison_buffers": False,
    "jax_ragged_dot_use_ragged_dot_instruction": True,
    "jax_refs_to_pins": False,
    "jax_use_hlo_logistic_lowering": None,
    "jax_use_magma": "auto",
    "jax_use_rgv3": True,
}
"""Settings that hold for a whole process, like `REFUSED`, but affect compilation only.

A call that finds its program ignores them.
"""

NOT_COMPARED = ("jax_default_prng_impl", "jax_enable_custom_prng", "jax_legacy_prng_key")
"""Settings that JAX's own C++ code of calls neither compares nor heeds."""

OUTSIDE_OF_TRACE_CONTEXT = (
    "jax_debug_infs",
    "jax_debug_nans",
    *NOT_COMPARED,
    "jax_transfer_guard_host_to_device",
)
"""Settings that are not part of JAX's trace context, of `CARRIED` and of what each call does."""

CLIENT_ONLY = ("jax_disable_jit", "jax_log_compiles", "jax_no_tracing", "jax_transfer_guard_host_to_device")
"""Settings that apply in the client: whether calls use the daemon, may need a new program, or are logged."""

OF_DEVICES = (
    "jax_backend_target",
    "jax_check_proxy_envs",
    "jax_cpu_collectives_implementation",
    "jax_cpu_enable_async_dispatch",
    "jax_cpu_get_global_topology_timeout_minutes",
    "jax_cpu_get_local_topology_timeout_minutes",
    "jax_cross_host_transfer_socket_address",
    "jax_cross_host_transfer_timeout_seconds",
    "jax_cross_host_transfer_transfer_size",
    "jax_cross_host_transport_addresses",
    "jax_cuda_visible_devices",
    "jax_distributed_debug",
    "jax_distributed_verify_secure_credentials",
    "jax_enable_preemption_service",
    "jax_enable_recoverability",
    "jax_force_dcn_cross_host_transfers",
    "jax_mock_gpu_topology",
    "jax_mtls_ca_file",
    "jax_mtls_cert_file",
    "jax_mtls_key_file",
    "jax_mtls_peer_uri_prefix",
    "jax_num_cpu_devices",
    "jax_oneapi_visible_devices",
    "jax_pjrt_client_create_options",
    "jax_platform_name",
    "jax_platforms",
    "jax_rocm_visible_devices",
    "jax_sort_devices_by_process_index",
    "jax_xla_backend",
    "mock_num_gpu_processes",
)
"""Settings that configure the backend of a process. The daemon has its own, which are part of its address."""

IRRELEVANT = (
    "jax2tf_associative_scan_reductions",
    "jax2tf_default_native_serialization",
    "jax_array_garbage_collection_guard",
    "jax_captured_constants_report_frames",
    "jax_captured_constants_warn_bytes",
    "jax_compilation_cache_check_contents",
    "jax_compilation_cache_dir",
    "jax_compilation_cache_expect_pgle",
    "jax_compilation_cache_include_metadata_in_key",
    "jax_compilation_cache_max_size",
    "jax_compiler_detailed_logging_min_ops",
    "jax_debug_leaked_clients_on_clear_backends",
    "jax_debug_log_modules",
    "jax_disallow_mesh_context_manager",
    "jax_dump_ir_modes",
    "jax_dump_ir_to",
    "jax_enable_checks",
    "jax_enable_compilation_cache",
    "jax_explain_cache_misses",
    "jax_export_calling_convention_version",
    "jax_export_deserialize_expired_versions",
    "jax_export_ignore_forward_compatibility",
    "jax_hlo_source_file_canonicalization_regex",
    "jax_include_debug_info_in_dumps",
    "jax_include_full_tracebacks_in_locations",
    "jax_log_checkpoint_residuals",
    "jax_logging_level",
    "jax_pallas_verbose_errors",
    "jax_persistent_cache_enable_xla_caches",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
    "jax_pgle_aggregation_percentile",
    "jax_pgle_profiling_runs",
    "jax_pprint_use_color",
    "jax_raise_persistent_cache_errors",
    "jax_remove_custom_partitioning_ptr_from_cache_key",
    "jax_send_traceback_to_runtime",
    "jax_serialization_version",
    "jax_share_binary_between_hosts",
    "jax_share_binary_between_hosts_timeout_ms",
    "jax_source_url_schema",
    "jax_thread_guard",
    "jax_traceback_filtering",
    "jax_traceback_in_locations_limit",
    "jax_tracer_error_num_traceback_frames",
    "jax_transfer_guard",
    "jax_transfer_guard_device_to_device",
    "jax_transfer_guard_device_to_host",
    "jax_use_cpp_shard_args",
)
"""Settings that configure caches, logs, text, guards and checks of this process's own jax.

They change no values of programs.
"""
