/* Copies between float32 and bytes, of nnet3's compressed matrices: nnet3/operators/compression.py. */
#include "base.h"

/* rows and columns; from and to, the distances of their rows in elements */
EXPORT(above_zero)(const word *b, word t, word n) {
  for (word r = b[0] * t / n; r < b[0] * (t + 1) / n; r++) {
    const float *restrict x = (const float *)b[2] + r * b[3];
    uint8_t *restrict out = (uint8_t *)b[4] + r * b[5];
    for (word j = 0; j < b[1]; j++) out[j] = x[j] > 0;
  }
}
EXPORT(of_bytes)(const word *b, word t, word n) {
  for (word r = b[0] * t / n; r < b[0] * (t + 1) / n; r++) {
    const uint8_t *restrict x = (const uint8_t *)b[2] + r * b[3];
    float *restrict out = (float *)b[4] + r * b[5];
    for (word j = 0; j < b[1]; j++) out[j] = x[j];
  }
}
