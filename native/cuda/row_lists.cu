// Lists of work of which a block does one row: `LOOPS` is replaced by the functions of loops, and
// `CASES` by their calls.

DEVICE void product(const int64 *words, int64 row) {
  const int64 columns = words[2], inner = words[3];
  const real *a = (const real *)words[4] + row * words[8], *b = (const real *)words[5];
  real *out = (real *)words[6] + row * words[12];
  const real *bias = (const real *)words[7];
  LANES(j, columns) {
    real sum = 0;
    for (int64 k = 0; k < inner; k++) sum += a[k * words[9]] * b[k * words[10] + j * words[11]];
    if (bias) sum += bias[j];
    out[j] = words[13] ? out[j] + sum : sum;
  }
}

LOOPS

KERNEL row_list(const int64 *list, int64 count, int64 width) {
  const int64 row = BLOCK_INDEX;
  for (int64 n = 0; n < count; n++) {
    const int64 *words = list + n * width;
    if (row < words[1]) {
      switch (words[0]) {
        case 0: product(words, row); break;
CASES
      }
    }
    SYNC;
  }
}
