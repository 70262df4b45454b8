/* The demo's program in C: sends flights, or reads them as a member of a group. */
#include <ottla.h>

#include <inttypes.h>
#include <poll.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT 30000 /* ms a call may take */
#define WAIT 200    /* ms a member waits for records before it looks whether to leave */
#define STRIDE 5000 /* records between two lines of progress */

/* What was done, as the last line tells it. */
typedef struct {
    size_t records, bytes;
    int64_t first, last; /* ms of a steady clock; 0 while nothing was done */
} account_t;

typedef struct {
    size_t records;
    char key[]; /* NUL-terminated */
} aircraft_t;

static void *counts; /* of aircraft_t, by key [tsearch] */

static void fail(const char *what)
{
    fprintf(stderr, "flights: %s\n", what);
    exit(1);
}

static void check(ottla_error_t *err)
{
    if (!err) return;
    fprintf(stderr, "flights: %s: %s\n", ottla_error_name(err), ottla_error_message(err));
    ottla_error_free(err);
    exit(1);
}

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void finish(const char *word, const account_t *done)
{
    int64_t millis = done->first ? done->last - done->first : 0;
    printf("%s\t%zu\t%zu\t%" PRId64 "\n", word, done->records, done->bytes, millis);
    if (fflush(stdout)) fail("the output broke off");
}

/* Sends one line of the input: its number, a tab, the key, a tab, the value. */
static void send_line(ottla_producer_t *producer, const char *topic, char *line, account_t *done)
{
    char *key = strchr(line, '\t');
    char *value = key ? strchr(key + 1, '\t') : NULL;
    if (!value) fail("a line without a key or a value");
    *key++ = *value++ = '\0';
    ottla_header_t header = {"line", OTTLA_BYTES(line, strlen(line))};
    ottla_record_t record = OTTLA_RECORD(topic);
    if (*key) record.key = OTTLA_BYTES(key, strlen(key));
    record.value = OTTLA_BYTES(value, strlen(value));
    record.headers = &header;
    record.headers_len = 1;
    /* Fire and forget: what fails is told by the flush. */
    check(ottla_producer_send(producer, &record, NULL));
    done->records++;
    done->bytes += record.key.len + record.value.len;
}

static void produce(const char *options, const char *topic)
{
    ottla_error_t *err = NULL;
    ottla_producer_t *producer = ottla_producer_new(options, &err);
    account_t done = {0, 0, 0, 0};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    check(err);
    while ((length = getline(&line, &room, stdin)) > 0) {
        if (!done.first) done.first = now();
        if (line[length - 1] == '\n') line[length - 1] = '\0';
        send_line(producer, topic, line, &done);
        if (done.records % STRIDE) continue;
        printf("sent\t%zu\t%zu\n", done.records, done.bytes);
        fflush(stdout);
    }
    if (ferror(stdin)) fail("the input broke off");
    free(line);
    check(ottla_producer_flush(producer, LIMIT));
    done.last = now();
    check(ottla_producer_close(producer, LIMIT));
    ottla_producer_free(producer);
    finish("done", &done);
}

static int by_key(const void *one, const void *other)
{
    return strcmp(((const aircraft_t *)one)->key, ((const aircraft_t *)other)->key);
}

static void count(ottla_bytes_t key)
{
    aircraft_t *aircraft = calloc(1, sizeof *aircraft + key.len + 1);
    if (!aircraft) fail("out of memory");
    memcpy(aircraft->key, key.ptr, key.len);
    aircraft_t **known = tsearch(aircraft, &counts, by_key);
    if (!known) fail("out of memory");
    (*known)->records++;
    if (*known != aircraft) free(aircraft);
}

static void print_count(const void *node, VISIT visit, int depth)
{
    const aircraft_t *aircraft = *(aircraft_t *const *)node;
    (void)depth;
    if (visit == postorder || visit == leaf) {
        printf("count\t%s\t%zu\n", aircraft->key, aircraft->records);
    }
}

static void take(const ottla_batch_t *batch, account_t *done)
{
    ottla_header_view_t line;
    for (size_t i = 0; i < ottla_batch_len(batch); i++) {
        const ottla_record_view_t *record = ottla_batch_get(batch, i);
        if (ottla_batch_headers(batch, i, &line, 1) != 1) fail("a record without its line");
        printf("record\t%d\t%" PRId64 "\t%.*s\t%.*s\t%.*s\n", (int)ottla_batch_partition(batch),
               record->offset, (int)line.value.len, (const char *)line.value.ptr,
               (int)record->key.len, record->key.ptr ? (const char *)record->key.ptr : "",
               (int)record->value.len, (const char *)record->value.ptr);
        if (record->key.len) count(record->key);
        done->records++;
        done->bytes += record->key.len + record->value.len;
    }
    if (fflush(stdout)) fail("the output broke off");
}

static int asked_to_leave(void)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char byte;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static void consume(const char *options, const char *topic)
{
    ottla_error_t *err = NULL;
    ottla_consumer_t *consumer = ottla_consumer_new(options, &err);
    account_t done = {0, 0, 0, 0};
    size_t assigned = 0;
    check(err);
    check(ottla_consumer_subscribe(consumer, &topic, 1));
    while (!asked_to_leave()) {
        ottla_batch_t *batch = ottla_consumer_poll(consumer, WAIT, &err);
        size_t partitions = ottla_consumer_assignment(consumer, NULL, 0);
        check(err);
        if (partitions != assigned) {
            assigned = partitions;
            printf("assigned\t%zu\n", assigned);
            fflush(stdout);
        }
        if (!batch) continue;
        if (!done.first) done.first = now();
        take(batch, &done);
        check(ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC));
        ottla_batch_free(batch);
        done.last = now();
    }
    check(ottla_consumer_close(consumer, LIMIT));
    ottla_consumer_free(consumer);
    twalk(counts, print_count);
    finish("left", &done);
}

int main(int argc, char **argv)
{
    char options[512];
    if (argc == 4 && !strcmp(argv[1], "produce")) {
        snprintf(options, sizeof options, "bootstrap.servers=%s", argv[2]);
        produce(options, argv[3]);
    } else if (argc == 5 && !strcmp(argv[1], "consume")) {
        snprintf(options, sizeof options,
                 "bootstrap.servers=%s;group.id=%s;auto.offset.reset=earliest;"
                 "enable.auto.commit=false",
                 argv[2], argv[4]);
        consume(options, argv[3]);
    } else {
        fail("usage: flights produce ADDRESS TOPIC | consume ADDRESS TOPIC GROUP");
    }
    return 0;
}
