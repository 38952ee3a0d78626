/* Features of a signal that goes on: speech/features/mel.py, cmvn.py.

   NumPy does the same in Python; sums have the same order in both, and the same bits. */
#include "base.h"
#include "features_arguments.h"
#include <math.h>

/* Sums of neighboring rows of x, each times a weight, one row after the other. */
EXPORT(weighted_rows)(const struct weighted_rows *a) {
  const word n = a->columns;
  for (word i = 0; i < a->rows; i++) {
    const word first = a->first[i], count = a->begin[i + 1] - a->begin[i];
    const float *weights = a->weights + a->begin[i];
    float *out = a->out + i * n;
    memset(out, 0, n * sizeof *out);
    for (word p = 0; p < count; p++) {
      const float *x = a->x + (first + p) * n;
      for (word f = 0; f < n; f++) out[f] += weights[p] * x[f];
    }
  }
}

/* The shares of statistics after as many frames of the speaker and of all came in as windows lack. */
static void smooth(const struct cmvn_frames *a, double window, double *speaker, double *shared) {
  const double total = a->everyone[a->dim], count = a->known ? a->known[a->dim] : 0;
  double lacking = a->window - (window < a->window ? window : a->window) - *shared * total;
  if (count > 0) {
    const double most = a->speaker_frames < count ? a->speaker_frames : count;
    lacking -= *speaker * count;
    double added = lacking < most ? lacking : most;
    if (!(added > 0)) added = 0;
    *speaker += added / count;
    lacking -= added;
  }
  double added = lacking < a->global_frames ? lacking : a->global_frames;
  if (!(added > 0)) added = 0;
  *shared += added / total;
}
EXPORT(cmvn_frames)(struct cmvn_frames *a) {
  const word dim = a->dim;
  const double *everyone = a->everyone, *known = a->known;
  double window = a->before[0], speaker = a->before[1], shared = a->before[2];
  for (word f = 0; f < a->frames; f++) {
    const float *x = a->features + f * dim;
    float *out = a->normal + f * dim;
    if (!(x[0] < (float)a->least_energy)) {
      if (a->numbers[f] < 0 || a->numbers[f] >= a->heard) return;
      window = a->numbers[f] + 1; speaker = shared = 0;
    }
    smooth(a, window, &speaker, &shared);
    const double *sums = a->sums + (word)window * a->rows * dim;
    double count = (window < a->window ? window : a->window) + shared * everyone[dim];
    if (known) count += speaker * known[dim];
    if (count < 1) count = NAN;  /* too few, as Kaldi has it */
    for (word d = 0; d < dim; d++) {
      double sum = sums[d] + shared * everyone[d];
      if (known) sum += speaker * known[d];
      const double mean = a->skipped[d] ? 0 : sum / count;
      if (a->rows == 1) { out[d] = x[d] - (float)mean; continue; }
      double square = sums[dim + d] + shared * everyone[dim + 1 + d];
      if (known) square += speaker * known[dim + 1 + d];
      double variance = square / count - mean * mean;
      if (variance < a->least_variance) variance = a->least_variance;
      const double scale = a->skipped[d] ? 1 : 1 / sqrt(variance);
      out[d] = x[d] * (float)scale - (float)(mean * scale);
    }
  }
  a->before[0] = window; a->before[1] = speaker; a->before[2] = shared;
  a->done = 1;
}
