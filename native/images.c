/* Images as convolutions and poolings read them: operators/direct/images.py. */
#include "images.h"

/* all images are copied, each by one thread */
EXPORT(pad)(const struct pad *a, word t, word threads) {
  const word images = a->image.images;
  for (word n = images * t / threads; n < images * (t + 1) / threads; n++) image(&a->image, n, n);
}
