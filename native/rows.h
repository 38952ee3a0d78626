/* Functions of a row of numbers. Sums are taken in T over BLOCK elements, and in double over these. */
#pragma once
#include "functions.h"

enum { BLOCK = 512 };

INLINE T top_of(const T *x, word n) {
  T top = -INFINITY;
#pragma omp simd reduction(max : top)
  for (word j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
  return top;
}

/* Sums of f over j from 0 to n - 1, in an order that does not follow from where the arrays of f lie:
   a compiler may begin a reduction where they are aligned, and those that users feed lie anywhere. */
#define SUM(total, n, f)                                                       \
  double total = 0;                                                            \
  for (word start_ = 0; start_ < (n); start_ += BLOCK) {                       \
    const word end_ = least((n), start_ + BLOCK);                              \
    T lanes_[LANES] = {0}, sum_ = 0;                                           \
    word at_ = start_;                                                         \
    for (; at_ + LANES <= end_; at_ += LANES)                                  \
      _Pragma("omp simd") for (int l_ = 0; l_ < LANES; l_++) {                 \
        const word j = at_ + l_;                                               \
        lanes_[l_] += (f);                                                     \
      }                                                                        \
    for (word j = at_; j < end_; j++) lanes_[j - at_] += (f);                  \
    for (int l_ = 0; l_ < LANES; l_++) sum_ += lanes_[l_];                     \
    total += sum_;                                                             \
  }

/* exp(x - top), written to y where there is one; the sum of them */
INLINE double powers_of(const T *x, T *y, word n, T top) {
  double total = 0;
  for (word at = 0; at < n; at += BLOCK) {
    const word end = least(n, at + BLOCK);
    vec_t sums = {};
    for (word j = at; j < end; j += LANES) {
      const vec_t powers = exp_of(load_lanes(x + j, end - j, -INFINITY) - top);
      if (y) store_lanes(y + j, powers, end - j);
      sums += powers;
    }
    T sum = 0;
    for (int l = 0; l < LANES; l++) sum += sums[l];
    total += sum;
  }
  return total;
}
