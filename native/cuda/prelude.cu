// What kernels stand on: loops over elements and lanes, and reductions of a block.

#define EACH(i, size) \
  for (int64 i = BLOCK_INDEX * LANE_COUNT + LANE; i < (size); i += BLOCK_COUNT * LANE_COUNT)
#define LANES(i, size) for (int64 i = LANE; i < (size); i += LANE_COUNT)
#define FIRST_LANE (LANE == 0)
#define REDUCTION(name, type, joined)                         \
  DEVICE type name(type value) {                              \
    SHARED type held[THREADS];                                \
    held[LANE] = value;                                       \
    SYNC;                                                     \
    for (int64 half = LANE_COUNT / 2; half > 0; half /= 2) {  \
      if (LANE < half) {                                      \
        type a = held[LANE], b = held[LANE + half];           \
        held[LANE] = joined;                                  \
      }                                                       \
      SYNC;                                                   \
    }                                                         \
    value = held[0];                                          \
    SYNC;                                                     \
    return value;                                             \
  }
REDUCTION(block_sum, real, a + b)
REDUCTION(block_max, real, fmax(a, b))
REDUCTION(block_sum_double, double, a + b)
REDUCTION(block_max_double, double, fmax(a, b))

// Whether all other blocks have written what their first lanes write; the counter is 0 again then.
DEVICE int is_last_block(int64 *counter) {
  SHARED int64 ticket;
  if (FIRST_LANE) ticket = TICKET(counter);
  SYNC;
  int last = ticket == BLOCK_COUNT - 1;
  if (last && FIRST_LANE) *counter = 0;
  SYNC;
  return last;
}

DEVICE int64 part_of(const int64 *ends, int64 i) {
  int64 part = 0;
  while (i >= ends[part]) part++;
  return part;
}
