// Attention of one row: each program has a range of the positions of one key head.

// Take the queries of the program's key head, and its new key and value, to shared memory, normed and rotated.
static __device__ __forceinline__ void load_heads(u16* heads, const u32* qkv, u32 number, const u16* q_norm,
                                                  const u16* k_norm, const Rotation& rotation, const Range& range,
                                                  float epsilon) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int given = warp; given < kGroup + 2; given += kWarps) {
    const bool query = given < kGroup, value = given == kGroup + 1;
    const int head = query ? range.head * kGroup + given : HEADS + (value ? KEY_HEADS : 0) + range.head;
    const u32* from = qkv + head * HEAD_DIM;
#if NORMS
    u16 factors[kTurned][2] = {};
    if (!value) {
      const u16* norm = query ? q_norm : k_norm;
#pragma unroll
      for (int i = 0; i < kTurned; i++) {
        const int pair = 32 * i + lane;
        factors[i][0] = __ldg(norm + (pair < FREQUENCIES ? pair : 2 * pair));
        factors[i][1] = __ldg(norm + (pair < FREQUENCIES ? FREQUENCIES + pair : 2 * pair + 1));
      }
    }
#endif
    u16* to = heads + (query ? given : value ? kNewValue : kNewKey) * kHead;
    u32 words[kTurned][2];
    SpinLimit limit;
    for (bool there = false; !there; limit.count()) {
      there = true;
#pragma unroll
      for (int i = 0; i < kTurned; i++) {
        const int pair = 32 * i + lane;
        const bool turned = !value && pair < FREQUENCIES;
        words[i][0] = shared_word(from + (turned ? pair : 2 * pair));
        words[i][1] = shared_word(from + (turned ? FREQUENCIES + pair : 2 * pair + 1));
      }
#pragma unroll
      for (int i = 0; i < kTurned; i++) there = there && is_of(words[i][0], number) && is_of(words[i][1], number);
    }
    float real[kTurned], imaginary[kTurned], squares = 0;
#pragma unroll
    for (int i = 0; i < kTurned; i++) {
      real[i] = high_of(words[i][0]), imaginary[i] = high_of(words[i][1]);
      squares += real[i] * real[i] + imaginary[i] * imaginary[i];
    }
#if NORMS
    if (!value) {
      const float factor = rsqrtf(warp_sum(squares) / HEAD_DIM + epsilon);
#pragma unroll
      for (int i = 0; i < kTurned; i++) {
        real[i] = wide(narrow(real[i] * factor * wide(factors[i][0])));
        imaginary[i] = wide(narrow(imaginary[i] * factor * wide(factors[i][1])));
      }
    }
#endif
#pragma unroll
    for (int i = 0; i < kTurned; i++) {
      const int pair = 32 * i + lane;
      float a = real[i], b = imaginary[i];
      if (!value && pair < FREQUENCIES) {
        a = real[i] * rotation.cosines[i] - imaginary[i] * rotation.sines[i];
        b = real[i] * rotation.sines[i] + imaginary[i] * rotation.cosines[i];
      }
      *reinterpret_cast<u32*>(to + 2 * pair) = narrow(a, b);
    }
  }
}

// The running softmax of a warp's positions; a lane has query lane / 4, and two of every eight channels.
struct Mixture {
  float top = kLowest, total = 0, mixed[HEAD_DIM / 8][2];

  // attend to the positions of a tile, whose rows follow `keys` and `values`
  __device__ __forceinline__ void take(const u16* heads, const char* keys, const char* values, int count, float scale) {
    const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; step++) {
      const u16* query = heads + line * kHead + step * 16 + 2 * part;
      const u32 a = *reinterpret_cast<const u32*>(query), c = *reinterpret_cast<const u32*>(query + 8);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const char* key = keys + (8 * half + line) * kHeadRow + step * 32 + 4 * part;
        multiply_bfloats(scores[half], a, 0, c, 0, *reinterpret_cast<const u32*>(key),
                         *reinterpret_cast<const u32*>(key + 16));
      }
    }
    float peak = top;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? scores[half][i] * scale : kLowest;
        peak = fmaxf(peak, scores[half][i]);
      }
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 1));
    peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, 2));
    float sum = 0;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        scores[half][i] = 8 * half + 2 * part + i < count ? exp2_of(scores[half][i] - peak) : 0;
        sum += scores[half][i];
      }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float kept = exp2_of(top - peak);
    top = peak;
    total = total * kept + sum;
    const u32 a = narrow(scores[0][0], scores[0][1]), c = narrow(scores[1][0], scores[1][1]);
    const u32 value = shared_address(values + (lane / 8 % 2 * 8 + lane % 8) * kHeadRow + lane / 16 * 16);
#pragma unroll
    for (int eight = 0; eight < HEAD_DIM / 8; eight += 2) {
      u32 x[4];
      load_transposed(x, value + eight * 16);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float sums[4] = {mixed[eight + i][0] * kept, mixed[eight + i][1] * kept, 0, 0};
        multiply_bfloats(sums, a, 0, c, 0, x[2 * i], x[2 * i + 1]);
        mixed[eight + i][0] = sums[0], mixed[eight + i][1] = sums[1];
      }
    }
  }
};

constexpr int kChannels = kGroup * HEAD_DIM, kPart = kChannels + 2 * kGroup;  // of a key head, and words of a range

// Attend to the program's range of positions, and share the sums. `slot` is that of the new key and value.
static __device__ __forceinline__ void attend(const Step& step, Program& program, u32 number, int layer, long long slot) {
  Shared& shared = program.shared;
  Ring& ring = program.ring;
  const Range& range = program.range;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
  const int newest = slot >= 0 ? program.context - 1 : -1;
  const int tiles = (range.last - range.first + kTile - 1) / kTile;
  Mixture mixture;
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 8; i++) mixture.mixed[i][0] = mixture.mixed[i][1] = 0;
  for (int tile = 0; tile < tiles; tile++) {
    const int half = tile % 2;
    const bool taken = tile / 2 % kPairs == warp / 2;
    if (half == 0 && taken) wait_for(ring.full(), ring.turn);
    if (tile % kWarps == warp) {
      char* keys = program.memory + ring.slot * kSlot + half * kTile * kHeadRow;
      char* values = keys + kPositions * kHeadRow;
      const int first = range.first + tile * kTile, count = min(kTile, range.last - first);
      constexpr int kQuads = kHeadBytes / 16;
      if (newest >= first && newest < first + count) {
#pragma unroll 1
        for (int i = lane; i < 2 * kQuads; i += 32) {
          const int place = i / kQuads, quad = i % kQuads;
          *reinterpret_cast<Quad*>((place ? values : keys) + (newest - first) * kHeadRow + quad * 16) =
              *reinterpret_cast<const Quad*>(shared.heads + (kNewKey + place) * kHead + quad * 8);
        }
      }
      // what the slot held before may not be finite
#pragma unroll 1
      for (int i = count * kQuads + lane; i < kTile * kQuads; i += 32)
        *reinterpret_cast<Quad*>(values + i / kQuads * kHeadRow + i % kQuads * 16) = Quad{0, 0, 0, 0};
      __syncwarp();
      mixture.take(shared.heads, keys, values, count, step.scale);
      // the copy engine writes there next
      fence_async_proxy();
    }
    if (half == 1 || tile + 1 == tiles) {
      __syncwarp();
      if (taken && lane < kTeam / 2) arrive(ring.empty());
      ring.next();
    }
  }

  // the warps' mixtures
  const int mixing = min(tiles, kWarps);
  float* mixed = reinterpret_cast<float*>(program.row);
  if (warp < mixing && line < kGroup) {
    if (part == 0) shared.tops[warp][line] = mixture.top, shared.totals[warp][line] = mixture.total;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
      *reinterpret_cast<float2*>(mixed + (warp * kGroup + line) * HEAD_DIM + 8 * i + 2 * part) =
          make_float2(mixture.mixed[i][0], mixture.mixed[i][1]);
  }
  // one of the programs stores the new key and value
  if (newest >= range.first && newest < range.last && threadIdx.x < HEAD_DIM) {
    const int place = threadIdx.x / (HEAD_DIM / 2), pair = threadIdx.x % (HEAD_DIM / 2);
    char* to = step.pool + layer * step.layer_bytes + place * step.values_offset +
               (slot * KEY_HEADS + range.head) * kHeadBytes;
    reinterpret_cast<u32*>(to)[pair] = *reinterpret_cast<const u32*>(shared.heads + (kNewKey + place) * kHead + 2 * pair);
  }
  sync_multiplying();
  u64* parts = step.parts + (range.head * SPLITS + range.split) * kPart;
  for (int pair = threadIdx.x; pair < kChannels / 2; pair += kMultiplying) {
    const int head = 2 * pair / HEAD_DIM;
    float top = kLowest, total = 0, a = 0, b = 0;
#pragma unroll 1
    for (int i = 0; i < mixing; i++) top = fmaxf(top, shared.tops[i][head]);
#pragma unroll 1
    for (int i = 0; i < mixing; i++) {
      const float kept = exp2_of(shared.tops[i][head] - top);
      const float2 value = *reinterpret_cast<const float2*>(mixed + i * kChannels + 2 * pair);
      total += kept * shared.totals[i][head];
      a += kept * value.x, b += kept * value.y;
    }
    share(parts + 2 * pair, word_of(a, number)), share(parts + 2 * pair + 1, word_of(b, number));
    if (2 * pair % HEAD_DIM == 0) {
      share(parts + kChannels + 2 * head, word_of(top, number));
      share(parts + kChannels + 2 * head + 1, word_of(total, number));
    }
  }
  sync_multiplying();
}

static __device__ __forceinline__ float value_of(u64 word) { return as_float(static_cast<u32>(word)); }

// Combine the ranges of a key head: each of its programs has some channels, and each thread two channels of one range.
static __device__ __forceinline__ void combine(const Step& step, const Range& range, u32 number) {
  constexpr int kRanges = 16, kAtOnce = 2 * kMultiplying / kRanges, kShare = (kChannels / 2 + SPLITS - 1) / SPLITS * 2;
  const int from = threadIdx.x % kRanges, end = min((range.split + 1) * kShare, kChannels);
  const u64* part = step.parts + (range.head * SPLITS + from) * kPart;
#pragma unroll 1
  for (int first = 0; first < kShare; first += kAtOnce) {
    const int channel = range.split * kShare + first + threadIdx.x / kRanges * 2;
    const bool mine = channel < end;
    Longs values{0, 0}, softmax{__float_as_uint(kLowest), 0};
    SpinLimit limit;
    for (bool there = !mine || from >= range.count; !there; limit.count()) {
      values = shared_longs(part + channel), softmax = shared_longs(part + kChannels + channel / HEAD_DIM * 2);
      there = are_of(values, number) && are_of(softmax, number);
    }
    __syncwarp();
    const float top = value_of(softmax.x);
    float most = top;
#pragma unroll
    for (int apart = kRanges / 2; apart; apart /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
    const float kept = exp2_of(top - most);
    float total = value_of(softmax.y) * kept, a = value_of(values.x) * kept, b = value_of(values.y) * kept;
#pragma unroll
    for (int apart = kRanges / 2; apart; apart /= 2) {
      total += __shfl_xor_sync(0xffffffffu, total, apart);
      a += __shfl_xor_sync(0xffffffffu, a, apart);
      b += __shfl_xor_sync(0xffffffffu, b, apart);
    }
    if (from != 0 || !mine) continue;
    const float factor = total > 0 ? __fdividef(1, total) : 0;
    u32* to = step.attended + range.head * kChannels + channel;
    share(to, word_of(narrow(a * factor), number)), share(to + 1, word_of(narrow(b * factor), number));
  }
}

// Attend with the program's part, if it has one.
static __device__ __forceinline__ void attend_all(const Step& step, Program& program, const Rotation& rotation, u32 number,
                                                  int layer, long long slot, const u16* q_norm, const u16* k_norm) {
  if (program.range.attends()) {
    load_heads(program.shared.heads, step.qkv, number, q_norm, k_norm, rotation, program.range, step.head_epsilon);
    sync_multiplying();
    attend(step, program, number, layer, slot);
  }
  if (program.range.shares()) combine(step, program.range, number);
}
