/* Copies between float32 and bytes, of nnet3's compressed matrices: nnet3/operators/compression.py. */
#include "base.h"
#include "bytes_arguments.h"

EXPORT(above_zero)(const struct above_zero *a, word t, word n) {
  for (word r = a->rows * t / n; r < a->rows * (t + 1) / n; r++) {
    const float *restrict x = a->x + r * a->x_step;
    uint8_t *restrict out = a->out + r * a->out_step;
    for (word j = 0; j < a->columns; j++) out[j] = x[j] > 0;
  }
}
EXPORT(of_bytes)(const struct of_bytes *a, word t, word n) {
  for (word r = a->rows * t / n; r < a->rows * (t + 1) / n; r++) {
    const uint8_t *restrict x = a->x + r * a->x_step;
    float *restrict out = a->out + r * a->out_step;
    for (word j = 0; j < a->columns; j++) out[j] = x[j];
  }
}
