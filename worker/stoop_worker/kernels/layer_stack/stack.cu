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
  const Products products;

  if (warp >= kWarps) {
    const int copier = warp - kWarps;
    Ahead ahead;
    for (int layer = 0; layer < step.count; layer++) {
      const u64* of = layers + layer * kFields;
#pragma unroll 1
      for (int product = 0; product < kProducts; product++) {
        if (product == kOut) copy_heads(ring, step, layer, range, copier, lane);
        const bool ends = product + 1 == kProducts, last = ends && layer + 1 == step.count;
        const Part part = products.part(of, product), none{nullptr, 0};
        ahead.enter(part, last ? none : products.part(ends ? of + kFields : of, ends ? 0 : product + 1));
        copy_rows(ring, reinterpret_cast<const char*>(of[products.weight(product)]),
                  reinterpret_cast<const float*>(of[products.weight(product) + kScales]), products.rows(product),
                  products.width(product), ahead, copier, lane);
      }
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
  float residual = mine < products.down.count ? wide(step.x[products.down.first + mine]) : 0;
  const u32 before = *step.counters;

  for (int layer = 0; layer < step.count; layer++) {
    const u64* of = layers + layer * kFields;
    const u32 number = before + layer + 1;
    auto halves = [&](int field) { return reinterpret_cast<const u16*>(of[field]); };
    float factor = 1;
    // one body for all products, because a layer's instructions are read anew in each layer
#pragma unroll 1
    for (int product = 0; product < kProducts; product++) {
      const Rows rows = products.rows(product);
      if (product == kOut) {
        if (range.attends()) {
          load_heads(shared.heads, step.qkv, number, halves(kQNorm), halves(kKNorm), rotation, range, step.head_epsilon);
          sync_multiplying();
          attend(step, ring, memory, row, shared, range, number, layer, context, slot);
        }
        if (range.shares()) combine(step, range, number);
      }
      const bool first = product == kQkv, normed = first || product == kGates || product == kUps;
      const Own own(ring, rows, products.width(product), normed ? kParts<true> : 1);
      if (first || product == kGates) {
        factor = load_row<DIM, true>(row, first ? step.out : step.middle, first ? number - 1 : number,
                                     first && layer == 0 ? step.x : nullptr, halves(first ? kNorm : kMlpNorm),
                                     step.epsilon, shared.squares, shared.most);
      } else if (product == kOut) {
        factor = load_row<kQueries, false>(row, step.attended, number, nullptr, nullptr, 0, shared.squares, shared.most);
      } else if (product == kDown) {
        factor = load_row<INNER, false>(row, step.inner, number, nullptr, nullptr, 0, shared.squares, shared.most);
      }
      float* sums = shared.sums + (product == kUps ? kGateSums * kWarps : 0);
      multiply(own, memory, row, sums, products.width(product));
      if (product == kGates) continue;
      sync_multiplying();
      if (mine >= rows.count) continue;
      const float sum = sum_of(sums, mine, rows) * factor;
      if (product == kQkv) {
        share(step.qkv + rows.first + mine, word_of(narrow(sum), number));
      } else if (product == kUps) {
        const float gate = sum_of(shared.sums, mine, rows) * factor;
        share(step.inner + products.gated.first + mine, word_of(narrow(gate / (1 + __expf(-gate)) * sum), number));
      } else {
        const u16 rounded = narrow(residual + sum);
        residual = wide(rounded);
        share((product == kOut ? step.middle : step.out) + rows.first + mine, word_of(rounded, number));
      }
    }
  }
  if (mine < products.down.count) step.y[products.down.first + mine] = narrow(residual);

  // all programs have read the first counter by then, and none waits any more
  if (threadIdx.x == 0 && fetch_add(step.counters + 1) + 1 == PROGRAMS) {
    step.counters[0] = before + step.count;
    step.counters[1] = 0;
  }
}
