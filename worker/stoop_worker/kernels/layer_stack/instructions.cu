// The instructions of a decode's layers in one launch: loads past the nearest cache, barriers, copies, and products of
// tensor cores. Everything that only a GPU can do is here, so that the rest can be run and tested on a CPU.

typedef unsigned short u16;

struct alignas(16) Quad {
  u32 x, y, z, w;
};

struct alignas(16) Longs {
  u64 x, y;
};

static __device__ __forceinline__ char* dynamic_memory() {
  extern __shared__ __align__(1024) char memory[];
  return memory;
}

static __device__ __forceinline__ float as_float(u32 bits) { return __uint_as_float(bits); }

static __device__ __forceinline__ u16 narrow(float value) {
  u16 half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}

static __device__ __forceinline__ u32 narrow(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// the largest of two halves each, as numbers without a sign
static __device__ __forceinline__ u32 most_of_halves(u32 a, u32 b) {
  u32 most;
  asm("max.u16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

// loads and stores of words that other programs write or read meanwhile; each word is whole, old or new
static __device__ __forceinline__ Quad shared_quad(const u32* from) {
  Quad quad;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(quad.x), "=r"(quad.y), "=r"(quad.z), "=r"(quad.w)
               : "l"(from)
               : "memory");
  return quad;
}

static __device__ __forceinline__ uint2 constant_pairs(const u16* from) {
  uint2 pairs;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(pairs.x), "=r"(pairs.y) : "l"(from));
  return pairs;
}

static __device__ __forceinline__ u16 constant_half(const u16* from) {
  u16 half;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
  return half;
}

static __device__ __forceinline__ u32 shared_word(const u32* from) {
  u32 word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}

static __device__ __forceinline__ Longs shared_longs(const u64* from) {
  Longs words;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(words.x), "=l"(words.y) : "l"(from) : "memory");
  return words;
}

static __device__ __forceinline__ void share(u32* to, u32 word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

static __device__ __forceinline__ void share(u64* to, u64 word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

static __device__ __forceinline__ u64 nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

static __device__ __forceinline__ void copy(u32 to, const char* from, int bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// the same for 16 bytes, without the engine; a barrier counts them from `arrive_behind_quads` on
static __device__ __forceinline__ void copy_quad(u32 to, const char* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void arrive_behind_quads(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// wait for the other warps that multiply
static __device__ __forceinline__ void named_barrier(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// sums of 16 x 8, of products of 16 x 16 with 16 x 8 values
static __device__ __forceinline__ void multiply_bfloats(float* sums, u32 a, u32 b, u32 c, u32 d, u32 x, u32 y) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(x), "r"(y));
}

static __device__ __forceinline__ void multiply_halves(float* sums, u32 a, u32 b, u32 c, u32 d, u32 x, u32 y) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a), "r"(b), "r"(c), "r"(d), "r"(x), "r"(y));
}

// four float8 values as two pairs of float16
static __device__ __forceinline__ uint2 halves_of(u32 four) {
  uint2 pairs;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
  return pairs;
}

static __device__ __forceinline__ u32 half_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// return whether the barrier's turn has ended
static __device__ __forceinline__ bool phase_ended(u32 barrier, int turn) {
  u32 there;
  asm volatile("{ .reg .pred there; mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2; selp.u32 %0, 1, 0, there; }"
               : "=r"(there)
               : "r"(barrier), "r"(turn)
               : "memory");
  return there;
}

// let the copy engine see barriers that were just made
static __device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// let the copy engine write behind this thread's own writes
static __device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

static __device__ __forceinline__ u32 fetch_add(u32* to) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(to) : "memory");
  return before;
}

// four tiles of 8 x 8 values, transposed; a lane gives the address of a row
static __device__ __forceinline__ void load_transposed(u32* to, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

static __device__ __forceinline__ void trap() { asm volatile("trap;"); }
