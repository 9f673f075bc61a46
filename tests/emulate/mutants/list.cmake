# Faults built into copies of the kernels, each of which the emulator has to find under any seed.
#
#   mutant(<name> <header below src/kernels> <text> <replacement> <in the report>)
#
# The text has to be in the header exactly once, or the build fails: whoever changes that line
# decides what becomes of the fault.

# ---- Waits ------------------------------------------------------------------------------------

mutant(first_tile_not_awaited mma/key_loop.h
[[    arch::barrier_wait(ring.filled(at.stage), at.parity);
    warp.fetch_keys(]]
[[    warp.fetch_keys(]]
       "load_matrices at .* race at .* copy_unit_async at")

mutant(next_tile_not_awaited mma/key_loop.h
       "      arch::barrier_wait(chunk.barrier, chunk.parity);"
       ""
       "race at .* copy_unit_async at")

mutant(arrives_before_its_copies mma/ring.h
       "arrive_after_copies<kConfig.aligned>(filled(stage));"
       "arch::barrier_arrive(filled(stage), true);"
       "race at .* copy_unit_async at")

mutant(refills_before_drained mma/key_loop.h
       "arch::barrier_wait(ring.drained(ring.stage), refill_parity(at));"
       "(void)at;"
       "copy_unit_async at .* race at")

mutant(wrong_parity mma/key_loop.h
       "static_cast<int>(at.stage < kBehind)"
       "static_cast<int>(at.stage < kBehind - 1)"
       "race at|deadlock")

mutant(passes_tiles_not_filled mma/key_loop.h
       "arch::barrier_wait(ring.filled(at.stage), at.parity);  // or it might be filled twice at once"
       ""
       "race at|deadlock")

mutant(wrong_arrival_count mma/ring.h
       "arch::barrier_init(filled(thread), T::kThreads);"
       "arch::barrier_init(filled(thread), T::kThreads + 1);"
       "deadlock\n.*barrier_wait at")

mutant(last_copies_not_awaited mma/forward.h
       "arch::wait_for_copies();"
       ""
       "ended with copies on their way")

# ---- Meetings ---------------------------------------------------------------------------------

mutant(barriers_used_before_they_exist mma/forward.h
       "arch::sync_block();  // the barriers can be used"
       ""
       "no initialised barrier|race at .* barrier_init at")

mutant(drained_without_its_lanes mma/key_loop.h
       "arch::sync_warp();  // all lanes have read the tile"
       ""
       "copy_unit_async at .* race at .* load_matrices.* at")

mutant(notes_overwritten_while_read mma/forward.h
       "arch::sync_warp();  // all lanes have read the notes"
       ""
       "race at")

mutant(notes_read_while_written mma/forward.h
       "arch::sync_warp();  // the notes are written"
       ""
       "race at")

mutant(half_a_warp_votes mma/forward.h
       "if (!arch::any_in_warp(work.exists())) break;"
       "if (arch::thread_index() % 32 < 16 && !arch::any_in_warp(work.exists())) break;"
       "diverged|deadlock")

mutant(tiles_listed_before_counted core/work_list.h
       "arch::sync_block();  // all tiles are counted"
       ""
       "race at .* (load_shared|add_shared) at")

# ---- Bounds -----------------------------------------------------------------------------------

mutant(block_beyond_the_list core/block_work.h
       "if (unit >= static_cast<int>(arch::load_global_u32(params.work_count))) return work;"
       ""
       "load_global_unit at .* may not read")

mutant(one_query_row_too_many mma/warp.h
       "const bool used = row < rows.used();"
       "const bool used = row <= rows.used();"
       "load_global_half_unit at .* may not read")

mutant(one_key_row_too_many mma/ring.h
       "rows_left = rows - row;"
       "rows_left = rows - row + 1;"
       "copy_unit_async at .* may not read")

mutant(next_tile_has_more_keys mma/forward.h
       "row_step += next_tiles.rows;"
       "row_step += next_tiles.rows + 1;"
       "copy_unit_async at .* may not read")

mutant(next_tile_is_elsewhere mma/forward.h
       "value_step = next_rows.v(begin) - rows.v(end);"
       "value_step = next_rows.v(begin) - rows.v(end) - 2;"
       "copy_unit_async at .* misaligned")

mutant(one_output_row_too_many mma/forward.h
       "owned = row < rows.owned();"
       "owned = row <= rows.owned();"
       "store_global_.* at .* may not write")

mutant(lengths_not_clamped core/work_list.h
       "const plan::Extent extent = plan::packed_extent(plan::max(first, floor), last, rows);"
       "const plan::Extent extent{plan::max(first, floor), last - plan::max(first, floor), rows < 0};"
       "may not read")
