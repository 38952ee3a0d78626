// Whether a sample counts; a label that is no class is noted, and does not count.
DEVICE int counts(int64 label, int64 sample, int64 classes, int64 ignored, int64 *note) {
  if (label == ignored) return 0;
  if (label >= 0 && label < classes) return 1;
  if (FIRST_TO_MARK(note)) {
    note[1] = sample;
    note[2] = label;
  }
  return 0;
}

KERNEL check_labels(const int64 *labels, uint8 *valid, int64 *note, int64 size, int64 classes,
                    int64 ignored) {
  EACH(i, size) valid[i] = counts(labels[i], i, classes, ignored, note);
}
