// Notes an id outside [least, bound), or `never`.
KERNEL check_ids(const ID *ids, int64 *note, int64 size, int64 least, int64 bound, int64 never) {
  EACH(i, size) {
    int64 id = ids[i];
    if ((id < least || id >= bound || id == never) && FIRST_TO_MARK(note)) {
      note[1] = i;
      note[2] = id;
    }
  }
}
