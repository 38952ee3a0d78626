/* Lines of HTK's label files: cntk/readers/htk/mlf.py. */
#include "base.h"
#include "label_lines_arguments.h"
#include <stdlib.h>

static int is_blank(char c) { return c == ' ' || c == '\t'; }

/* A line between blanks. It is `odd` where it has control characters, and `foreign` where it has
   more than ASCII: Python cuts lines at some of the first, and words at some of the others. */
typedef struct { const char *at, *end; int odd, foreign; } line;

static line line_of(const char *at, const char *newline) {
  line l = {at, newline, 0, 0};
  if (l.end > l.at && l.end[-1] == '\r') l.end--;
  for (const char *c = l.at; c < l.end; c++) {
    const uint8_t byte = *c;
    l.odd |= (byte < ' ' && byte != '\t') || byte == 127, l.foreign |= byte > 127;
  }
  while (l.at < l.end && is_blank(*l.at)) l.at++;
  while (l.at < l.end && is_blank(l.end[-1])) l.end--;
  return l;
}

/* the length of the next word, which `l` begins with afterwards; 0 where there is none */
static word next_word(line *l, const char **begin) {
  while (l->at < l->end && is_blank(*l->at)) l->at++;
  *begin = l->at;
  while (l->at < l->end && !is_blank(*l->at)) l->at++;
  return l->at - *begin;
}

/* the next word as a whole number that a double holds; -1 where it is another one, or none */
static word next_number(line *l) {
  const char *begin;
  const word digits = next_word(l, &begin);
  word value = 0;
  if (digits < 1 || digits > 15) return -1;
  for (word i = 0; i < digits; i++) {
    if (begin[i] < '0' || begin[i] > '9') return -1;
    value = value * 10 + (begin[i] - '0');
  }
  return value;
}

/* The number of a word among the different ones, in order of appearance; -1 where there is no room
   for another. `table` holds numbers plus 1, at most half of its places are taken. */
static word number_of(struct label_lines *a, uint32_t *table, word slots, const char *text,
                      word length) {
  uint64_t hash = 14695981039346656037u;  /* FNV-1a */
  for (word i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 1099511628211u;
  hash ^= hash >> 32;
  for (word at = hash & (slots - 1);; at = (at + 1) & (slots - 1)) {
    const word number = (word)table[at] - 1;
    if (number < 0) {
      if (a->words == a->room) return -1;
      a->places[a->words] = text - (const char *)a->text, a->lengths[a->words] = length;
      table[at] = ++a->words;
      return a->words - 1;
    }
    if (a->lengths[number] == length && !memcmp(a->text + a->places[number], text, length))
      return number;
  }
}

/* Reads whole utterances from `begin` on, until one has a line that is not plain, or there is no
   room left, or the text ends: there is `at` afterwards. */
EXPORT(label_lines)(struct label_lines *a) {
  const char *text = (const char *)a->text, *const end = text + a->size;
  word slots = 2;
  while (slots < 2 * a->room) slots *= 2;
  uint32_t *table = a->numbered ? 0 : calloc(slots, sizeof *table);
  const char *at = text + a->begin, *newline;
  word count = 0, inside = 0;
  a->at = a->begin, a->labels = a->utterances = a->words = 0;
  if (!table && !a->numbered) return;
  while (at < end && (newline = memchr(at, '\n', end - at))) {
    line l = line_of(at, newline);
    at = newline + 1;
    if (l.odd) break;
    if (l.at == l.end) {
      if (!inside) a->at = at - text;
      continue;
    }
    if (!inside) {
      if (a->utterances == a->most_utterances) break;
      if (l.end - l.at < 3 || *l.at != '"' || l.end[-1] != '"') break;
      a->titles[a->utterances] = l.at - text, a->title_ends[a->utterances] = l.end - text;
      inside = 1;
    } else if (l.foreign) {
      break;
    } else if (l.end - l.at == 1 && *l.at == '.') {
      inside = 0;
      a->at = at - text, a->labels = count, a->ends[a->utterances++] = count;
    } else {
      const char *name;
      const word start = next_number(&l), stop = next_number(&l), length = next_word(&l, &name);
      if (count == a->most || start < 0 || stop < 0 || !length) break;
      const word number =
          a->numbered ? next_number(&l) : number_of(a, table, slots, name, length);
      if (number < 0 || number > INT32_MAX) break;
      a->starts[count] = start, a->stops[count] = stop, a->numbers[count++] = number;
    }
  }
  free(table);
}
