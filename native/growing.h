/* Memory that grows. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

/* Makes room for `wanted` elements of `size` bytes; 0 where there is no memory. */
static int grow(void **at, int64_t *room, int64_t wanted, size_t size) {
  if (wanted <= *room) return 1;
  int64_t more = *room * 2 > wanted ? *room * 2 : wanted + 1024;
  void *made = realloc(*at, more * size);
  if (!made) return 0;
  *at = made; *room = more;
  return 1;
}
