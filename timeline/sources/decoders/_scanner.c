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

/* How reading a part ended: as expected, at the end of the text, or at something unexpected.
 * FAILED has raised. */
enum { READ, CUT, ODD, FAILED };

enum { DEEPEST = 64, MOST_KEYS = 64, MOST_DIGITS = 18 };

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

typedef struct {
    uint64_t hash;
    size_t begin, length;
} Entry;

/* Texts by code, and an open table of codes + 1 by hash. */
typedef struct {
    Buffer text, entries;
    int32_t *slots;
    size_t mask;
    int32_t count, told;
} Texts;

static inline uint64_t hash_of(const char *text, size_t length)
{
    const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t hash = length * factor, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * factor;
    return hash ^ (hash >> 32);
}

static const Entry *entry_of(const Texts *texts, int32_t code)
{
    return (const Entry *)texts->entries.bytes + code;
}

static int32_t *slot_of(const Texts *texts, uint64_t hash, const char *text, size_t length)
{
    for (size_t at = hash & texts->mask;; at = (at + 1) & texts->mask) {
        int32_t *slot = &texts->slots[at];
        if (*slot == 0)
            return slot;
        const Entry *entry = entry_of(texts, *slot - 1);
        if (entry->hash == hash && entry->length == length &&
            memcmp(texts->text.bytes + entry->begin, text, length) == 0)
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
    uint64_t hash = hash_of(text, length);
    int32_t *slot = slot_of(texts, hash, text, length);
    if (*slot == 0) {
        Entry entry = {hash, texts->text.used, length};
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
static int expect(Cursor *cursor, char character)
{
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at != character)
        return ODD;
    cursor->at++;
    return READ;
}

static int is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* Step over plain text, up to a quote, a backslash, a control or the end: eight bytes at a time. */
static void skip_plain(Cursor *cursor)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    while (cursor->end - cursor->at >= 8) {
        uint64_t word, quote, slash, found;
        memcpy(&word, cursor->at, 8);
        quote = word ^ (ones * '"');
        slash = word ^ (ones * '\\');
        found = (((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
                 ((word - ones * ' ') & ~word)) & tops;
        if (found) {
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            cursor->at += __builtin_ctzll(found) / 8;
            return;
#else
            break;
#endif
        }
        cursor->at += 8;
    }
    while (cursor->at < cursor->end && *cursor->at != '"' && *cursor->at != '\\' &&
           (unsigned char)*cursor->at >= ' ')
        cursor->at++;
}

static int read_escape(Cursor *cursor)
{
    if (cursor->end - cursor->at < 6)
        return CUT; /* at the very end of a text all of it is read again anyway */
    char kind = cursor->at[1];
    if (kind == 'u') {
        for (int place = 2; place < 6; place++) {
            char digit = cursor->at[place] | 0x20;
            if (!is_digit(cursor->at[place]) && !(digit >= 'a' && digit <= 'f'))
                return ODD;
        }
        cursor->at += 6;
        return READ;
    }
    if (kind == '\0' || strchr("\"\\/bfnrt", kind) == NULL)
        return ODD;
    cursor->at += 2;
    return READ;
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
        int ended = read_escape(cursor);
        if (ended != READ)
            return ended;
        token->escaped = 1;
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
        number->value = negative ? -(int64_t)digits : (int64_t)digits;
        return READ;
    }
    return real_of(token->begin, at, digits, number->fits, shift, negative, &number->real);
}

static int read_value(Cursor *cursor, Token *token, int depth);

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
    ended = expect(cursor, ':');
    skip_white(cursor);
    return ended;
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
            ended = read_value(cursor, &inner, depth + 1);
        if (ended == READ)
            ended = read_next(cursor, close, &more);
    }
    token->end = cursor->at;
    return ended;
}

/* Step over a value of any kind. */
static int read_value(Cursor *cursor, Token *token, int depth)
{
    Number number;
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
        return read_number(cursor, token, &number);
    }
}

/* -- times -------------------------------------------------------------------------------- */

#define PARTS_IN_NS INT64_C(1000000000000)
#define MOST_US INT64_C(9000000000000000)

enum { FRACTION_DIGITS = 15, WHOLE_DIGITS = 16 };

/* Decimal microseconds as whole nanoseconds and the rest in parts of one; see decimals.py. */
static int time_of(const Token *token, int64_t *whole_ns, int64_t *part)
{
    const char *at = token->begin, *end = token->end;
    int64_t whole_us = 0, fraction = 0;
    int quoted = *at == '"', count = 0;
    at += quoted;
    end -= quoted;
    for (; at < end && is_digit(*at) && count <= WHOLE_DIGITS; at++, count++)
        whole_us = 10 * whole_us + (*at - '0');
    if (count == 0 || count > WHOLE_DIGITS || whole_us >= MOST_US)
        return ODD;
    count = 0;
    if (at < end && *at == '.')
        for (at++; at < end && is_digit(*at); at++, count++)
            if (count < FRACTION_DIGITS)
                fraction = 10 * fraction + (*at - '0');
    if (at != end)
        return ODD;
    for (; count < FRACTION_DIGITS; count++)
        fraction *= 10;
    *whole_ns = 1000 * whole_us + fraction / PARTS_IN_NS;
    *part = fraction % PARTS_IN_NS;
    return READ;
}

static size_t length_of(const Token *token)
{
    return (size_t)(token->end - token->begin);
}

/* -- events ------------------------------------------------------------------------------- */

/* Columns of events, where END is the id of an arrow; of args, in the order of the events whose
 * rows they name; and places in the text, of metadata and of times that are spelled oddly. */
enum {
    PHASE, GROUP, NAME, CATEGORY, START, END,
    ARG_ROW, ARG_KEY, ARG_KIND, ARG_VALUE,
    METADATA, ODD_TIMES,
    COLUMNS
};

typedef struct {
    PyObject_HEAD
    /* Groups are texts of codes: process and thread of lanes, or process, name and keys of
     * counters. */
    Texts texts, keys, groups;
    int32_t zero, empty;
    /* Keys by how their values are read: strictly, as any value, or for their spelling. */
    int first_loose, first_raw, with_counters, with_instants;
    /* Whether the args of an event are one value, under the first key. */
    int args_are_whole;
    Buffer columns[COLUMNS];
    /* The group of the event at hand, and a value that is spelled anew. */
    Buffer codes, spelling;
    /* Events of phases that are drawn nowhere, and counters that nobody asks for. */
    int64_t others, unread;
} Scanner;

/* One event as it is spelled; an absent value has no begin. */
typedef struct {
    char phase;
    int args_are_read;
    Token name, pid, tid, ts, dur, category, id, args;
} Event;

static int push_arg(Scanner *scanner, int32_t key, unsigned char kind, int64_t value)
{
    int32_t row = (int32_t)scanner->columns[PHASE].used;
    if (push_code(&scanner->columns[ARG_ROW], row) == FAILED ||
        push_code(&scanner->columns[ARG_KEY], key) == FAILED ||
        push(&scanner->columns[ARG_KIND], &kind, 1) == FAILED)
        return FAILED;
    return push_number(&scanner->columns[ARG_VALUE], value);
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

/* The args of a complete event or an instant: those that are asked for. */
static int read_known_args(Scanner *scanner, Cursor *cursor)
{
    int more, ended = read_opening(cursor, '}', &more);
    uint64_t seen = 0;
    while (ended == READ && more) {
        Token key, value;
        ended = read_key(cursor, &key);
        if (ended != READ)
            return ended;
        if (key.escaped)
            return ODD;
        size_t length = length_of(&key);
        int32_t code =
            *slot_of(&scanner->keys, hash_of(key.begin, length), key.begin, length) - 1;
        if (code < 0) {
            ended = read_value(cursor, &value, 2);
        } else if (seen >> code & 1) {
            return ODD;
        } else {
            seen |= UINT64_C(1) << code;
            ended = code < scanner->first_raw
                        ? read_arg(scanner, cursor, code, code < scanner->first_loose)
                        : read_raw_arg(scanner, cursor, code);
        }
        if (ended == READ)
            ended = read_next(cursor, '}', &more);
    }
    return ended;
}

/* The args of a counter event: all of them, with their keys noted as codes. */
static int read_all_args(Scanner *scanner, Cursor *cursor)
{
    int more, ended = read_opening(cursor, '}', &more);
    while (ended == READ && more) {
        Token key;
        int32_t code;
        ended = read_key(cursor, &key);
        if (ended != READ)
            return ended;
        if (code_of(&scanner->texts, key.begin, length_of(&key), &code) == FAILED)
            return FAILED;
        for (size_t at = 0; at < scanner->codes.used; at += sizeof code)
            if (memcmp(scanner->codes.bytes + at, &code, sizeof code) == 0)
                return ODD;
        if (push_code(&scanner->codes, code) == FAILED)
            return FAILED;
        ended = read_arg(scanner, cursor, code, 0);
        if (ended == READ)
            ended = read_next(cursor, '}', &more);
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

static inline int is(const Token *key, const char *name, size_t length)
{
    return length_of(key) == length + 2 && memcmp(key->begin + 1, name, length) == 0;
}

/* Where the value of a key of an event goes, NULL for one that is of no use. */
static Token *field_of(Event *event, const Token *key)
{
    if (is(key, "ts", 2))
        return &event->ts;
    if (is(key, "id", 2))
        return &event->id;
    if (is(key, "pid", 3))
        return &event->pid;
    if (is(key, "tid", 3))
        return &event->tid;
    if (is(key, "dur", 3))
        return &event->dur;
    if (is(key, "cat", 3))
        return &event->category;
    if (is(key, "name", 4))
        return &event->name;
    return NULL;
}

static int read_phase(Cursor *cursor, Event *event)
{
    Token token;
    if (cursor->at == cursor->end)
        return CUT;
    if (*cursor->at != '"' || event->phase)
        return ODD;
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
    int more, ended = read_opening(cursor, '}', &more);
    Token key, unused;
    while (ended == READ && more) {
        ended = read_key(cursor, &key);
        if (ended != READ)
            return ended;
        if (key.escaped)
            return ODD;
        if (is(&key, "ph", 2)) {
            ended = read_phase(cursor, event);
        } else if (is(&key, "args", 4)) {
            if (event->args.begin != NULL)
                return ODD;
            event->args.begin = cursor->at;
            event->args_are_read = reads_args(scanner, event->phase);
            ended = event->args_are_read ? read_args(scanner, cursor, event->phase)
                                         : read_value(cursor, &unused, 1);
        } else {
            Token *field = field_of(event, &key);
            ended = read_value(cursor, field ? field : &unused, 1);
        }
        if (ended == READ)
            ended = read_next(cursor, '}', &more);
    }
    if (ended != READ || !event->phase)
        return ended == READ ? ODD : ended;
    if (reads_args(scanner, event->phase) && event->args.begin != NULL && !event->args_are_read) {
        /* The phase came behind the args. */
        Cursor again = {event->args.begin, cursor->end};
        return read_args(scanner, &again, event->phase);
    }
    return READ;
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

static int push_spelling(Scanner *scanner, Buffer *column, const Token *token, int32_t absent)
{
    int32_t code;
    if (spelling_of(scanner, token, absent, &code) == FAILED)
        return FAILED;
    return push_code(column, code);
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

static int push_interval(Scanner *scanner, const Event *event, const char *text)
{
    int64_t start_ns = 0, part = 0, length_ns = 0, length_part = 0;
    int odd = event->ts.begin == NULL || time_of(&event->ts, &start_ns, &part) != READ ||
              (event->dur.begin != NULL && time_of(&event->dur, &length_ns, &length_part) != READ);
    Buffer *times = &scanner->columns[ODD_TIMES];
    if (odd && (push_number(times, (int64_t)scanner->columns[PHASE].used) == FAILED ||
                push_place(times, text, &event->ts) == FAILED ||
                push_place(times, text, &event->dur) == FAILED))
        return FAILED;
    int64_t end_ns = (int64_t)((uint64_t)start_ns + (uint64_t)length_ns +
                               (uint64_t)((part + length_part + PARTS_IN_NS / 2) / PARTS_IN_NS));
    start_ns += (part + PARTS_IN_NS / 2) / PARTS_IN_NS;
    if (push_number(&scanner->columns[START], start_ns) == FAILED)
        return FAILED;
    return push_number(&scanner->columns[END], end_ns);
}

/* The id of an arrow, which goes where the end of an interval is: the number that it is, or the
 * complement of a code, which is negative. */
static int push_id(Scanner *scanner, const Event *event)
{
    const Token *id = &event->id;
    Buffer *end = &scanner->columns[END];
    int64_t value = 0;
    int32_t code;
    int quoted = *id->begin == '"';
    if (!is_whole(id->begin + quoted, id->end - quoted, &value) || value <= 0) {
        if (code_of(&scanner->texts, id->begin, length_of(id), &code) == FAILED)
            return FAILED;
        value = ~(int64_t)code;
    }
    memcpy(end->bytes + end->used - sizeof value, &value, sizeof value);
    return READ;
}

/* The group of an event: its process, and its thread or its name and the keys of its args. */
static int push_group(Scanner *scanner, const Event *event)
{
    int32_t code;
    int is_counter = event->phase == 'C';
    Buffer *codes = &scanner->codes;
    if (!is_counter)
        codes->used = 0;
    if (spelling_of(scanner, &event->pid, scanner->zero, &code) == FAILED ||
        push_code(codes, code) == FAILED ||
        spelling_of(scanner, is_counter ? &event->name : &event->tid,
                    is_counter ? scanner->empty : scanner->zero, &code) == FAILED ||
        push_code(codes, code) == FAILED ||
        code_of(&scanner->groups, codes->bytes, codes->used, &code) == FAILED)
        return FAILED;
    return push_code(&scanner->columns[GROUP], code);
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
    if (event->phase == 'i')
        return is_string(&event->name) && is_string(&event->category);
    if (!is_id(&event->pid))
        return 0;
    if (event->phase == 'C')
        return is_string(&event->name) &&
               (event->args.begin == NULL || strchr("{n", *event->args.begin) != NULL);
    return is_id(&event->tid) && is_string(&event->category) &&
           (event->phase == 'X' ? is_string(&event->name) : is_plain_id(&event->id));
}

/* Note an event that was read. */
static int push_event(Scanner *scanner, Event *event, const char *text, const Token *whole)
{
    static const Token absent = {NULL, NULL, 0};
    char phase = event->phase;
    int is_arrow = phase == 's' || phase == 't' || phase == 'f';
    if (phase == 'M')
        return push_place(&scanner->columns[METADATA], text, whole);
    int is_instant = phase == 'i' && scanner->with_instants;
    if (phase != 'X' && phase != 'C' && !is_arrow && !is_instant) {
        scanner->others++;
        return READ;
    }
    if (!is_well_typed(event))
        return ODD;
    if (phase == 'C' && !scanner->with_counters) {
        scanner->unread++;
        return READ;
    }
    if (is_instant)
        event->pid = event->tid = absent;
    if (push_group(scanner, event) == FAILED)
        return FAILED;
    if (phase != 'X')
        event->dur = absent;
    if (phase != 'X' && !is_instant)
        event->name = absent;
    if (phase == 'C')
        event->category = absent;
    if (push_spelling(scanner, &scanner->columns[NAME], &event->name, scanner->empty) == FAILED ||
        push_spelling(scanner, &scanner->columns[CATEGORY], &event->category, scanner->empty) ==
            FAILED ||
        push_interval(scanner, event, text) == FAILED)
        return FAILED;
    if (is_arrow && push_id(scanner, event) == FAILED)
        return FAILED;
    return push(&scanner->columns[PHASE], &phase, 1);
}

/* Whether another event begins behind this one: only then it is known to be whole. */
static int read_to_next_event(Cursor *cursor)
{
    int ended = expect(cursor, ',');
    if (ended != READ)
        return ended;
    skip_white(cursor);
    if (cursor->at == cursor->end)
        return CUT;
    return *cursor->at == '{' ? READ : ODD;
}

/* Read events as long as they are whole and as expected; how far is returned, -1 for an error. */
static Py_ssize_t scan_text(Scanner *scanner, const char *text, Py_ssize_t length)
{
    Cursor cursor = {text, text + length};
    for (int column = 0; column < COLUMNS; column++)
        scanner->columns[column].used = 0;
    scanner->others = scanner->unread = 0;
    skip_white(&cursor);
    if (cursor.at == cursor.end || *cursor.at != '{')
        return 0;
    for (;;) {
        size_t used[COLUMNS];
        const char *begin = cursor.at;
        int64_t others = scanner->others, unread = scanner->unread;
        Event event;
        memset(&event, 0, sizeof event);
        scanner->codes.used = 0;
        for (int column = 0; column < COLUMNS; column++)
            used[column] = scanner->columns[column].used;
        int ended = read_event(scanner, &cursor, &event);
        if (ended == READ) {
            Token whole = {begin, cursor.at, 0};
            ended = push_event(scanner, &event, text, &whole);
        }
        if (ended == READ)
            ended = read_to_next_event(&cursor);
        if (ended == FAILED)
            return -1;
        if (ended != READ) {
            for (int column = 0; column < COLUMNS; column++)
                scanner->columns[column].used = used[column];
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
    PyObject *list = PyList_New(METADATA);
    for (int column = 0; list != NULL && column < METADATA; column++) {
        const Buffer *buffer = &scanner->columns[column];
        PyObject *bytes = PyBytes_FromStringAndSize(buffer->bytes, (Py_ssize_t)buffer->used);
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
    if (length > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the text is longer than 2 GB");
        return NULL;
    }
    Py_ssize_t used = scan_text(scanner, bytes, length);
    if (used < 0)
        return NULL;
    return Py_BuildValue(
        "(nNNNNNLL)", used, fresh(&scanner->texts), fresh(&scanner->groups), columns_of(scanner),
        slices_of(&scanner->columns[METADATA], bytes),
        rows_of(&scanner->columns[ODD_TIMES], bytes), (long long)scanner->others,
        (long long)scanner->unread);
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
    return 0;
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
    if (add_keys(scanner, keys) < 0 || widen(&scanner->keys) == FAILED ||
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
    for (int column = 0; column < COLUMNS; column++)
        PyMem_Free(scanner->columns[column].bytes);
    PyMem_Free(scanner->codes.bytes);
    PyMem_Free(scanner->spelling.bytes);
    freefunc release_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release_object(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(scanner_doc, "Scanner(keys, first_loose, first_raw, counters, instants, whole_args)\n--\n\n"
"Reads blocks of events into columns; see scanner.py.");
PyDoc_STRVAR(scan_doc, "scan(text)\n--\n\n"
"Read the events at the start of a text, up to the last or the first unexpected one.");

static PyMethodDef methods[] = {{"scan", scan, METH_O, scan_doc}, {NULL, NULL, 0, NULL}};

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
