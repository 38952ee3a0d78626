// Several copies at once. table: of each, the addresses of source and target, the columns of a row,
// and the elements from row to row of both. ends: where each ends among all elements.
KERNEL copy_parts(const int64 *table, const int64 *ends, int64 size) {
  EACH(i, size) {
    const int64 part = part_of(ends, i), at = i - (part ? ends[part - 1] : 0);
    const int64 *how = table + 5 * part, row = at / how[2], column = at % how[2];
    ((UNIT *)how[1])[row * how[4] + column] = ((const UNIT *)how[0])[row * how[3] + column];
  }
}
