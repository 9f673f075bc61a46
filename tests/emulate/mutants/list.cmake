# Faults built into copies of the kernels, each of which the emulator has to find under any seed.
#
#   mutant(<name> <header below src/kernels> <text> <replacement> <in the report>)
#
# The text has to be in the header exactly once, or the build fails: whoever changes that line
# decides what becomes of the fault.

# ---- Waits ------------------------------------------------------------------------------------

mutant(first_tile_not_awaited mma/key_loop.h
[[DEVICE Cursor plain_tiles(int begin, int end, Cursor at) {
    arch::barrier_wait(ring.filled(at.stage), at.parity);]]
[[DEVICE Cursor plain_tiles(int begin, int end, Cursor at) {]]
       "load_matrices at .* race at .* copy_unit_async at")

mutant(next_tile_not_awaited mma/key_loop.h
[[    if (!filled) arch::barrier_wait(chunk.filled, chunk.filled_parity);
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) value_step(]]
[[    (void)filled;
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) value_step(]]
       "load_matrices at .* race at .* copy_unit_async at")

mutant(arrives_before_its_copies mma/ring.h
       "arrive_after_copies<kConfig.aligned>(filled(stage));"
       "arch::barrier_arrive(filled(stage));"
       "load_matrices.* at .* race at .* copy_unit_async at")

mutant(refills_before_drained mma/key_loop.h
       "arch::barrier_wait(ring.drained(ring.stage), at.parity ^ static_cast<int>(at.stage < 2));"
       "(void)at;"
       "copy_unit_async at .* race at")

mutant(wrong_parity mma/key_loop.h
       "static_cast<int>(at.stage < 2)"
       "static_cast<int>(at.stage < 1)"
       "race at|deadlock")

mutant(wrong_arrival_count mma/ring.h
       "arch::barrier_init(filled(thread), T::kThreads);"
       "arch::barrier_init(filled(thread), T::kThreads + 1);"
       "deadlock\n.*barrier_wait at")

mutant(queries_not_awaited mma/forward.h
       "arch::barrier_wait(queries_loaded, 0);"
       ""
       "race at .* (load_matrices|copy_unit_async) at")

mutant(last_copies_not_awaited mma/forward.h
       "arch::wait_for_copies();"
       ""
       "race at .* copy_unit_async at|ended with copies on their way")

# ---- Meetings ---------------------------------------------------------------------------------

mutant(barriers_used_before_they_exist mma/forward.h
       "arch::sync_block();  // the barriers can be used"
       ""
       "no initialised barrier|race at .* barrier_init at")

mutant(ring_overwrites_queries mma/forward.h
       "arch::sync_block();  // all warps have their queries: the ring may overwrite them"
       ""
       "copy_unit_async at .* race at .* load_matrices at")

mutant(output_overwrites_ring mma/forward.h
       "arch::sync_block();  // no warp reads the ring any more: the output may overwrite it"
       ""
       "race at")

mutant(drained_without_its_lanes mma/key_loop.h
       "arch::sync_warp();  // all lanes have read the tile"
       ""
       "copy_unit_async at .* race at .* load_matrices.* at")

mutant(rows_stored_before_staged mma/forward.h
       "arch::sync_warp();  // the rows are staged"
       ""
       "race at .* (load_shared_unit|store_shared) at")

mutant(half_a_warp_votes mma/key_loop.h
       "if (!arch::any_in_warp(chunk.careful || !(highest <= kMaxGrowth))) return false;"
       "if (arch::thread_index() % 32 < 16 && !arch::any_in_warp(chunk.careful)) return false;"
       "diverged|deadlock")

mutant(tiles_listed_before_counted core/work_list.h
       "arch::sync_block();  // all tiles are counted"
       ""
       "race at .* (load_shared|add_shared) at")

# ---- Bounds -----------------------------------------------------------------------------------

mutant(block_beyond_the_list core/block_work.h
       "if (tile >= static_cast<int>(arch::load_global_u32(params.work_count))) return work;"
       ""
       "load_global_unit at .* may not read")

mutant(one_query_row_too_many mma/forward.h
       "const bool used = first_row + i < rows.used();"
       "const bool used = first_row + i <= rows.used();"
       "copy_unit_async at .* may not read")

mutant(one_key_row_too_many mma/ring.h
       "rows_left = rows - row;"
       "rows_left = rows - row + 1;"
       "copy_unit_async at .* may not read")

mutant(one_output_row_too_many mma/forward.h
       "if (row >= rows.owned()) break;"
       "if (row > rows.owned()) break;"
       "store_global_unit at .* may not write")

mutant(lengths_not_clamped core/work_list.h
       "const plan::Extent extent = plan::packed_extent(plan::max(first, floor), last, rows);"
       "const plan::Extent extent{plan::max(first, floor), last - plan::max(first, floor), rows < 0};"
       "may not read")
