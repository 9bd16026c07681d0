// All layers of a pre-norm decoder for one row, in one launch of one program a multiprocessor. A warp of each program
// copies the program's rows of every weight, and its part of the keys and values, to a ring of slots in shared memory; it
// runs ahead of the other warps and waits for no other program, so that memory is read without a pause from the first
// layer to the last. The other warps multiply what has arrived by the row, on tensor cores, and wait for those of all programs
// after each product, because the next one needs the whole row.
//
// The host defines DIM, INNER, HEADS, KEY_HEADS, HEAD_DIM, FREQUENCIES (half of a head's rotated channels), NORMS (of
// heads), FLOAT8 (weights are e4m3 with a scale for each block of 128 x 128, else bfloat16), PAGE, PROGRAMS, SPLITS (ranges
// of positions), STAGES (slots of the ring), and SECONDS, after which a wait gives up. Activations are bfloat16.

extern "C" __global__ void __launch_bounds__(kThreads, 1) layer_stack(const __grid_constant__ Step step) {
  char* memory = dynamic_memory();
  u16* row = reinterpret_cast<u16*>(memory + STAGES * kSlot);
  Shared& shared = *reinterpret_cast<Shared*>(memory + STAGES * kSlot + kRowRoom);
  u64* layers = reinterpret_cast<u64*>(&shared + 1);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < step.count * kFields; i += kThreads) layers[i] = step.layers[i];
  for (int i = threadIdx.x; i < kFresh * kHead; i += kThreads) shared.heads[i] = 0;
  Ring ring{shared_address(memory), shared_address(shared.barriers)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_of(ring.barriers + 16 * i, 1);
      barrier_of(ring.barriers + 16 * i + 8, kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int context = *step.context;
  const Range range(context);
  const Rows made = rows_of(kMade), summed = rows_of(DIM), gates = rows_of(INNER);
  const Rows ups{INNER + gates.first, gates.count};

  if (warp == kWarps) {
    for (int layer = 0; layer < step.count; layer++) {
      const u64* of = layers + layer * kFields;
      auto weight = [&](int field) { return reinterpret_cast<const char*>(of[field]); };
      auto scales = [&](int field) { return reinterpret_cast<const float*>(of[field + 4]); };
      copy_rows<DIM>(ring, weight(kQkv), scales(kQkv), made, lane);
      copy_heads(ring, step, layer, range, lane);
      copy_rows<kQueries>(ring, weight(kOut), scales(kOut), summed, lane);
      copy_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), gates, lane);
      copy_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), ups, lane);
      copy_rows<INNER>(ring, weight(kDown), scales(kDown), summed, lane);
    }
    return;
  }

  const long long slot = *step.slot;
  Rotation rotation;
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const int pair = 32 * i + lane;
    const float* from = step.rotations + 2 * (*step.position * FREQUENCIES + pair);
    rotation.cosines[i] = pair < FREQUENCIES ? from[0] : 1;
    rotation.sines[i] = pair < FREQUENCIES ? from[1] : 0;
  }
  const int mine = threadIdx.x;
  float residual = mine < summed.count ? wide(step.x[summed.first + mine]) : 0;
  GridBarrier grid_barrier{step.counters};

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = layers + layer * kFields;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    float factor = load_row<DIM, true>(row, layer ? step.y : step.x, halves(kNorm), step.epsilon, shared.squares,
                                       shared.most, grid_barrier);
    multiply<DIM, 2>(ring, memory, row, shared.sums, made);
    sync_multiplying();
    if (mine < made.count) step.qkv[made.first + mine] = narrow(sum_of(shared.sums, mine) * factor);
    grid_barrier.arrive();

    grid_barrier.await();
    if (range.active) {
      load_heads(shared.heads, step.qkv, halves(kQNorm), halves(kKNorm), rotation, range, step.head_epsilon);
      sync_multiplying();
      attend(step, ring, memory, row, shared, range, layer, context, slot);
    }
    grid_barrier.arrive();

    factor = load_row<kQueries, false>(row, step.attended, nullptr, 0, shared.squares, shared.most, grid_barrier);
    multiply<kQueries, 1>(ring, memory, row, shared.sums, summed);
    sync_multiplying();
    if (mine < summed.count) {
      const u16 rounded = narrow(residual + sum_of(shared.sums, mine) * factor);
      residual = wide(rounded);
      step.y[summed.first + mine] = rounded;
    }
    grid_barrier.arrive();

    factor = load_row<DIM, true>(row, step.y, halves(kMlpNorm), step.epsilon, shared.squares, shared.most, grid_barrier);
    multiply<DIM, 2>(ring, memory, row, shared.sums, gates);
    multiply<DIM, 2>(ring, memory, row, shared.sums + kGates * kWarps, ups);
    sync_multiplying();
    if (mine < gates.count) {
      const float gate = sum_of(shared.sums, mine) * factor, up = sum_of(shared.sums, kGates + mine) * factor;
      step.inner[gates.first + mine] = narrow(gate / (1 + __expf(-gate)) * up);
    }
    grid_barrier.arrive();

    factor = load_row<INNER, false>(row, step.inner, nullptr, 0, shared.squares, shared.most, grid_barrier);
    multiply<INNER, 1>(ring, memory, row, shared.sums, summed);
    sync_multiplying();
    if (mine < summed.count) {
      const u16 rounded = narrow(residual + sum_of(shared.sums, mine) * factor);
      residual = wide(rounded);
      step.y[summed.first + mine] = rounded;
    }
    if (layer + 1 < step.count) grid_barrier.arrive();
  }

  // the last program to end leaves the counters as it found them; no program waits for them any more
  if (threadIdx.x == 0) {
    if (fetch_add_acq_rel(step.counters + 1) + 1 == PROGRAMS) step.counters[0] = step.counters[1] = 0;
  }
}
