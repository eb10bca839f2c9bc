/* Turns the text of trace events into columns of codes, whole numbers and times, without objects.
 *
 * It reads JSON as the writers of profiles lay it out and stops before the first event that is
 * anything else: the decoder in event_pieces.py takes it from there. So nothing is repaired or
 * guessed here, and what it does read is read as that decoder reads it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <stdint.h>
#include <string.h>
#if defined(__GNUC__) && defined(__SSE2__)
#include <emmintrin.h>
#endif

/* How reading a part ended: as expected, at the end of the text, or at something unexpected.
 * FAILED has raised. */
enum { READ, CUT, ODD, FAILED };

enum { MOST_KNOWN_KEYS = 512, MOST_COUNTER_KEYS = 4 };
enum { MOST_COUNTER_ARGS = 1024 }; /* each key is compared with all before it */
enum { DEEPEST = 64, MOST_KEYS = 64, MOST_DIGITS = 18, MOST_PLAIN_DIGITS = 300 };

/* Bytes that are read at once, where so many are left. */
enum { BLOCK = 16, TWO_BLOCKS = 32 };

/* Bytes of an escaped character, and of one that takes two surrogates. */
enum { SHORT_ESCAPE = 6, LONG_ESCAPE = 12 };

/* What an arg is; the numbers stand in event_columns.py too. */
enum { IS_TEXT, IS_WHOLE, IS_QUOTED_WHOLE, IS_REAL };

/* -- memory ------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t used, room;
} Buffer;

static inline int push(Buffer *buffer, const void *bytes, size_t count)
{
    if (buffer->room - buffer->used < count) {
        size_t room = 2 * buffer->room + count + 256;
        char *grown = PyMem_Realloc(buffer->bytes, room);
        if (grown == NULL) {
            PyErr_NoMemory();
            return FAILED;
        }
        buffer->bytes = grown;
        buffer->room = room;
    }
    memcpy(buffer->bytes + buffer->used, bytes, count);
    buffer->used += count;
    return READ;
}

static int push_code(Buffer *buffer, int32_t code)
{
    return push(buffer, &code, sizeof code);
}

static int push_number(Buffer *buffer, int64_t number)
{
    return push(buffer, &number, sizeof number);
}

/* -- distinct texts ----------------------------------------------------------------------- */

enum { MOST_TOLD_BY_ENDS = 16 };

/* A short text is told by its first and last eight bytes, which overlap. */
typedef struct {
    uint64_t hash, first, last;
    size_t begin, length;
} Entry;

/* Texts by code, and an open table of codes + 1 by hash. */
typedef struct {
    Buffer text, entries;
    int32_t *slots;
    size_t mask;
    uint64_t secret; /* mixed into hashes, so that no file can make its texts collide */
    int32_t count, told;
} Texts;

static inline uint32_t four_at(const char *text)
{
    uint32_t word;
    memcpy(&word, text, sizeof word);
    return word;
}

static inline uint64_t eight_at(const char *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return word;
}

static inline uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

/* The ends of a text, by which it is told if it is short. */
static inline Entry ends_of(const char *text, size_t length)
{
    Entry entry = {0, 0, 0, 0, length};
    if (length >= 8) {
        entry.first = eight_at(text);
        entry.last = eight_at(text + length - 8);
    } else if (length >= 4) {
        entry.first = four_at(text);
        entry.last = four_at(text + length - 4);
    } else if (length > 0) {
        entry.first = (unsigned char)text[0] | (uint64_t)(unsigned char)text[length / 2] << 8;
        entry.last = (unsigned char)text[length - 1];
    }
    return entry;
}

/* What a text is looked up by; its place among all texts is not known yet. */
static inline Entry entry_for(uint64_t secret, const char *text, size_t length)
{
    Entry entry = ends_of(text, length);
    uint64_t even = mixed(secret ^ length, entry.first);
    uint64_t odd = mixed(mixed(secret, ~(uint64_t)length), entry.last);
    /* The rest is mixed in two strands, which do not wait for each other. */
    for (size_t at = 8; at + 8 < length; at += 16) {
        even = mixed(even, eight_at(text + at));
        if (at + 16 < length)
            odd = mixed(odd, eight_at(text + at + 8));
    }
    entry.hash = mixed(even, odd);
    return entry;
}

static inline const Entry *entry_of(const Texts *texts, int32_t code)
{
    return (const Entry *)texts->entries.bytes + code;
}

static inline int is_text(const Texts *texts, const Entry *known, const Entry *wanted,
                          const char *text)
{
    return known->hash == wanted->hash && known->length == wanted->length &&
           known->first == wanted->first && known->last == wanted->last &&
           (known->length <= MOST_TOLD_BY_ENDS ||
            memcmp(texts->text.bytes + known->begin, text, known->length) == 0);
}

static inline int32_t *slot_of(const Texts *texts, const Entry *wanted, const char *text)
{
    for (size_t at = wanted->hash & texts->mask;; at = (at + 1) & texts->mask) {
        int32_t *slot = &texts->slots[at];
        if (*slot == 0 || is_text(texts, entry_of(texts, *slot - 1), wanted, text))
            return slot;
    }
}

static int widen(Texts *texts)
{
    size_t places = texts->slots ? 2 * (texts->mask + 1) : 1024;
    int32_t *slots = PyMem_Calloc(places, sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    PyMem_Free(texts->slots);
    texts->slots = slots;
    texts->mask = places - 1;
    for (int32_t code = 0; code < texts->count; code++) {
        size_t at = entry_of(texts, code)->hash & texts->mask;
        while (slots[at])
            at = (at + 1) & texts->mask;
        slots[at] = code + 1;
    }
    return READ;
}

/* The code of a text, a new one where it was not seen before. */
static int code_of(Texts *texts, const char *text, size_t length, int32_t *code)
{
    if (2 * (size_t)texts->count >= texts->mask && widen(texts) == FAILED)
        return FAILED;
    Entry entry = entry_for(texts->secret, text, length);
    int32_t *slot = slot_of(texts, &entry, text);
    if (*slot == 0) {
        entry.begin = texts->text.used;
        if (texts->count == INT32_MAX - 1) {
            PyErr_SetString(PyExc_OverflowError, "too many distinct texts");
            return FAILED;
        }
        if (push(&texts->text, text, length) == FAILED ||
            push(&texts->entries, &entry, sizeof entry) == FAILED)
            return FAILED;
        *slot = ++texts->count;
    }
    *code = *slot - 1;
    return READ;
}

/* A short text that was there before, and its code; or nothing, of no length. */
typedef struct {
    Entry ends;
    int32_t code;
} Recent;

/* The code of a text that is often the same as the one before. */
static inline int code_of_recent(Texts *texts, Recent *recent, const char *text, size_t length,
                                 int32_t *code)
{
    Entry ends = ends_of(text, length);
    if (length == recent->ends.length && ends.first == recent->ends.first &&
        ends.last == recent->ends.last) {
        *code = recent->code;
        return READ;
    }
    if (code_of(texts, text, length, code) == FAILED)
        return FAILED;
    if (length <= MOST_TOLD_BY_ENDS) {
        recent->ends = ends;
        recent->code = *code;
    }
    return READ;
}

/* The texts that were not handed over yet, in the order of their codes. */
static PyObject *fresh(Texts *texts)
{
    PyObject *list = PyList_New(texts->count - texts->told);
    if (list == NULL)
        return NULL;
    for (int32_t code = texts->told; code < texts->count; code++) {
        const Entry *entry = entry_of(texts, code);
        PyObject *text = PyBytes_FromStringAndSize(
            texts->text.bytes + entry->begin, (Py_ssize_t)entry->length);
        if (text == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, code - texts->told, text);
    }
    texts->told = texts->count;
    return list;
}

static void release(Texts *texts)
{
    PyMem_Free(texts->text.bytes);
    PyMem_Free(texts->entries.bytes);
    PyMem_Free(texts->slots);
}

/* -- JSON --------------------------------------------------------------------------------- */

typedef struct {
    const char *at, *end;
} Cursor;

/* A value as it is spelled, quotes included. */
typedef struct {
    const char *begin, *end;
    int escaped;
} Token;

typedef struct {
    int64_t value;
    double real;
    int is_whole, fits;
} Number;

static inline void skip_white(Cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at <= ' ' &&
           (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\r' ||
            *cursor->at == '\t'))
        cursor->at++;
}

/* Whether the next character is this one, behind any white space; it is stepped over. */
static inline int expect(Cursor *cursor, char character)
{
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at != character)
        return ODD;
    cursor->at++;
    return READ;
}

static inline int is_digit(char character)
{
    return character >= '0' && character <= '9';
}

#if defined(__GNUC__) && defined(__SSE2__)

/* How many of the next bytes are plain text: no quote, no backslash, no control. */
static inline int plain_bytes(const char *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i found = _mm_or_si128(_mm_or_si128(quote, slash), control);
    return __builtin_ctz((unsigned)_mm_movemask_epi8(found) | 1U << BLOCK);
}

/* How many of the next bytes are digits. */
static inline int digit_bytes(const char *at)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i value = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
    __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
    return __builtin_ctz(~(unsigned)_mm_movemask_epi8(digit) | 1U << BLOCK);
}

static inline uint32_t same_in_block(const char *at, const char *other)
{
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at),
                                                      _mm_loadu_si128((const __m128i *)other)));
}

/* Which of the next bytes are the same in both, a bit each. */
static inline uint32_t same_bytes(const char *at, const char *other)
{
    return same_in_block(at, other) | same_in_block(at + BLOCK, other + BLOCK) << BLOCK;
}

#else

static inline int plain_bytes(const char *at)
{
    int count = 0;
    while (count < BLOCK && at[count] != '"' && at[count] != '\\' &&
           (unsigned char)at[count] >= ' ')
        count++;
    return count;
}

static inline int digit_bytes(const char *at)
{
    int count = 0;
    while (count < BLOCK && is_digit(at[count]))
        count++;
    return count;
}

static inline uint32_t same_bytes(const char *at, const char *other)
{
    uint32_t same = 0;
    for (int place = 0; place < TWO_BLOCKS; place++)
        same |= (uint32_t)(at[place] == other[place]) << place;
    return same;
}

#endif

/* Step over plain text, up to a quote, a backslash, a control or the end. */
static inline void skip_plain(Cursor *cursor)
{
    while (cursor->end - cursor->at >= BLOCK) {
        int count = plain_bytes(cursor->at);
        cursor->at += count;
        if (count < BLOCK)
            return;
    }
    while (cursor->at < cursor->end && *cursor->at != '"' && *cursor->at != '\\' &&
           (unsigned char)*cursor->at >= ' ')
        cursor->at++;
}

static inline const char *behind_digits(const char *at, const char *end)
{
    while (end - at >= BLOCK) {
        int count = digit_bytes(at);
        at += count;
        if (count < BLOCK)
            return at;
    }
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* The number of four hexadecimal digits, -1 if they are none. */
static int four_hex(const char *at)
{
    int number = 0;
    for (int place = 0; place < 4; place++) {
        char digit = at[place] | 0x20;
        if (!is_digit(at[place]) && !(digit >= 'a' && digit <= 'f'))
            return -1;
        number = number << 4 | (is_digit(at[place]) ? at[place] - '0' : digit - 'a' + 10);
    }
    return number;
}

/* A character of 16 bits, or two surrogates that are one together; ODD for one without the other,
 * which is no text. */
static int read_unicode(Cursor *cursor)
{
    int number = four_hex(cursor->at + 2);
    if (number < 0 || (number >= 0xDC00 && number <= 0xDFFF))
        return ODD;
    if (number < 0xD800 || number > 0xDFFF) {
        cursor->at += SHORT_ESCAPE;
        return READ;
    }
    if (cursor->end - cursor->at < LONG_ESCAPE)
        return CUT;
    int low = cursor->at[6] == '\\' && cursor->at[7] == 'u' ? four_hex(cursor->at + 8) : -1;
    cursor->at += LONG_ESCAPE;
    return low >= 0xDC00 && low <= 0xDFFF ? READ : ODD;
}

static int read_escape(Cursor *cursor)
{
    if (cursor->end - cursor->at < SHORT_ESCAPE)
        return CUT; /* at the very end of a text all of it is read again anyway */
    switch (cursor->at[1]) {
    case 'u':
        return read_unicode(cursor);
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        cursor->at += 2;
        return READ;
    default:
        return ODD;
    }
}

static inline int read_string(Cursor *cursor, Token *token)
{
    token->begin = cursor->at;
    token->escaped = 0;
    cursor->at++;
    for (;;) {
        skip_plain(cursor);
        if (cursor->at == cursor->end)
            return CUT;
        if (*cursor->at == '"') {
            token->end = ++cursor->at;
            return READ;
        }
        if (*cursor->at != '\\')
            return ODD;
        token->escaped = 1;
        do { /* one rarely comes alone: lines end in two */
            int ended = read_escape(cursor);
            if (ended != READ)
                return ended;
        } while (cursor->at < cursor->end && *cursor->at == '\\');
    }
}

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The nearest double: a quotient of two exact ones is rounded once; the rest is for the library. */
static int real_of(const char *begin, const char *end, uint64_t digits, int fits, int shift,
                   int negative, double *real)
{
    if (fits && digits <= UINT64_C(1) << 53 && shift >= -22 && shift <= 22 &&
        FLT_EVAL_METHOD == 0) {
        *real = shift < 0 ? (double)digits / TENS[-shift] : (double)digits * TENS[shift];
        if (negative)
            *real = -*real;
        return READ;
    }
    char *stop;
    *real = PyOS_string_to_double(begin, &stop, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return ODD;
    }
    return stop == end && *real - *real == 0 ? READ : ODD;
}

static int read_number(Cursor *cursor, Token *token, Number *number)
{
    const char *at = cursor->at, *end = cursor->end;
    uint64_t digits = 0;
    int count = 0, shift = 0, negative = at < end && *at == '-', exponent = 0;
    token->begin = at;
    token->escaped = 0;
    at += negative;
    if (at == end)
        return CUT;
    if (!is_digit(*at) || (*at == '0' && end - at > 1 && is_digit(at[1])))
        return ODD;
    for (; at < end && is_digit(*at); at++, count += digits != 0)
        digits = 10 * digits + (uint64_t)(*at - '0');
    number->is_whole = 1;
    if (at < end && *at == '.') {
        const char *point = at++;
        number->is_whole = 0;
        for (; at < end && is_digit(*at); at++, count += digits != 0)
            digits = 10 * digits + (uint64_t)(*at - '0');
        if (at < end && at == point + 1)
            return ODD;
        if (at - point > 1000)
            return ODD;
        shift = (int)(point + 1 - at);
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->is_whole = 0;
        at++;
        int down = at < end && *at == '-';
        if (at < end && (*at == '-' || *at == '+'))
            at++;
        const char *first = at;
        for (; at < end && is_digit(*at) && exponent < 10000; at++)
            exponent = 10 * exponent + (*at - '0');
        if (at < end && (at == first || is_digit(*at)))
            return ODD;
        shift += down ? -exponent : exponent;
    }
    if (at == end)
        return CUT;
    token->end = cursor->at = at;
    number->fits = count <= MOST_DIGITS;
    if (number->is_whole) {
        /* Of more digits than fit, which wrap, nothing but the spelling is used. */
        number->value = (int64_t)(negative ? 0 - digits : digits);
        return READ;
    }
    return real_of(token->begin, at, digits, number->fits, shift, negative, &number->real);
}

/* Step over a number, whose value is not asked for. */
static inline int skip_number(Cursor *cursor, Token *token)
{
    const char *end = cursor->end, *first = cursor->at + (*cursor->at == '-');
    const char *at = behind_digits(first, end);
    if (at == first || (*first == '0' && at - first > 1))
        return ODD;
    if (at < end && *at == '.') {
        const char *point = at;
        at = behind_digits(point + 1, end);
        if (at == point + 1)
            return ODD;
    }
    if (at == end)
        return CUT;
    if (*at == 'e' || *at == 'E' || at - first > MOST_PLAIN_DIGITS) {
        Number number;
        return read_number(cursor, token, &number);
    }
    token->begin = cursor->at;
    token->escaped = 0;
    token->end = cursor->at = at;
    return READ;
}

static int read_value(Cursor *cursor, Token *token, int depth);

/* Step over a value of any kind; most are strings and numbers. */
static inline int skip_value(Cursor *cursor, Token *token, int depth)
{
    if (cursor->at < cursor->end && *cursor->at == '"')
        return read_string(cursor, token);
    if (cursor->at < cursor->end && is_digit(*cursor->at))
        return skip_number(cursor, token);
    return read_value(cursor, token, depth);
}

static int read_literal(Cursor *cursor, Token *token, const char *spelling)
{
    size_t length = strlen(spelling), left = (size_t)(cursor->end - cursor->at);
    if (memcmp(cursor->at, spelling, left < length ? left : length) != 0)
        return ODD;
    if (left < length)
        return CUT;
    token->begin = cursor->at;
    token->escaped = 0;
    token->end = cursor->at += length;
    return READ;
}

static inline int read_colon(Cursor *cursor)
{
    int ended = expect(cursor, ':');
    skip_white(cursor);
    return ended;
}

static inline int read_key(Cursor *cursor, Token *key)
{
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at != '"')
        return ODD;
    int ended = read_string(cursor, key);
    if (ended != READ)
        return ended;
    return read_colon(cursor);
}

/* What follows a member of an object or list: whether there is another, or it is closed. */
static inline int read_next(Cursor *cursor, char close, int *more)
{
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    *more = *cursor->at == ',';
    if (!*more && *cursor->at != close)
        return ODD;
    cursor->at++;
    return READ;
}

/* Step over what opens an object or list; whether it has any members. */
static int read_opening(Cursor *cursor, char close, int *more)
{
    cursor->at++;
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    *more = *cursor->at != close;
    if (!*more)
        cursor->at++;
    return READ;
}

static int read_members(Cursor *cursor, Token *token, int depth)
{
    char open = *cursor->at, close = open == '{' ? '}' : ']';
    int more, ended;
    Token inner;
    if (depth == DEEPEST)
        return ODD;
    token->begin = cursor->at;
    token->escaped = 0;
    ended = read_opening(cursor, close, &more);
    while (ended == READ && more) {
        if (open == '{')
            ended = read_key(cursor, &inner);
        else
            skip_white(cursor);
        if (ended == READ)
            ended = skip_value(cursor, &inner, depth + 1);
        if (ended == READ)
            ended = read_next(cursor, close, &more);
    }
    token->end = cursor->at;
    return ended;
}

/* Step over a value of any kind. */
static int read_value(Cursor *cursor, Token *token, int depth)
{
    if (cursor->at == cursor->end)
        return CUT;
    switch (*cursor->at) {
    case '"':
        return read_string(cursor, token);
    case '{':
    case '[':
        return read_members(cursor, token, depth);
    case 't':
        return read_literal(cursor, token, "true");
    case 'f':
        return read_literal(cursor, token, "false");
    case 'n':
        return read_literal(cursor, token, "null");
    default:
        return skip_number(cursor, token);
    }
}

/* -- times -------------------------------------------------------------------------------- */

#define PARTS_IN_NS INT64_C(1000000000000)
#define MOST_US INT64_C(9000000000000000)

enum { FRACTION_DIGITS = 15, WHOLE_DIGITS = 16 };

static const int64_t POWERS[FRACTION_DIGITS + 1] = {
    INT64_C(1),           INT64_C(10),           INT64_C(100),
    INT64_C(1000),        INT64_C(10000),        INT64_C(100000),
    INT64_C(1000000),     INT64_C(10000000),     INT64_C(100000000),
    INT64_C(1000000000),  INT64_C(10000000000),  INT64_C(100000000000),
    INT64_C(1000000000000), INT64_C(10000000000000), INT64_C(100000000000000),
    INT64_C(1000000000000000)};

/* The number that eight digits spell: pairs, then fours, then all are put together at once. */
static inline int64_t eight_digits(const char *at)
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t one_of_four = UINT64_C(0x000000FF000000FF);
    uint64_t word = eight_at(at) - UINT64_C(0x3030303030303030);
    word = 10 * word + (word >> 8);
    word = (word & one_of_four) * (UINT64_C(1000000) << 32 | 100) +
           ((word >> 16) & one_of_four) * (UINT64_C(10000) << 32 | 1);
    return (int64_t)(word >> 32);
#else
    int64_t number = 0;
    for (int place = 0; place < 8; place++)
        number = 10 * number + (at[place] - '0');
    return number;
#endif
}

/* Decimal microseconds as whole nanoseconds and the rest in parts of one; see decimals.py. */
static int time_of(const Token *token, int64_t *whole_ns, int64_t *part)
{
    const char *at = token->begin, *end = token->end;
    int64_t whole_us = 0, fraction = 0;
    int quoted = *at == '"', count = 0;
    at += quoted;
    end -= quoted;
    const char *point = behind_digits(at, end);
    if (point == at || point - at > WHOLE_DIGITS)
        return ODD;
    for (; point - at >= 8; at += 8)
        whole_us = 100000000 * whole_us + eight_digits(at);
    for (; at < point; at++)
        whole_us = 10 * whole_us + (*at - '0');
    if (whole_us >= MOST_US)
        return ODD;
    if (at < end && *at == '.')
        for (at++; at < end && is_digit(*at); at++)
            if (count < FRACTION_DIGITS) {
                fraction = 10 * fraction + (*at - '0');
                count++;
            }
    if (at != end)
        return ODD;
    fraction *= POWERS[FRACTION_DIGITS - count];
    *whole_ns = 1000 * whole_us + fraction / PARTS_IN_NS;
    *part = fraction % PARTS_IN_NS;
    return READ;
}

static size_t length_of(const Token *token)
{
    return (size_t)(token->end - token->begin);
}

/* Whether text is UTF-8, ODD if not; nearly all of it is ASCII. */
static int check_utf8(const Token *token)
{
    const char *at = token->begin;
    uint64_t found = 0;
    for (; token->end - at >= 8; at += 8)
        found |= eight_at(at);
    for (; at < token->end; at++)
        found |= (unsigned char)*at;
    if (!(found & UINT64_C(0x8080808080808080)))
        return READ;
    PyObject *decoded = PyUnicode_DecodeUTF8(token->begin, (Py_ssize_t)length_of(token), NULL);
    if (decoded == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return FAILED;
    PyErr_Clear();
    Py_XDECREF(decoded);
    return decoded == NULL ? ODD : READ;
}

/* -- events ------------------------------------------------------------------------------- */

/* Events, where the end of an arrow is its id. */
typedef struct {
    unsigned char *phase;
    int32_t *group, *name, *category;
    int64_t *start, *end;
    size_t count, room;
} Events;

/* Args in the order of the events whose rows they name. */
typedef struct {
    int32_t *row, *key;
    unsigned char *kind;
    int64_t *value;
    size_t count, room;
} Args;

/* All that stood between two values of an object, or before its first one: what opens it or a comma,
 * a key, a colon, white space. The same bytes in the same place are the same again, and are stepped
 * over at once. Each has a bit in `bytes`; none has any. `what` tells the key. */
typedef struct {
    char text[TWO_BLOCKS];
    uint32_t bytes;
    int32_t length, what;
} Joint;

/* Joints of args are kept by the key before them; these stand for none, and for one untold. */
enum { NO_KEY = MOST_KNOWN_KEYS, UNTOLD_KEY, JOINTS_OF_ARGS };

/* The keys of an event, but for those of no use. Joints are kept by the key before them. */
enum { NO_FIELD, UNUSED, PH, NAME, PID, TID, TS, DUR, CATEGORY, ID, ARGS, FIELDS };

/* Letters that differ in case alone are of the same place: phases are told apart by the rest. */
enum { PHASES = 32 };

typedef struct {
    PyObject_HEAD
    /* Groups are texts of codes: process and thread of lanes, or process, name and keys of
     * counters. */
    Texts texts, keys, groups;
    int32_t zero, empty;
    Recent process, thread, category, counter, group;
    /* Events of a phase mostly have the same keys in the same order, and so have their args. */
    Joint fields[PHASES][FIELDS], known[JOINTS_OF_ARGS], counter_keys[MOST_COUNTER_KEYS];
    /* The first of `keys` are asked for, the others are told apart to step over them. */
    int32_t asked;
    /* Of the last event without a length whose args came before its phase, and were misread. */
    char early_phase;
    /* Keys by how their values are read: strictly, as any value, or for their spelling. */
    int first_loose, first_raw, with_counters, with_instants;
    /* Whether the args of an event are one value, under the first key. */
    int args_are_whole;
    Events events;
    Args args;
    /* How many of these were held before the text at hand. */
    size_t events_before, args_before;
    /* Places in the text, of metadata and of times that are spelled oddly. */
    Buffer metadata, odd_times;
    /* The group of the event at hand, and a value that is spelled anew. */
    Buffer codes, spelling;
    /* Events of phases that are drawn nowhere, and counters that nobody asks for. */
    int64_t others, unread;
} Scanner;

/* One event as it is spelled; an absent value has no begin. */
typedef struct {
    /* The phase, and that which the args were read for. */
    char phase, args_phase;
    Token values[FIELDS];
} Event;

/* Begin without values. No more is cleared than tells so, since this is done for each event. */
static inline void forget_event(Event *event)
{
    event->phase = event->args_phase = 0;
    for (int field = 0; field < FIELDS; field++)
        event->values[field].begin = NULL;
}

/* Of a key of use, with its quotes; so much follows on every key of an event that is whole. */
enum { LONGEST_FIELD = 6 };

/* Make room for as many more values in a column; it stays as it is where there is none. */
static int widen_column(void *column, size_t room, size_t size)
{
    void *grown;
    memcpy(&grown, column, sizeof grown);
    grown = PyMem_Realloc(grown, room * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    memcpy(column, &grown, sizeof grown);
    return READ;
}

static int widen_events(Events *events)
{
    size_t room = 2 * events->room + 1024;
    if (widen_column(&events->phase, room, sizeof *events->phase) == FAILED ||
        widen_column(&events->group, room, sizeof *events->group) == FAILED ||
        widen_column(&events->name, room, sizeof *events->name) == FAILED ||
        widen_column(&events->category, room, sizeof *events->category) == FAILED ||
        widen_column(&events->start, room, sizeof *events->start) == FAILED ||
        widen_column(&events->end, room, sizeof *events->end) == FAILED)
        return FAILED;
    events->room = room;
    return READ;
}

static int widen_args(Args *args)
{
    size_t room = 2 * args->room + 1024;
    if (widen_column(&args->row, room, sizeof *args->row) == FAILED ||
        widen_column(&args->key, room, sizeof *args->key) == FAILED ||
        widen_column(&args->kind, room, sizeof *args->kind) == FAILED ||
        widen_column(&args->value, room, sizeof *args->value) == FAILED)
        return FAILED;
    args->room = room;
    return READ;
}

static inline int push_arg(Scanner *scanner, int32_t key, unsigned char kind, int64_t value)
{
    Args *args = &scanner->args;
    if (args->count == args->room && widen_args(args) == FAILED)
        return FAILED;
    size_t at = args->count++;
    args->row[at] = (int32_t)scanner->events.count;
    args->key[at] = key;
    args->kind[at] = kind;
    args->value[at] = value;
    return READ;
}

static int push_text(Scanner *scanner, int32_t key, const Token *token)
{
    int32_t code;
    if (code_of(&scanner->texts, token->begin, length_of(token), &code) == FAILED)
        return FAILED;
    return push_arg(scanner, key, IS_TEXT, code);
}

/* Whether a text is a whole number of 64 bits as str() would write it. */
static int is_whole(const char *at, const char *end, int64_t *value)
{
    int negative = at < end && *at == '-';
    uint64_t digits = 0;
    at += negative;
    if (at == end || end - at > MOST_DIGITS + 1 || (*at == '0' && (end - at > 1 || negative)))
        return 0;
    for (; at < end; at++) {
        if (!is_digit(*at))
            return 0;
        digits = 10 * digits + (uint64_t)(*at - '0');
    }
    if (digits > INT64_MAX)
        return 0;
    *value = negative ? -(int64_t)digits : (int64_t)digits;
    return 1;
}

/* Read the value of an arg into the columns. `strict` takes what the decoder takes for args of
 * complete events: a string, a number, or null, which is as if it were absent. */
static int read_arg(Scanner *scanner, Cursor *cursor, int32_t key, int strict)
{
    Token token;
    Number number;
    int64_t value;
    int ended;
    if (cursor->at == cursor->end)
        return CUT;
    char first = *cursor->at;
    if (first == '-' || is_digit(first)) {
        ended = read_number(cursor, &token, &number);
        if (ended != READ)
            return ended;
        if (!number.is_whole) {
            memcpy(&value, &number.real, sizeof value);
            return push_arg(scanner, key, IS_REAL, value);
        }
        return number.fits ? push_arg(scanner, key, IS_WHOLE, number.value)
                           : push_text(scanner, key, &token);
    }
    if (strict && first != '"' && first != 'n')
        return ODD;
    ended = read_value(cursor, &token, 2);
    if (ended != READ || (strict && first == 'n'))
        return ended;
    if (first == '"' && is_whole(token.begin + 1, token.end - 1, &value))
        return push_arg(scanner, key, IS_QUOTED_WHOLE, value);
    return push_text(scanner, key, &token);
}

/* The same for an arg of which the spelling is wanted: as a string, empty if it is no number. */
static int read_raw_arg(Scanner *scanner, Cursor *cursor, int32_t key)
{
    Token token;
    int ended = read_value(cursor, &token, 2);
    if (ended != READ)
        return ended;
    char first = *token.begin;
    int is_number = first == '-' || is_digit(first);
    Buffer *spelling = &scanner->spelling;
    spelling->used = 0;
    if (first != '"') {
        if (push(spelling, "\"", 1) == FAILED ||
            (is_number && push(spelling, token.begin, length_of(&token)) == FAILED) ||
            push(spelling, "\"", 1) == FAILED)
            return FAILED;
        token.begin = spelling->bytes;
        token.end = spelling->bytes + spelling->used;
    }
    return push_text(scanner, key, &token);
}

/* Note the bytes that were just stepped over, if they are few. */
static void note(Joint *joint, const char *begin, const Cursor *cursor, int32_t what)
{
    size_t length = (size_t)(cursor->at - begin);
    joint->bytes = 0;
    if (length > sizeof joint->text)
        return;
    memcpy(joint->text, begin, length);
    joint->bytes = UINT32_MAX >> (TWO_BLOCKS - length);
    joint->length = (int32_t)length;
    joint->what = what;
}

/* Step over a joint if the text goes on with it; where hardly any text is left it is not tried. */
static inline int follows(const Joint *joint, Cursor *cursor)
{
    if (cursor->end - cursor->at < TWO_BLOCKS || !joint->bytes ||
        joint->bytes & ~same_bytes(cursor->at, joint->text))
        return 0;
    cursor->at += joint->length;
    skip_white(cursor);
    return 1;
}

/* Step over what opens an object or, behind a value of it, goes on; whether a key comes. */
static inline int read_on(Cursor *cursor, int is_first, int *more)
{
    return is_first ? read_opening(cursor, '}', more) : read_next(cursor, '}', more);
}

/* The number of a key, -1 for one that is not asked for and not known. */
static int number_of_key(Scanner *scanner, const Token *token, int32_t *code)
{
    size_t length = length_of(token);
    Entry entry = entry_for(scanner->keys.secret, token->begin, length);
    *code = *slot_of(&scanner->keys, &entry, token->begin) - 1;
    if (*code >= 0 || scanner->keys.count == MOST_KNOWN_KEYS)
        return READ;
    return code_of(&scanner->keys, token->begin, length, code);
}

/* Read up to the value of the next arg, if there is one: that which followed on the one before the
 * last time, or any. */
static inline int read_arg_key(Scanner *scanner, Cursor *cursor, int32_t before, int32_t *code,
                               int *more)
{
    Token token;
    Joint *joint = &scanner->known[before];
    const char *begin = cursor->at;
    *more = 1;
    *code = joint->what;
    if (follows(joint, cursor))
        return READ;
    int ended = read_on(cursor, before == NO_KEY, more);
    if (ended != READ || !*more)
        return ended;
    ended = read_key(cursor, &token);
    if (ended != READ)
        return ended;
    if (token.escaped)
        return ODD;
    ended = number_of_key(scanner, &token, code);
    if (ended == READ)
        note(joint, begin, cursor, *code);
    return ended;
}

/* The args of a complete event or an instant: those that are asked for. */
static int read_known_args(Scanner *scanner, Cursor *cursor)
{
    int32_t code, before = NO_KEY;
    int more, ended;
    uint64_t seen = 0;
    while ((ended = read_arg_key(scanner, cursor, before, &code, &more)) == READ && more) {
        Token value;
        before = code < 0 ? UNTOLD_KEY : code;
        if (code < 0 || code >= scanner->asked) {
            ended = skip_value(cursor, &value, 2);
        } else if (seen >> code & 1) {
            return ODD;
        } else {
            seen |= UINT64_C(1) << code;
            ended = code < scanner->first_raw
                        ? read_arg(scanner, cursor, code, code < scanner->first_loose)
                        : read_raw_arg(scanner, cursor, code);
        }
        if (ended != READ)
            return ended;
    }
    return ended;
}

/* Read up to the value of the next arg of a counter: mostly the key that was in its place before. */
static inline int read_counter_key(Scanner *scanner, Cursor *cursor, size_t place, int32_t *code,
                                   int *more)
{
    Token token;
    Joint *joint = place < MOST_COUNTER_KEYS ? &scanner->counter_keys[place] : NULL;
    const char *begin = cursor->at;
    *more = 1;
    if (joint != NULL && follows(joint, cursor)) {
        *code = joint->what;
        return READ;
    }
    int ended = read_on(cursor, place == 0, more);
    if (ended != READ || !*more)
        return ended;
    ended = read_key(cursor, &token);
    if (ended != READ)
        return ended;
    if (code_of(&scanner->texts, token.begin, length_of(&token), code) == FAILED)
        return FAILED;
    if (joint != NULL)
        note(joint, begin, cursor, *code);
    return READ;
}

/* The args of a counter event: all of them, with their keys noted as codes. */
static int read_all_args(Scanner *scanner, Cursor *cursor)
{
    Buffer *codes = &scanner->codes;
    int32_t code;
    int more, ended;
    while ((ended = read_counter_key(scanner, cursor, codes->used / sizeof code, &code, &more)) ==
               READ && more) {
        if (codes->used == MOST_COUNTER_ARGS * sizeof code)
            return ODD;
        for (size_t at = 0; at < codes->used; at += sizeof code)
            if (memcmp(codes->bytes + at, &code, sizeof code) == 0)
                return ODD;
        if (push_code(codes, code) == FAILED)
            return FAILED;
        ended = read_arg(scanner, cursor, code, 0);
        if (ended != READ)
            return ended;
    }
    return ended;
}

static int read_args(Scanner *scanner, Cursor *cursor, char phase)
{
    Token token;
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at == 'n')
        return read_literal(cursor, &token, "null");
    if (*cursor->at != '{')
        return ODD;
    if (phase != 'C' && scanner->args_are_whole) {
        int ended = read_value(cursor, &token, 1);
        return ended == READ ? push_text(scanner, 0, &token) : ended;
    }
    return phase == 'C' ? read_all_args(scanner, cursor) : read_known_args(scanner, cursor);
}

static int reads_args(const Scanner *scanner, char phase)
{
    return phase == 'X' || (phase == 'C' && scanner->with_counters) ||
           (phase == 'i' && scanner->with_instants);
}

/* The key of use at a place of the text and how long it is, or UNUSED. LONGEST_FIELD bytes must be
 * left. */
static inline int32_t field_at(const char *at, int *length)
{
    *length = 4;
    if (memcmp(at, "\"ts\"", 4) == 0)
        return TS;
    if (memcmp(at, "\"ph\"", 4) == 0)
        return PH;
    if (memcmp(at, "\"id\"", 4) == 0)
        return ID;
    *length = 5;
    if (memcmp(at, "\"pid\"", 5) == 0)
        return PID;
    if (memcmp(at, "\"tid\"", 5) == 0)
        return TID;
    if (memcmp(at, "\"dur\"", 5) == 0)
        return DUR;
    if (memcmp(at, "\"cat\"", 5) == 0)
        return CATEGORY;
    *length = 6;
    if (memcmp(at, "\"name\"", 6) == 0)
        return NAME;
    if (memcmp(at, "\"args\"", 6) == 0)
        return ARGS;
    return UNUSED;
}

/* Read up to the value of the next field of an event, if there is one. */
static inline int read_field(Joint *joints, Cursor *cursor, int32_t before, int32_t *field,
                             int *more)
{
    int length;
    Token key;
    Joint *joint = &joints[before];
    const char *begin = cursor->at;
    *more = 1;
    *field = joint->what;
    if (follows(joint, cursor))
        return READ;
    int ended = read_on(cursor, before == NO_FIELD, more);
    if (ended != READ || !*more)
        return ended;
    skip_white(cursor);
    if (cursor->end - cursor->at < LONGEST_FIELD)
        return CUT;
    *field = field_at(cursor->at, &length);
    if (*field != UNUSED) {
        cursor->at += length;
        ended = read_colon(cursor);
    } else {
        ended = read_key(cursor, &key);
        if (ended == READ && key.escaped)
            return ODD;
    }
    if (ended == READ)
        note(joint, begin, cursor, *field);
    return ended;
}

/* Drop what was read of the args of the event at hand. */
static void forget_args(Scanner *scanner, size_t args)
{
    scanner->args.count = args;
    scanner->codes.used = 0;
}

/* Read the args of an event of a phase, or step over them if that has none that are asked for. */
static int read_args_as(Scanner *scanner, Cursor *cursor, Event *event, char phase)
{
    Token unused;
    event->args_phase = phase;
    return reads_args(scanner, phase) ? read_args(scanner, cursor, phase)
                                      : read_value(cursor, &unused, 1);
}

/* Read args that come before the phase: mostly only intervals have a length by then, and what has
 * none is of the same phase as the one before. */
static int read_early_args(Scanner *scanner, Cursor *cursor, Event *event)
{
    Token unused;
    size_t args = scanner->args.count;
    char phase = event->values[DUR].begin != NULL ? 'X' : scanner->early_phase;
    int ended = read_args_as(scanner, cursor, event, phase);
    if (ended != ODD)
        return ended;
    forget_args(scanner, args);
    event->args_phase = 0;
    cursor->at = event->values[ARGS].begin;
    return read_value(cursor, &unused, 1);
}

static int read_phase(Cursor *cursor, Event *event)
{
    Token token;
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at != '"' || event->phase)
        return ODD;
    if (cursor->end - cursor->at > 2 && cursor->at[1] > '"' && cursor->at[1] != '\\' &&
        cursor->at[2] == '"') {
        event->phase = cursor->at[1];
        cursor->at += 3;
        return READ;
    }
    int ended = read_string(cursor, &token);
    if (ended != READ)
        return ended;
    if (token.escaped || token.end - token.begin != 3)
        return ODD;
    event->phase = token.begin[1];
    return READ;
}

/* Read an event, and its args into the columns. */
static int read_event(Scanner *scanner, Cursor *cursor, Event *event)
{
    size_t args = scanner->args.count;
    int32_t field, before = NO_FIELD;
    int more, ended;
    Joint *joints = scanner->fields[0];
    while ((ended = read_field(joints, cursor, before, &field, &more)) == READ && more) {
        before = field;
        if (field == PH) {
            ended = read_phase(cursor, event);
            joints = scanner->fields[event->phase & (PHASES - 1)];
        } else if (field == ARGS) {
            if (event->values[ARGS].begin != NULL)
                return ODD;
            event->values[ARGS].begin = cursor->at;
            ended = event->phase ? read_args_as(scanner, cursor, event, event->phase)
                                 : read_early_args(scanner, cursor, event);
        } else {
            ended = skip_value(cursor, &event->values[field], 1);
        }
        if (ended != READ)
            return ended;
    }
    if (ended != READ || !event->phase)
        return ended == READ ? ODD : ended;
    if (event->values[ARGS].begin == NULL || event->args_phase == event->phase)
        return READ;
    /* The phase came behind the args, and is another one than was expected. */
    if (event->values[DUR].begin == NULL)
        scanner->early_phase = event->phase;
    Cursor again = {event->values[ARGS].begin, cursor->end};
    forget_args(scanner, args);
    return read_args_as(scanner, &again, event, event->phase);
}

static int is_string(const Token *token)
{
    return token->begin == NULL || *token->begin == '"';
}

static int is_id(const Token *token)
{
    return is_string(token) || *token->begin == '-' || is_digit(*token->begin);
}

static int spelling_of(Scanner *scanner, const Token *token, int32_t absent, int32_t *code)
{
    *code = absent;
    if (token->begin == NULL)
        return READ;
    return code_of(&scanner->texts, token->begin, length_of(token), code);
}

static int recent_spelling_of(Scanner *scanner, Recent *recent, const Token *token, int32_t absent,
                              int32_t *code)
{
    *code = absent;
    if (token->begin == NULL)
        return READ;
    return code_of_recent(&scanner->texts, recent, token->begin, length_of(token), code);
}

static int push_place(Buffer *places, const char *text, const Token *token)
{
    int64_t place[2] = {0, 0};
    if (token->begin != NULL) {
        place[0] = token->begin - text;
        place[1] = token->end - text;
    }
    return push(places, place, sizeof place);
}

static int read_times(Scanner *scanner, const Event *event, const char *text, int64_t *start_ns,
                      int64_t *end_ns)
{
    int64_t part = 0, length_ns = 0, length_part = 0;
    *start_ns = 0;
    const Token *ts = &event->values[TS], *dur = &event->values[DUR];
    int odd = ts->begin == NULL || time_of(ts, start_ns, &part) != READ ||
              (dur->begin != NULL && time_of(dur, &length_ns, &length_part) != READ);
    Buffer *times = &scanner->odd_times;
    if (odd && (push_number(times, (int64_t)scanner->events.count) == FAILED ||
                push_place(times, text, ts) == FAILED ||
                push_place(times, text, dur) == FAILED))
        return FAILED;
    *end_ns = (int64_t)((uint64_t)*start_ns + (uint64_t)length_ns +
                        (uint64_t)((part + length_part + PARTS_IN_NS / 2) / PARTS_IN_NS));
    *start_ns += (part + PARTS_IN_NS / 2) / PARTS_IN_NS;
    return READ;
}

/* The id of an arrow: the number that it is, or the complement of a code, which is negative. */
static int read_id(Scanner *scanner, const Event *event, int64_t *value)
{
    const Token *id = &event->values[ID];
    int32_t code;
    int quoted = *id->begin == '"';
    if (is_whole(id->begin + quoted, id->end - quoted, value) && *value > 0)
        return READ;
    if (code_of(&scanner->texts, id->begin, length_of(id), &code) == FAILED)
        return FAILED;
    *value = ~(int64_t)code;
    return READ;
}

/* The group of an event: its process, and its thread or its name and the keys of its args. */
static int read_group(Scanner *scanner, const Event *event, int32_t *group)
{
    int32_t code;
    int is_counter = event->phase == 'C';
    Buffer *codes = &scanner->codes;
    if (!is_counter)
        codes->used = 0;
    if (recent_spelling_of(scanner, &scanner->process, &event->values[PID], scanner->zero, &code) ==
            FAILED ||
        push_code(codes, code) == FAILED ||
        (is_counter ? recent_spelling_of(scanner, &scanner->counter, &event->values[NAME],
                                         scanner->empty, &code)
                    : recent_spelling_of(scanner, &scanner->thread, &event->values[TID], scanner->zero,
                                         &code)) == FAILED ||
        push_code(codes, code) == FAILED)
        return FAILED;
    return code_of_recent(&scanner->groups, &scanner->group, codes->bytes, codes->used, group);
}

/* Whether an id is spelled as the only text that it can be: as digits, or without escapes. */
static int is_plain_id(const Token *id)
{
    if (id->begin == NULL || *id->begin == '"')
        return id->begin != NULL && !id->escaped;
    for (const char *at = id->begin; at < id->end; at++)
        if (!is_digit(*at))
            return 0;
    return 1;
}

/* Whether its values are of the types that the decoder takes. */
static int is_well_typed(const Event *event)
{
    const Token *name = &event->values[NAME], *category = &event->values[CATEGORY];
    const char *args = event->values[ARGS].begin;
    if (!is_id(&event->values[PID]))
        return 0;
    if (event->phase == 'i')
        return is_id(&event->values[TID]) && is_string(name) && is_string(category);
    if (event->phase == 'C')
        return is_string(name) && (args == NULL || *args == '{' || *args == 'n');
    return is_id(&event->values[TID]) && is_string(category) &&
           (event->phase == 'X' ? is_string(name) : is_plain_id(&event->values[ID]));
}

/* Note an event that was read. */
static int push_event(Scanner *scanner, Event *event, const char *text, const Token *whole)
{
    static const Token absent = {NULL, NULL, 0};
    char phase = event->phase;
    int is_arrow = phase == 's' || phase == 't' || phase == 'f';
    if (phase == 'M')
        return push_place(&scanner->metadata, text, whole);
    int is_instant = phase == 'i' && scanner->with_instants;
    if (phase != 'X' && phase != 'C' && !is_arrow && !is_instant) {
        scanner->others++;
        return READ;
    }
    if (!is_well_typed(event))
        return ODD;
    if (phase == 'C' && !scanner->with_counters) {
        /* The decoder tells text that is not UTF-8, whether or not it is asked for. */
        int ended = check_utf8(whole);
        scanner->unread += ended == READ;
        return ended;
    }
    Events *events = &scanner->events;
    if (events->count == events->room && widen_events(events) == FAILED)
        return FAILED;
    size_t at = events->count;
    if (read_group(scanner, event, &events->group[at]) == FAILED)
        return FAILED;
    if (phase != 'X')
        event->values[DUR] = absent;
    if (phase != 'X' && !is_instant)
        event->values[NAME] = absent;
    if (phase == 'C')
        event->values[CATEGORY] = absent;
    if (spelling_of(scanner, &event->values[NAME], scanner->empty, &events->name[at]) == FAILED ||
        recent_spelling_of(scanner, &scanner->category, &event->values[CATEGORY], scanner->empty,
                           &events->category[at]) == FAILED ||
        read_times(scanner, event, text, &events->start[at], &events->end[at]) == FAILED ||
        (is_arrow && read_id(scanner, event, &events->end[at]) == FAILED))
        return FAILED;
    events->phase[at] = (unsigned char)phase;
    events->count++;
    return READ;
}

/* Whether another event begins behind this one, or the list ends: only then it is known to be
 * whole. */
static int read_to_next_event(Cursor *cursor)
{
    skip_white(cursor);
    if (cursor->at < cursor->end && *cursor->at == ']')
        return READ;
    int ended = expect(cursor, ',');
    if (ended != READ)
        return ended;
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    return *cursor->at == '{' ? READ : ODD;
}

/* Read events as long as they are whole and as expected; how far is returned, -1 for an error.
 * They come behind those that are held. */
static Py_ssize_t scan_text(Scanner *scanner, const char *text, Py_ssize_t length)
{
    Cursor cursor = {text, text + length};
    scanner->events_before = scanner->events.count;
    scanner->args_before = scanner->args.count;
    scanner->metadata.used = scanner->odd_times.used = 0;
    scanner->others = scanner->unread = 0;
    skip_white(&cursor);
    if (cursor.at == cursor.end || *cursor.at != '{')
        return 0;
    for (;;) {
        const char *begin = cursor.at;
        size_t events = scanner->events.count, args = scanner->args.count;
        size_t metadata = scanner->metadata.used, odd_times = scanner->odd_times.used;
        int64_t others = scanner->others, unread = scanner->unread;
        Event event;
        forget_event(&event);
        scanner->codes.used = 0;
        int ended = read_event(scanner, &cursor, &event);
        if (ended == READ) {
            Token whole = {begin, cursor.at, 0};
            ended = push_event(scanner, &event, text, &whole);
        }
        if (ended == READ)
            ended = read_to_next_event(&cursor);
        if (ended == READ && *cursor.at == ']')
            return cursor.at - text;
        if (ended == FAILED)
            return -1;
        if (ended != READ) {
            scanner->events.count = events;
            scanner->args.count = args;
            scanner->metadata.used = metadata;
            scanner->odd_times.used = odd_times;
            scanner->others = others;
            scanner->unread = unread;
            return begin - text;
        }
    }
}

/* -- the type ----------------------------------------------------------------------------- */

static PyObject *slices_of(const Buffer *places, const char *text)
{
    size_t count = places->used / (2 * sizeof(int64_t));
    const int64_t *place = (const int64_t *)places->bytes;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t at = 0; list != NULL && at < count; at++, place += 2) {
        PyObject *slice = PyBytes_FromStringAndSize(text + place[0], place[1] - place[0]);
        if (slice == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)at, slice);
    }
    return list;
}

/* Rows, each with two slices of the text: [(row, slice, slice), ...]. */
static PyObject *rows_of(const Buffer *places, const char *text)
{
    size_t count = places->used / (5 * sizeof(int64_t));
    const int64_t *place = (const int64_t *)places->bytes;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t at = 0; list != NULL && at < count; at++, place += 5) {
        PyObject *row = Py_BuildValue(
            "(Ly#y#)", (long long)place[0], text + place[1], (Py_ssize_t)(place[2] - place[1]),
            text + place[3], (Py_ssize_t)(place[4] - place[3]));
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)at, row);
    }
    return list;
}

/* The columns of events and args, each as bytes. */
static PyObject *columns_of(const Scanner *scanner)
{
    const Events *events = &scanner->events;
    const Args *args = &scanner->args;
    const struct {
        const void *bytes;
        size_t size;
    } columns[] = {
        {events->phase, events->count * sizeof *events->phase},
        {events->group, events->count * sizeof *events->group},
        {events->name, events->count * sizeof *events->name},
        {events->category, events->count * sizeof *events->category},
        {events->start, events->count * sizeof *events->start},
        {events->end, events->count * sizeof *events->end},
        {args->row, args->count * sizeof *args->row},
        {args->key, args->count * sizeof *args->key},
        {args->kind, args->count * sizeof *args->kind},
        {args->value, args->count * sizeof *args->value},
    };
    Py_ssize_t count = sizeof columns / sizeof *columns;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t column = 0; list != NULL && column < count; column++) {
        PyObject *bytes =
            PyBytes_FromStringAndSize(columns[column].bytes, (Py_ssize_t)columns[column].size);
        if (bytes == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, column, bytes);
    }
    return list;
}

static PyObject *scan(PyObject *self, PyObject *text)
{
    Scanner *scanner = (Scanner *)self;
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(text, &bytes, &length) < 0)
        return NULL;
    if (length > INT32_MAX - (Py_ssize_t)scanner->events.count) {
        PyErr_SetString(PyExc_OverflowError, "the text and the events that are held exceed 2 GB");
        return NULL;
    }
    Py_ssize_t used = scan_text(scanner, bytes, length);
    if (used < 0)
        return NULL;
    return Py_BuildValue(
        "(nNNnNNLL)", used, fresh(&scanner->texts), fresh(&scanner->groups),
        (Py_ssize_t)(scanner->events.count - scanner->events_before),
        slices_of(&scanner->metadata, bytes), rows_of(&scanner->odd_times, bytes),
        (long long)scanner->others, (long long)scanner->unread);
}

static PyObject *undo(PyObject *self, PyObject *nothing)
{
    Scanner *scanner = (Scanner *)self;
    scanner->events.count = scanner->events_before;
    scanner->args.count = scanner->args_before;
    Py_RETURN_NONE;
}

static PyObject *take(PyObject *self, PyObject *nothing)
{
    Scanner *scanner = (Scanner *)self;
    PyObject *columns = columns_of(scanner);
    if (columns != NULL)
        scanner->events.count = scanner->args.count = 0;
    scanner->events_before = scanner->args_before = 0;
    return columns;
}

static int add_keys(Scanner *scanner, PyObject *keys)
{
    Py_ssize_t count = PySequence_Size(keys);
    if (count < 0)
        return -1;
    if (count > MOST_KEYS) {
        PyErr_SetString(PyExc_ValueError, "too many keys");
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        char *bytes;
        Py_ssize_t length;
        int32_t code;
        PyObject *key = PySequence_GetItem(keys, place);
        int failed = key == NULL || PyBytes_AsStringAndSize(key, &bytes, &length) < 0 ||
                     code_of(&scanner->keys, bytes, (size_t)length, &code) == FAILED;
        Py_XDECREF(key);
        if (failed)
            return -1;
    }
    scanner->asked = scanner->keys.count;
    return 0;
}

/* Take the word that keys the hashes from the system's source of random bytes. */
static int draw_secret(Scanner *scanner)
{
    uint64_t secret;
    PyObject *module = PyImport_ImportModule("os");
    PyObject *bytes = module ? PyObject_CallMethod(module, "urandom", "i", 8) : NULL;
    const char *data = bytes ? PyBytes_AsString(bytes) : NULL;
    if (data != NULL) {
        memcpy(&secret, data, sizeof secret);
        scanner->texts.secret = scanner->keys.secret = scanner->groups.secret = secret;
    }
    Py_XDECREF(bytes);
    Py_XDECREF(module);
    return data == NULL ? -1 : 0;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"keys", "first_loose", "first_raw", "counters", "instants",
                            "whole_args", NULL};
    PyObject *keys;
    int first_loose, first_raw, counters, instants, whole_args;
    if (!PyArg_ParseTupleAndKeywords(args, named, "Oiippp", names, &keys, &first_loose, &first_raw,
                                     &counters, &instants, &whole_args))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scanner *scanner = (Scanner *)allocate(type, 0);
    if (scanner == NULL)
        return NULL;
    scanner->first_loose = first_loose;
    scanner->first_raw = first_raw;
    scanner->with_counters = counters;
    scanner->with_instants = instants;
    scanner->args_are_whole = whole_args;
    if (draw_secret(scanner) < 0 || add_keys(scanner, keys) < 0 || widen(&scanner->keys) == FAILED ||
        code_of(&scanner->texts, "0", 1, &scanner->zero) == FAILED ||
        code_of(&scanner->texts, "\"\"", 2, &scanner->empty) == FAILED) {
        Py_DECREF(scanner);
        return NULL;
    }
    return (PyObject *)scanner;
}

static void destroy(PyObject *self)
{
    Scanner *scanner = (Scanner *)self;
    PyTypeObject *type = Py_TYPE(self);
    release(&scanner->texts);
    release(&scanner->keys);
    release(&scanner->groups);
    void *columns[] = {
        scanner->events.phase,    scanner->events.group, scanner->events.name,
        scanner->events.category, scanner->events.start, scanner->events.end,
        scanner->args.row,        scanner->args.key,     scanner->args.kind,
        scanner->args.value,
    };
    for (size_t column = 0; column < sizeof columns / sizeof *columns; column++)
        PyMem_Free(columns[column]);
    PyMem_Free(scanner->metadata.bytes);
    PyMem_Free(scanner->odd_times.bytes);
    PyMem_Free(scanner->codes.bytes);
    PyMem_Free(scanner->spelling.bytes);
    freefunc release_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_object(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(scanner_doc, "Scanner(keys, first_loose, first_raw, counters, instants, whole_args)\n--\n\n"
"Reads blocks of events into columns; see scanner.py.");
PyDoc_STRVAR(scan_doc, "scan(text)\n--\n\n"
"Read the events at the start of a text, up to the last or the first unexpected one.\n\n"
"They are held until they are taken.");

PyDoc_STRVAR(take_doc, "take()\n--\n\n"
"The columns of all events that are held, which are let go of.");
PyDoc_STRVAR(undo_doc, "undo()\n--\n\n"
"Let go of the events of the text that was scanned last.");

static PyMethodDef methods[] = {
    {"scan", scan, METH_O, scan_doc},
    {"take", take, METH_NOARGS, take_doc},
    {"undo", undo, METH_NOARGS, undo_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)scanner_doc}, {Py_tp_new, create},
    {Py_tp_dealloc, destroy},         {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "timeline.sources.decoders._scanner.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, slots,
};

static int execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    if (PyModule_AddObject(module, "Scanner", type) < 0) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scanner", NULL, 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scanner(void)
{
    return PyModuleDef_Init(&definition);
}
