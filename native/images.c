/* Images as convolutions and poolings read them: operators/direct/images.py. */
#include "images.h"

/* all images are copied, row by row of the copies */
EXPORT(pad)(const struct pad *a, word t, word threads) {
  const struct image *all = &a->image;
  const word rows = all->images * all->high;
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++)
    copy_rows(all, u / all->high, u % all->high, u % all->high + 1, all->copies + u / all->high * all->room);
}
