"""The C functions of pooling over two spatial axes, for one element type `T`; see `pooling.py`.

The winners of a maximum are the numbers of their taps, row by row, in the order [N, P, Q, C].
"""

SOURCE = """\
typedef uint8_t bytes_T __attribute__((vector_size(LANES_T)));
typedef uint8_t some_T __attribute__((vector_size(LANES_T), aligned(1), may_alias));

INLINE vec_T gather_T(const T *x, word step) {
  if (step == 1) return *(const row_T *)x;
  vec_T a;
#pragma GCC unroll 16
  for (int l = 0; l < LANES_T; l++) a[l] = x[l * step];
  return a;
}

INLINE void scatter_T(T *x, word step, vec_T a) {
  if (step == 1) {
    *(row_T *)x = a;
    return;
  }
#pragma GCC unroll 16
  for (int l = 0; l < LANES_T; l++) x[l * step] = a[l];
}

/* the taps of a window along one axis that lie inside */
INLINE void span_T(word position, word stride, word before, word kernel, word size, word *first,
                   word *last) {
  const word start = position * stride - before;
  *first = start < 0 ? -start : 0;
  *last = least(kernel, size - start);
}

/* maxima of a row of windows that all lie inside, of whole vectors of channels; NaN stays */
INLINE void maxima_T(const word kh, const word kw, const T *x, const word *sx, word stride,
                     word wide, word c, T *out, const word *so) {
  for (word q = 0; q < wide; q++, x += stride * sx[3], out += so[3])
    for (word i = 0; i < c; i += LANES_T) {
      vec_T best = *(const row_T *)(x + i);
#pragma GCC unroll 3
      for (word y = 0; y < kh; y++)
#pragma GCC unroll 3
        for (word z = y ? 0 : 1; z < kw; z++) {
          const vec_T a = *(const row_T *)(x + y * sx[2] + z * sx[3] + i);
          const flags_T taken = (a > best) | (a != a);
          best = (vec_T)(((flags_T)a & taken) | ((flags_T)best & ~taken));
        }
      scatter_T(out + i * so[1], so[1], best);
    }
}

/* images, channels, height, width; positions; kernel, stride, before: each down and right; x and
   its four steps, out and its four, winners (or 0); sums instead, and the factors of each row and
   column of positions (or 0) */
EXPORT void pool_T(const word *b, word t, word threads) {
  const word c = b[1], high = b[4], wide = b[5], kh = b[6], kw = b[7];
  const word *sx = b + 13, *so = b + 18;
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = (const T *)b[24], *right = (const T *)b[25];
  const word inside = !b[10] && !b[11] && (high - 1) * b[8] + kh <= b[2] &&
                      (wide - 1) * b[9] + kw <= b[3];
  const word plain = inside && side && !b[22] && !b[23] && c % LANES_T == 0;
  for (word u = b[0] * high * t / threads; u < b[0] * high * (t + 1) / threads; u++) {
    const word n = u / high, p = u % high;
    if (plain) {
      const T *x = (const T *)b[12] + n * sx[0] + p * b[8] * sx[2];
      T *out = (T *)b[17] + n * so[0] + p * so[2];
      if (kh == 2 && kw == 2)
        maxima_T(2, 2, x, sx, b[9], wide, c, out, so);
      else if (kh == 3 && kw == 3)
        maxima_T(3, 3, x, sx, b[9], wide, c, out, so);
      else
        maxima_T(kh, kw, x, sx, b[9], wide, c, out, so);
      continue;
    }
    word y0, y1, x0, x1;
    span_T(p, b[8], b[10], kh, b[2], &y0, &y1);
    for (word q = 0; q < wide; q++) {
      span_T(q, b[9], b[11], kw, b[3], &x0, &x1);
      const T *x = (const T *)b[12] + n * sx[0] + (p * b[8] - b[10]) * sx[2] +
                   (q * b[9] - b[11]) * sx[3];
      T *out = (T *)b[17] + n * so[0] + p * so[2] + q * so[3];
      uint8_t *winner = b[22] ? (uint8_t *)b[22] + ((n * high + p) * wide + q) * c : 0;
      const T factor = b[23] ? down[p] * right[q] : 1;
      for (word i = 0; i < c; i += LANES_T) {
        const word lanes = side ? least(LANES_T, c - i) : LANES_T;
        if (side && lanes == LANES_T) {
          vec_T best = *(const row_T *)(x + y0 * sx[2] + x0 * sx[3] + i);
          flags_T won = (flags_T){0} + (flag_T)(y0 * kw + x0);
          for (word y = y0; y < y1; y++)
            for (word z = y == y0 ? x0 + 1 : x0; z < x1; z++) {
              const vec_T a = *(const row_T *)(x + y * sx[2] + z * sx[3] + i);
              if (b[23]) {
                best += a;
                continue;
              }
              const flags_T more = a > best, taken = more | (a != a);  /* NaN stays, unnumbered */
              best = (vec_T)(((flags_T)a & taken) | ((flags_T)best & ~taken));
              won = (((flags_T){0} + (flag_T)(y * kw + z)) & more) | (won & ~more);
            }
          if (b[23]) best *= factor;
          scatter_T(out + i * so[1], so[1], best);
          if (winner) *(some_T *)(winner + i) = __builtin_convertvector(won, bytes_T);
          continue;
        }
        for (word j = i; j < least(c, i + LANES_T); j++) {
          const T *from = x + j * sx[1];
          T best = from[y0 * sx[2] + x0 * sx[3]];
          word won = y0 * kw + x0;
          for (word y = y0; y < y1; y++)
            for (word z = y == y0 ? x0 + 1 : x0; z < x1; z++) {
              const T a = from[y * sx[2] + z * sx[3]];
              if (b[23])
                best += a;
              else {
                won = a > best ? y * kw + z : won;
                best = (a > best) | (a != a) ? a : best;
              }
            }
          out[j * so[1]] = b[23] ? best * factor : best;
          if (winner) winner[j] = won;
        }
      }
    }
  }
}

/* as `pool`, with x_grad for x and the gradient for out; whether every place lies in one window */
EXPORT void spread_T(const word *b, word t, word threads) {
  const word c = b[1], high = b[4], wide = b[5], kh = b[6], kw = b[7], tiles = b[26];
  const word *sx = b + 13, *so = b + 18;
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = (const T *)b[24], *right = (const T *)b[25];
  for (word n = b[0] * t / threads; n < b[0] * (t + 1) / threads; n++) {
    T *whole = (T *)b[12] + n * sx[0];
    for (word y = 0; !tiles && y < b[2]; y++)
      for (word z = 0; z < b[3]; z++)
        for (word i = 0; i < c; i++) whole[i * sx[1] + y * sx[2] + z * sx[3]] = 0;
    for (word p = 0; p < high; p++) {
      word y0, y1, x0, x1;
      span_T(p, b[8], b[10], kh, b[2], &y0, &y1);
      for (word q = 0; q < wide; q++) {
        span_T(q, b[9], b[11], kw, b[3], &x0, &x1);
        T *x = whole + (p * b[8] - b[10]) * sx[2] + (q * b[9] - b[11]) * sx[3];
        const T *g = (const T *)b[17] + n * so[0] + p * so[2] + q * so[3];
        const uint8_t *winner = (const uint8_t *)b[22];
        if (winner) winner += ((n * high + p) * wide + q) * c;
        const T factor = b[23] ? down[p] * right[q] : 1;
        for (word i = 0; i < c; i += LANES_T) {
          if (side && c - i >= LANES_T) {
            const vec_T a = gather_T(g + i * so[1], so[1]) * factor;
            flags_T won = {0};
            if (winner) won = __builtin_convertvector(*(const some_T *)(winner + i), flags_T);
            for (word y = y0; y < y1; y++)
              for (word z = x0; z < x1; z++) {
                const flags_T mine = won == (flags_T){0} + (flag_T)(y * kw + z);
                vec_T part = a;
                if (winner) part = (vec_T)((flags_T)a & mine);
                row_T *to = (row_T *)(x + y * sx[2] + z * sx[3] + i);
                if (!tiles) part += *to;
                *to = part;
              }
            continue;
          }
          for (word j = i; j < least(c, i + LANES_T); j++) {
            const T a = g[j * so[1]] * factor;
            T *to = x + j * sx[1];
            for (word y = y0; y < y1; y++)
              for (word z = x0; z < x1; z++) {
                const T part = !winner || winner[j] == y * kw + z ? a : 0;
                T *place = to + y * sx[2] + z * sx[3];
                *place = tiles ? part : *place + part;
              }
          }
        }
      }
    }
  }
}
"""
