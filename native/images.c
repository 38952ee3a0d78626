/* Images as convolutions and poolings read them: operators/direct/images.py; arrays turned:
   framework/fusion/rows/row_copies.py. */
#include "images.h"

/* all images are copied, row by row of the copies */
EXPORT(pad)(const struct pad *a, word t, word threads) {
  const struct image *all = &a->image;
  const word rows = all->images * all->high;
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++)
    copy_rows(all, u / all->high, u % all->high, u % all->high + 1, all->copies + u / all->high * all->room);
}

EXPORT(turned)(const struct turned *a, word t, word threads) {
  const word parts = (a->rows + LANES - 1) / LANES, all = a->count * parts;
  for (word u = all * t / threads; u < all * (t + 1) / threads; u++) {
    const word at = u / parts, row = u % parts * LANES;
    turn_all(a->x + a->x_places[at] + row * a->down, a->down, least(LANES, a->rows - row),
             a->columns, a->out + a->out_places[at] + row, a->across);
  }
}
