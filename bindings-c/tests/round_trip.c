/* A record's whole journey: all its parts, out and in, in every way of sending. */
#include "harness.h"

static ottla_broker_t *broker;

static ottla_producer_t *producer_of(const char *added)
{
    return ottla_producer_new(options_of(broker, added), NULL);
}

static ottla_consumer_t *consumer_of(const char *topic, const char *group)
{
    char added[128];
    snprintf(added, sizeof added, "group.id=%s;start=earliest;auto_commit=false", group);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, added), NULL);
    ottla_error_free(ottla_consumer_subscribe(consumer, &topic, 1));
    return consumer;
}

static void every_part_of_a_record_arrives(void)
{
    ottla_header_t headers[] = {{"trace", OTTLA_BYTES("1", 1)},
                                {"empty", OTTLA_BYTES("", 0)},
                                {"null", OTTLA_BYTES(NULL, 0)},
                                {"trace", OTTLA_BYTES("2", 1)}};
    CHECK_OK(ottla_broker_create_topic(broker, "parts", 3));
    ottla_producer_t *producer = producer_of("");
    ottla_record_t record = record_of("parts", "value");
    record.key = OTTLA_BYTES("key", 3);
    record.headers = headers;
    record.headers_len = 4;
    record.partition = 2;
    record.timestamp = 1234567890123;
    ottla_delivery_t at;
    CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, &at));
    CHECK(!strcmp(at.topic, "parts") && at.partition == 2 && at.offset == 0);
    CHECK(at.timestamp == 1234567890123);
    ottla_record_t bare = OTTLA_RECORD("parts");
    bare.partition = 2;
    CHECK_OK(ottla_producer_send_wait(producer, &bare, SOON, &at));
    CHECK(at.offset == 1 && at.timestamp > 1600000000000);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);

    ottla_consumer_t *consumer = consumer_of("parts", "parts");
    ottla_header_view_t seen[4];
    const ottla_record_view_t *view;
    for (int64_t offset = 0; offset < 2;) {
        ottla_batch_t *batch = next_batch(consumer);
        CHECK(batch && !strcmp(ottla_batch_topic(batch), "parts"));
        CHECK(ottla_batch_partition(batch) == 2);
        for (size_t index = 0; index < ottla_batch_len(batch); index++, offset++) {
            view = ottla_batch_get(batch, index);
            CHECK(view && view->offset == offset);
            if (offset == 1) {
                CHECK(!view->key.ptr && !view->value.ptr && view->headers_len == 0);
                continue;
            }
            CHECK(bytes_are(view->key, "key") && bytes_are(view->value, "value"));
            CHECK(view->timestamp == 1234567890123 && view->headers_len == 4);
            CHECK(ottla_batch_headers(batch, index, NULL, 0) == 4);
            CHECK(ottla_batch_headers(batch, index, seen, 4) == 4);
            CHECK(bytes_are(seen[0].key, "trace") && bytes_are(seen[0].value, "1"));
            CHECK(bytes_are(seen[1].value, "") && !seen[2].value.ptr);
            CHECK(bytes_are(seen[3].key, "trace") && bytes_are(seen[3].value, "2"));
        }
        CHECK(!ottla_batch_get(batch, ottla_batch_len(batch)));
        CHECK(!ottla_batch_get(batch, SIZE_MAX));
        CHECK_OK(ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC));
        ottla_batch_free(batch);
    }
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

static void unset_is_not_zero(void)
{
    int partitions[2] = {0, 0};
    ottla_delivery_t at;
    CHECK_OK(ottla_broker_create_topic(broker, "zero", 2));
    ottla_producer_t *producer = producer_of("");
    for (int time = 0; time < 4; time++) {
        ottla_record_t record;
        memset(&record, 0, sizeof record);
        record.topic = "zero";
        CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, &at));
        CHECK(at.timestamp > 1600000000000);
        partitions[at.partition]++;
    }
    CHECK(partitions[0] == 2 && partitions[1] == 2);
    for (int time = 0; time < 2; time++) {
        ottla_record_t record = OTTLA_RECORD("zero");
        record.partition = 0;
        record.timestamp = 0;
        CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, &at));
        CHECK(at.partition == 0 && at.timestamp == 0);
    }
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

static void a_token_waits_for_its_record(void)
{
    enum { COUNT = 100 };
    ottla_sent_t *sent[COUNT];
    CHECK_OK(ottla_broker_create_topic(broker, "tokens", 1));
    ottla_producer_t *producer = producer_of("");
    ottla_record_t record = record_of("tokens", "v");
    for (int index = 0; index < COUNT; index++) {
        CHECK_OK(ottla_producer_send(producer, &record, &sent[index]));
    }
    for (int index = COUNT - 1; index >= 0; index--) {
        ottla_delivery_t at;
        CHECK_OK(ottla_sent_wait(sent[index], SOON, &at));
        CHECK(at.offset == index && !strcmp(at.topic, "tokens") && at.timestamp > 0);
        CHECK_OK(ottla_sent_wait(sent[index], 0, NULL));
        ottla_sent_free(sent[index]);
    }
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

static void many_records_have_a_result_each(void)
{
    enum { COUNT = 6 };
    static char large[2 << 20];
    ottla_header_t headers[] = {{"h", OTTLA_BYTES(NULL, 0)}, {"h", OTTLA_BYTES("", 0)}};
    ottla_record_t records[COUNT];
    ottla_result_t results[COUNT];
    int marks[COUNT];
    CHECK_OK(ottla_broker_create_topic(broker, "many", 1));
    ottla_producer_t *producer = producer_of("");
    for (int index = 0; index < COUNT; index++) {
        records[index] = record_of("many", "v");
        records[index].headers = headers;
        records[index].headers_len = 2;
        records[index].opaque = &marks[index];
    }
    CHECK_OK(ottla_producer_send_many(producer, records, COUNT, results));
    for (int index = 0; index < COUNT; index++) {
        CHECK(results[index].code == OTTLA_OK && !results[index].error);
        CHECK(results[index].delivery.offset == index && results[index].opaque == &marks[index]);
        CHECK(results[index].delivery.topic == records[index].topic);
    }
    records[1].value = OTTLA_BYTES(large, sizeof large);
    records[3].topic = NULL;
    records[4].topic = "no topic";
    ottla_error_t *error = ottla_producer_send_many(producer, records, COUNT, results);
    CHECK(ottla_error_code(error) == OTTLA_ERR_RECORD_TOO_LARGE);
    CHECK(results[0].delivery.offset == 6 && results[2].delivery.offset == 7);
    CHECK(results[5].delivery.offset == 8 && results[5].code == OTTLA_OK);
    CHECK(results[1].code == OTTLA_ERR_RECORD_TOO_LARGE && results[1].delivery.partition == -1);
    CHECK(results[3].code == OTTLA_ERR_INVALID_ARGUMENT);
    CHECK(strstr(ottla_error_message(results[3].error), "records[3].topic"));
    CHECK(results[4].code == OTTLA_ERR_INVALID_TOPIC);
    CHECK(!strcmp(ottla_error_name(results[4].error), "InvalidTopic"));
    ottla_error_free(error);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);

    ottla_consumer_t *consumer = consumer_of("many", "many");
    ottla_batch_t *batch = next_batch(consumer);
    ottla_header_view_t seen[2];
    CHECK(ottla_batch_headers(batch, 0, seen, 2) == 2);
    CHECK(!seen[0].value.ptr && seen[1].value.ptr && seen[1].value.len == 0);
    ottla_batch_free(batch);
    ottla_consumer_free(consumer);
}

struct told {
    int64_t offsets;
    int records, failed, disorder;
};

static void count(const ottla_result_t *results, size_t results_len, void *user)
{
    struct told *told = user;
    for (size_t index = 0; index < results_len; index++) {
        told->records++;
        if (results[index].error) {
            told->failed++;
            continue;
        }
        /* The record's own number is the offset it must get. */
        if (results[index].delivery.offset != told->offsets) told->disorder++;
        if ((intptr_t)results[index].opaque != told->offsets) told->disorder++;
        if (strcmp(results[index].delivery.topic, "reports")) told->disorder++;
        told->offsets++;
    }
}

static void reports_come_in_offset_order_on_the_thread_that_polls(void)
{
    enum { COUNT = 5000 };
    struct told told = {0, 0, 0, 0};
    CHECK_OK(ottla_broker_create_topic(broker, "reports", 1));
    ottla_producer_t *producer = producer_of("");
    CHECK_OK(ottla_producer_on_delivery(producer, count, &told));
    for (intptr_t index = 0; index < COUNT; index++) {
        ottla_record_t record = record_of("reports", "value");
        record.opaque = (void *)index;
        CHECK_OK(ottla_producer_send(producer, &record, NULL));
        CHECK(told.records == 0);
    }
    CHECK(readable(ottla_producer_fd(producer), SOON));
    int64_t deadline = now_ms() + SOON;
    size_t polled = 0;
    while (told.records < COUNT && now_ms() < deadline) polled += ottla_producer_poll(producer, 100);
    CHECK(told.records == COUNT && polled == COUNT && told.failed == 0 && told.disorder == 0);
    /* A wake may still come for what was told already; then it is quiet. */
    do {
        CHECK(ottla_producer_poll(producer, 0) == 0);
    } while (readable(ottla_producer_fd(producer), 0) && now_ms() < deadline);
    CHECK(now_ms() < deadline);

    ottla_record_t records[3] = {record_of("reports", "a"), record_of("no topic", "b"),
                                 record_of("reports", "c")};
    records[0].opaque = (void *)(intptr_t)COUNT;
    records[2].opaque = (void *)(intptr_t)(COUNT + 1);
    CHECK_ERROR(ottla_producer_send_many(producer, records, 3, NULL), OTTLA_ERR_INVALID_TOPIC, "");
    CHECK_OK(ottla_producer_close(producer, SOON));
    while (ottla_producer_poll(producer, -1) > 0) continue;
    CHECK(told.records == COUNT + 3 && told.failed == 1 && told.disorder == 0);
    ottla_producer_free(producer);
}

static void flush_waits_for_all(void)
{
    CHECK_OK(ottla_broker_create_topic(broker, "flush", 4));
    ottla_producer_t *producer = producer_of("linger.ms=600");
    ottla_record_t record = record_of("flush", "v");
    for (int index = 0; index < 100; index++) {
        CHECK_OK(ottla_producer_send(producer, &record, NULL));
    }
    CHECK_OK(ottla_producer_flush(producer, SOON));
    CHECK_OK(ottla_producer_close(producer, 0));
    ottla_producer_free(producer);
    ottla_consumer_t *consumer = consumer_of("flush", "flush");
    for (size_t read = 0; read < 100;) {
        ottla_batch_t *batch = next_batch(consumer);
        CHECK(batch);
        read += ottla_batch_len(batch);
        ottla_batch_free(batch);
    }
    ottla_consumer_free(consumer);
}

static void every_codec_goes_out_and_in(void)
{
    static const char *codecs[] = {
        "none", "gzip;compression.gzip.level=9", "snappy", "lz4", "zstd;compression.zstd.level=-3"};
    enum { CODECS = sizeof codecs / sizeof *codecs, COUNT = 50 };
    char added[64], value[600];
    memset(value, 'v', sizeof value);
    CHECK_OK(ottla_broker_create_topic(broker, "codecs", 1));
    for (int codec = 0; codec < CODECS; codec++) {
        snprintf(added, sizeof added, "compression=%s", codecs[codec]);
        ottla_producer_t *producer = producer_of(added);
        ottla_record_t record = OTTLA_RECORD("codecs");
        record.value = OTTLA_BYTES(value, sizeof value);
        for (int index = 0; index < COUNT; index++) {
            CHECK_OK(ottla_producer_send(producer, &record, NULL));
        }
        CHECK_OK(ottla_producer_close(producer, SOON));
        ottla_producer_free(producer);
    }
    ottla_consumer_t *consumer = consumer_of("codecs", "codecs");
    for (int64_t offset = 0; offset < CODECS * COUNT;) {
        ottla_batch_t *batch = next_batch(consumer);
        CHECK(batch);
        for (size_t index = 0; index < ottla_batch_len(batch); index++, offset++) {
            const ottla_record_view_t *view = ottla_batch_get(batch, index);
            CHECK(view && view->offset == offset && view->value.len == sizeof value);
            CHECK(!memcmp(view->value.ptr, value, sizeof value));
        }
        ottla_batch_free(batch);
    }
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

int main(void)
{
    static const struct test tests[] = {
        {"every part of a record arrives", every_part_of_a_record_arrives},
        {"unset is not zero", unset_is_not_zero},
        {"a token waits for its record", a_token_waits_for_its_record},
        {"many records have a result each", many_records_have_a_result_each},
        {"reports come in offset order on the thread that polls",
         reports_come_in_offset_order_on_the_thread_that_polls},
        {"flush waits for all", flush_waits_for_all},
        {"every codec goes out and in", every_codec_goes_out_and_in},
    };
    ottla_error_t *error = NULL;
    broker = ottla_broker_start(NULL, &error);
    if (!broker) {
        printf("no broker: %s\n", ottla_error_message(error));
        return 1;
    }
    int status = RUN(tests);
    error = ottla_broker_stop(broker, SOON);
    if (error) printf("%s\n", ottla_error_message(error));
    ottla_error_free(error);
    ottla_broker_free(broker);
    return status;
}
