/* Memory that grows, and hashes of what it holds. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

enum { MOST_ENTRIES = INT32_MAX - 8 };  /* whose numbers have 32 bits */

/* Makes room for `wanted` elements of `size` bytes; 0 where there is no memory. */
static int grow(void **at, int64_t *room, int64_t wanted, size_t size) {
  if (wanted <= *room) return 1;
  int64_t more = *room * 2 > wanted ? *room * 2 : wanted + 1024;
  void *made = realloc(*at, more * size);
  if (!made) return 0;
  *at = made; *room = more;
  return 1;
}
#define GROW(array, room, wanted) grow((void **)&(array), &(room), wanted, sizeof(*(array)))
static uint64_t mixed(uint64_t h) {
  h = (h ^ (h >> 32)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}
