// All layers of a pre-norm decoder for one row, in one launch of one program a multiprocessor. Four warps of each program
// copy the program's rows of every weight, and its part of the keys and values, to a ring of slots in shared memory. They
// run ahead of the other warps and wait for no other program, so that memory is read from the first layer to the last. The
// other warps multiply what has arrived by the row, on tensor cores. Each product needs a whole row, so programs share the
// values of rows as words that others poll.
//
// The host defines DIM, INNER, HEADS, KEY_HEADS, HEAD_DIM, FREQUENCIES (half of a head's rotated channels), NORMS (of
// heads), FLOAT8 (weights are e4m3 with a scale for each block of 128 x 128, else bfloat16), PAGE, PROGRAMS, SPLITS (ranges
// of positions), STAGES (slots of the ring), UNDER_WAY (slots that are copied at once), and SECONDS, after which a wait gives
// up. Activations are bfloat16.

// Share the sum of the program's part of the residual, which thread i has of row i, and a product with a row of words.
template <int WIDTH>
static __device__ __forceinline__ void add_product(Ring& ring, const char* memory, u16* row, Shared& shared,
                                                   const u32* from, u32* to, u32 number, Rows rows, float& residual) {
  const int mine = threadIdx.x;
  const float factor = load_row<WIDTH, false>(row, from, number, nullptr, nullptr, 0, shared.squares, shared.most);
  multiply<WIDTH, 1>(ring, memory, row, shared.sums, rows);
  sync_multiplying();
  if (mine >= rows.count) return;
  const u16 rounded = narrow(residual + sum_of(shared.sums, mine) * factor);
  residual = wide(rounded);
  share(to + rows.first + mine, word_of(rounded, number));
}

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
      barrier_of(ring.barriers + 16 * i, kCopiers);
      barrier_of(ring.barriers + 16 * i + 8, kTeam);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int context = *step.context;
  const Range range(context);
  const Rows made = rows_of(kMade), summed = rows_of(DIM), gates = rows_of(INNER);
  const Rows ups{INNER + gates.first, gates.count};

  if (warp >= kWarps) {
    const int copier = warp - kWarps;
    for (int layer = 0; layer < step.count; layer++) {
      const u64* of = layers + layer * kFields;
      auto weight = [&](int field) { return reinterpret_cast<const char*>(of[field]); };
      auto scales = [&](int field) { return reinterpret_cast<const float*>(of[field + 4]); };
      copy_rows<DIM>(ring, weight(kQkv), scales(kQkv), made, copier, lane);
      copy_heads(ring, step, layer, range, copier, lane);
      copy_rows<kQueries>(ring, weight(kOut), scales(kOut), summed, copier, lane);
      copy_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), gates, copier, lane);
      copy_rows<DIM>(ring, weight(kGateUp), scales(kGateUp), ups, copier, lane);
      copy_rows<INNER>(ring, weight(kDown), scales(kDown), summed, copier, lane);
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
  const u32 before = *step.counters;

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = layers + layer * kFields;
    const u32 number = before + layer + 1;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    auto normed = [&](const u32* from, u32 number, const u16* plain, int norm) {
      return load_row<DIM, true>(row, from, number, plain, halves(norm), step.epsilon, shared.squares, shared.most);
    };
    float factor = normed(step.out, number - 1, layer ? nullptr : step.x, kNorm);
    multiply<DIM, 2>(ring, memory, row, shared.sums, made);
    sync_multiplying();
    if (mine < made.count)
      share(step.qkv + made.first + mine, word_of(narrow(sum_of(shared.sums, mine) * factor), number));

    if (range.attends()) {
      load_heads(shared.heads, step.qkv, number, halves(kQNorm), halves(kKNorm), rotation, range, step.head_epsilon);
      sync_multiplying();
      attend(step, ring, memory, row, shared, range, number, layer, context, slot);
    }
    if (range.shares()) combine(step, range, number);

    add_product<kQueries>(ring, memory, row, shared, step.attended, step.middle, number, summed, residual);

    factor = normed(step.middle, number, nullptr, kMlpNorm);
    multiply<DIM, 2>(ring, memory, row, shared.sums, gates);
    multiply<DIM, 2>(ring, memory, row, shared.sums + kGates * kWarps, ups);
    sync_multiplying();
    if (mine < gates.count) {
      const float gate = sum_of(shared.sums, mine) * factor, up = sum_of(shared.sums, kGates + mine) * factor;
      share(step.inner + gates.first + mine, word_of(narrow(gate / (1 + __expf(-gate)) * up), number));
    }
    add_product<INNER>(ring, memory, row, shared, step.inner, step.out, number, summed, residual);
  }
  if (mine < summed.count) step.y[summed.first + mine] = narrow(residual);

  // all programs have read the first counter by then, and none waits any more
  if (threadIdx.x == 0 && fetch_add(step.counters + 1) + 1 == PROGRAMS) {
    step.counters[0] = before + step.count;
    step.counters[1] = 0;
  }
}
