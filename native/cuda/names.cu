// What C has no name for; the stand-in of CuPy (testing/device_raw.py) gives these other meanings.

typedef long long int64;
typedef int int32;
typedef short int16;
typedef signed char int8;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define DEVICE static __device__
#define SHARED __shared__
#define LANE ((int64)threadIdx.x)
#define LANE_COUNT ((int64)blockDim.x)
#define BLOCK_INDEX ((int64)blockIdx.x)
#define BLOCK_COUNT ((int64)gridDim.x)
#define SYNC __syncthreads()
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)
#define FIRST_TO_MARK(flag) (atomicCAS((uint64 *)(flag), 0ull, 1ull) == 0ull)
// The first fence publishes what the block has written, the second lets it see what others have:
// without it its lanes could read what their cache held before.
DEVICE int64 TICKET(int64 *counter) {
  __threadfence();
  const int64 ticket = (int64)atomicAdd((uint64 *)counter, 1ull);
  __threadfence();
  return ticket;
}
