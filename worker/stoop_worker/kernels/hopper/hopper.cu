// Hopper's (sm_90a) features for kernels of warpgroups: barriers, the copy engine (TMA), products of 64 rows (wgmma).
//
// The host defines HALF, the type of all 16-bit values, and adds the kernel's products: `scores<N>`, `mix<N>`.

typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) Map {
  char bytes[128];  // CUtensorMap
};

// Bytes of a row in a tile: a wide one is swizzled over 128 bytes, a narrow one is not.
constexpr int kWide = 128, kNarrow = 16;

// 64 x 16 values times N rows of 16, both in shared memory; without `add` the earlier sums are discarded
template <int N>
__device__ void scores(float* sums, u64 a, u64 b, int add);

// the same, with the 64 x 16 values in registers
template <int N>
__device__ void scores(float* sums, const u32* a, u64 b, int add);

// 64 x 16 values in registers times 16 rows of N in shared memory
template <int N>
__device__ void mix(float* sums, const u32* a, u64 b);

static __device__ __forceinline__ u32 shared_address(const void* pointer) {
  u64 address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
  return static_cast<u32>(address);
}

static __device__ __forceinline__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// barriers in shared memory

static __device__ __forceinline__ void barrier_of(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ __forceinline__ void expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ __forceinline__ void await(u32 barrier, int turn) {
  asm volatile(
      "{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }" ::"r"(
          barrier),
      "r"(turn & 1)
      : "memory");
}

// start copying a box of a mapped tensor; values beyond the tensor are zero
static __device__ __forceinline__ void bring(u32 to, const Map& map, int channel, int row, int head, int block,
                                             u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(channel), "r"(row), "r"(head), "r"(block), "r"(barrier)
      : "memory");
}

// a product's descriptor of a tile; distances are in bytes
[[maybe_unused]] static __device__ __forceinline__ u64 narrow_at(u32 address, u32 leading) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(leading >> 4) << 16 |
         static_cast<u64>(8 * kNarrow >> 4) << 32;
}

static __device__ __forceinline__ u64 wide_at(u32 address) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | 1ull << 16 | static_cast<u64>(8 * kWide >> 4) << 32 | 1ull << 62;
}

static __device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

static __device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wait until at most this many groups of products are pending
template <int LEFT>
static __device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
