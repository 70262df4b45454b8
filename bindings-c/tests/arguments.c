/* Arguments at their edges: every pointer NULL, every text odd, every length too large. */
#include "harness.h"

static ottla_broker_t *broker;
static ottla_producer_t *producer;
static ottla_consumer_t *consumer;

#define BAD OTTLA_ERR_INVALID_ARGUMENT

static char long_text[10241];
static const char not_utf8[] = "or\xff" "ders";

static void every_handle_may_be_null(void)
{
    ottla_record_t record = record_of("edges", "v");
    ottla_delivery_t at;
    ottla_error_t *error = NULL;
    int64_t offset;
    const char *topic = "edges";
    ottla_topic_partition_t partition = {"edges", 0};
    ottla_topic_offset_t place = {"edges", 0, 0};
    CHECK_ERROR(ottla_producer_send(NULL, &record, NULL), BAD, "`producer` is NULL");
    CHECK_ERROR(ottla_producer_send_wait(NULL, &record, 0, &at), BAD, "`producer` is NULL");
    CHECK_ERROR(ottla_producer_send_many(NULL, &record, 1, NULL), BAD, "`producer` is NULL");
    CHECK_ERROR(ottla_producer_on_delivery(NULL, NULL, NULL), BAD, "`producer` is NULL");
    CHECK_ERROR(ottla_producer_flush(NULL, 0), BAD, "`producer` is NULL");
    CHECK_ERROR(ottla_producer_close(NULL, 0), BAD, "`producer` is NULL");
    CHECK(ottla_producer_poll(NULL, 0) == 0 && ottla_producer_fd(NULL) == -1);
    CHECK_ERROR(ottla_sent_wait(NULL, 0, &at), BAD, "`sent` is NULL");
    CHECK_ERROR(ottla_consumer_subscribe(NULL, &topic, 1), BAD, "`consumer` is NULL");
    CHECK(!ottla_consumer_poll(NULL, 0, NULL) && !ottla_consumer_poll(NULL, 0, &error));
    CHECK_ERROR(error, BAD, "`consumer` is NULL");
    CHECK(ottla_consumer_fd(NULL) == -1 && ottla_consumer_assignment(NULL, NULL, 0) == 0);
    ottla_consumer_wakeup(NULL);
    CHECK_ERROR(ottla_consumer_acknowledge(NULL, NULL, 0, 1), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_acknowledge(consumer, NULL, 0, 1), BAD, "`batch` is NULL");
    CHECK_ERROR(ottla_consumer_commit_batch(NULL, NULL, 0), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_commit_batch(consumer, NULL, 0), BAD, "`batch` is NULL");
    CHECK_ERROR(ottla_consumer_commit_offsets(NULL, &place, 1, 0), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_commit_soon(NULL, NULL), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_position(NULL, "edges", 0, &offset), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_position(consumer, "edges", 0, NULL), BAD, "`offset` is NULL");
    CHECK_ERROR(ottla_consumer_seek(NULL, "edges", 0, 0), BAD, "`consumer` is NULL");
    ottla_topic_timestamp_t time = {"edges", 0, 0};
    ottla_offset_timestamp_t found;
    ottla_consumer_keep_alive(NULL);
    CHECK_ERROR(ottla_consumer_subscribe_pattern(NULL, "edges"), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_subscribe_pattern(consumer, NULL), BAD, "`pattern` is NULL");
    CHECK_ERROR(ottla_consumer_assign(NULL, &partition, 1), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_beginning_offsets(NULL, &partition, 1, &offset, 0), BAD,
                "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_end_offsets(consumer, &partition, 1, NULL, 0), BAD,
                "`offsets` is NULL");
    CHECK_ERROR(ottla_consumer_offsets_for_times(NULL, &time, 1, &found, 0), BAD,
                "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_offsets_for_times(consumer, &time, 1, NULL, 0), BAD,
                "`found` is NULL");
    CHECK_ERROR(ottla_consumer_seek_before_end(NULL, "edges", 0, 1, 0, &offset), BAD,
                "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_current_lag(NULL, "edges", 0, &offset), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_current_lag(consumer, "edges", 0, NULL), BAD, "`lag` is NULL");
    ottla_topic_metadata_t row = {"edges", 0, -1, 0, NULL};
    CHECK(!ottla_consumer_committed(NULL, &partition, 1, 0, &error));
    CHECK_ERROR(error, BAD, "`consumer` is NULL");
    CHECK(!ottla_committed_get(NULL, 0));
    CHECK_ERROR(ottla_consumer_commit_metadata(NULL, &row, 1, 0), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_commit_metadata(consumer, NULL, 1, 0), BAD, "`offsets` is NULL");
    ottla_committed_free(NULL);
    CHECK_ERROR(ottla_consumer_pause(NULL, &partition, 1), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_resume(NULL, &partition, 1), BAD, "`consumer` is NULL");
    CHECK_ERROR(ottla_consumer_close(NULL, 0), BAD, "`consumer` is NULL");
    CHECK(ottla_batch_len(NULL) == 0 && !ottla_batch_get(NULL, 0) && !ottla_batch_topic(NULL));
    CHECK(ottla_batch_partition(NULL) == -1 && ottla_batch_headers(NULL, 0, NULL, 0) == 0);
    CHECK_ERROR(ottla_broker_create_topic(NULL, "t", 1), BAD, "`broker` is NULL");
    CHECK_ERROR(ottla_broker_stop(NULL, 0), BAD, "`broker` is NULL");
    CHECK(!ottla_broker_address(NULL) && !ottla_broker_cluster_id(NULL));
    CHECK(ottla_error_code(NULL) == OTTLA_OK && !strcmp(ottla_error_name(NULL), "Ok"));
    CHECK(ottla_error_message(NULL) && !ottla_error_retriable(NULL));
    CHECK(ottla_error_outcome(NULL) == OTTLA_OUTCOME_NONE && ottla_error_kafka_code(NULL) == 0);
    CHECK(!ottla_error_topic(NULL) && ottla_error_partition(NULL) == -1 && !ottla_error_hint(NULL));
    CHECK(!ottla_error_broker(NULL) && !ottla_error_api(NULL) && ottla_error_attempt(NULL) == 0);
    ottla_producer_free(NULL);
    ottla_consumer_free(NULL);
    ottla_batch_free(NULL);
    ottla_sent_free(NULL);
    ottla_broker_free(NULL);
    ottla_error_free(NULL);
}

static ottla_error_t *producer_error(const char *options)
{
    ottla_error_t *error = NULL;
    ottla_producer_t *made = ottla_producer_new(options, &error);
    if (made && !error) printf("made a producer of `%.40s`\n", options);
    ottla_producer_free(made);
    return error;
}

static ottla_error_t *consumer_error(const char *options)
{
    ottla_error_t *error = NULL;
    ottla_consumer_t *made = ottla_consumer_new(options, &error);
    if (made && !error) printf("made a consumer of `%.40s`\n", options);
    ottla_consumer_free(made);
    return error;
}

static ottla_error_t *broker_error(const char *options)
{
    ottla_error_t *error = NULL;
    ottla_broker_t *made = ottla_broker_start(options, &error);
    if (made && !error) printf("made a broker of `%.40s`\n", options);
    ottla_broker_free(made);
    return error;
}

static void odd_options_are_refused(void)
{
    CHECK_ERROR(producer_error(NULL), BAD, "`options` is NULL");
    CHECK_ERROR(producer_error(not_utf8), BAD, "`options` is not UTF-8 from its byte 2");
    CHECK_ERROR(producer_error(""), OTTLA_ERR_INVALID_OPTION, "bootstrap.servers");
    CHECK_ERROR(producer_error(long_text), OTTLA_ERR_INVALID_OPTION, "name=value");
    CHECK_ERROR(producer_error("a\nb"), OTTLA_ERR_INVALID_OPTION, "`a`");
    CHECK(!ottla_producer_new(NULL, NULL));
    CHECK_ERROR(consumer_error(NULL), BAD, "`options` is NULL");
    CHECK_ERROR(consumer_error(not_utf8), BAD, "`options` is not UTF-8");
    CHECK_ERROR(consumer_error(""), OTTLA_ERR_INVALID_OPTION, "bootstrap.servers");
    CHECK_ERROR(consumer_error(long_text), OTTLA_ERR_INVALID_OPTION, "name=value");
    CHECK_ERROR(broker_error(not_utf8), BAD, "`options` is not UTF-8");
    CHECK_ERROR(broker_error(long_text), OTTLA_ERR_INVALID_OPTION, "name=value");
    CHECK_ERROR(broker_error("num.partition=1"), OTTLA_ERR_INVALID_OPTION, "num.partitions");
    CHECK_ERROR(broker_error("num.partitions=few"), OTTLA_ERR_INVALID_OPTION, "num.partitions");
    CHECK_ERROR(broker_error("listen=nowhere"), OTTLA_ERR_BROKER, "nowhere");
}

static void odd_topics_are_refused(void)
{
    static const char *const odd[] = {"", "a/b", "new\nline", ".", long_text};
    ottla_record_t record = record_of(NULL, "v");
    CHECK_ERROR(ottla_producer_send(producer, &record, NULL), BAD, "`record.topic` is NULL");
    record.topic = not_utf8;
    CHECK_ERROR(ottla_producer_send(producer, &record, NULL), BAD, "`record.topic` is not UTF-8");
    for (size_t index = 0; index < sizeof odd / sizeof *odd; index++) {
        record.topic = odd[index];
        CHECK_ERROR(ottla_producer_send(producer, &record, NULL), OTTLA_ERR_INVALID_TOPIC, "topic");
        CHECK_ERROR(ottla_consumer_subscribe(consumer, &odd[index], 1), OTTLA_ERR_INVALID_TOPIC,
                    "topic");
        CHECK_ERROR(ottla_broker_create_topic(broker, odd[index], 1), OTTLA_ERR_BROKER, "topic");
        CHECK_ERROR(ottla_consumer_seek(consumer, odd[index], 0, 0), OTTLA_ERR_NOT_ASSIGNED, "");
    }
    const char *topics[] = {"edges", NULL};
    CHECK_ERROR(ottla_consumer_subscribe(consumer, topics, 2), BAD, "`topics[1]` is NULL");
    topics[1] = not_utf8;
    CHECK_ERROR(ottla_consumer_subscribe(consumer, topics, 2), BAD, "`topics[1]` is not UTF-8");
    CHECK_ERROR(ottla_consumer_subscribe(consumer, NULL, 2), BAD, "`topics` is NULL");
    CHECK_ERROR(ottla_consumer_subscribe(consumer, topics, SIZE_MAX), BAD, "`topics` has the length");
    CHECK_ERROR(ottla_broker_create_topic(broker, NULL, 1), BAD, "`name` is NULL");
    CHECK_ERROR(ottla_broker_create_topic(broker, not_utf8, 1), BAD, "`name` is not UTF-8");
    CHECK_ERROR(ottla_broker_create_topic(broker, "none", 0), OTTLA_ERR_BROKER, "topic");
    CHECK_ERROR(ottla_consumer_seek(consumer, NULL, 0, 0), BAD, "`topic` is NULL");
    CHECK_ERROR(ottla_consumer_seek(consumer, not_utf8, 0, 0), BAD, "`topic` is not UTF-8");
    int64_t offset;
    CHECK_ERROR(ottla_consumer_position(consumer, NULL, 0, &offset), BAD, "`topic` is NULL");
    CHECK_ERROR(ottla_consumer_position(consumer, not_utf8, 0, &offset), BAD, "`topic` is not");
    ottla_topic_partition_t partition = {NULL, 0};
    CHECK_ERROR(ottla_consumer_pause(consumer, &partition, 1), BAD, "`partitions[0].topic` is NULL");
    CHECK_ERROR(ottla_consumer_pause(consumer, NULL, 1), BAD, "`partitions` is NULL");
    CHECK_ERROR(ottla_consumer_pause(consumer, &partition, SIZE_MAX), BAD, "`partitions` has");
    CHECK_ERROR(ottla_consumer_resume(consumer, &partition, 1), BAD, "`partitions[0].topic` is");
    int64_t found;
    ottla_topic_timestamp_t time = {NULL, 0, 0};
    CHECK_ERROR(ottla_consumer_assign(consumer, &partition, 1), BAD, "`partitions[0].topic` is");
    CHECK_ERROR(ottla_consumer_assign(consumer, NULL, 1), BAD, "`partitions` is NULL");
    CHECK_ERROR(ottla_consumer_end_offsets(consumer, &partition, SIZE_MAX, &found, 0), BAD,
                "`partitions` has");
    CHECK_ERROR(ottla_consumer_offsets_for_times(consumer, &time, 1, NULL, 0), BAD,
                "`times[0].topic` is NULL");
    CHECK_ERROR(ottla_consumer_seek_before_end(consumer, not_utf8, 0, 1, 0, NULL), BAD,
                "`topic` is not UTF-8");
    CHECK_ERROR(ottla_consumer_current_lag(consumer, NULL, 0, &found), BAD, "`topic` is NULL");
    CHECK_ERROR(ottla_consumer_subscribe_pattern(consumer, not_utf8), BAD, "`pattern` is not UTF-8");
    ottla_topic_offset_t place = {NULL, 0, 0};
    CHECK_ERROR(ottla_consumer_commit_offsets(consumer, &place, 1, 0), BAD, "`offsets[0].topic` is");
    CHECK_ERROR(ottla_consumer_commit_offsets(consumer, NULL, 1, 0), BAD, "`offsets` is NULL");
    CHECK_ERROR(ottla_consumer_commit_offsets(consumer, &place, SIZE_MAX, 0), BAD, "`offsets` has");
}

static ottla_error_t *send(const ottla_record_t *record)
{
    return ottla_producer_send(producer, record, NULL);
}

static void odd_records_are_refused(void)
{
    const ottla_record_t good = record_of("edges", "v");
    ottla_header_t headers[9] = {{"h", OTTLA_BYTES("v", 1)}};
    for (int index = 1; index < 9; index++) headers[index] = headers[0];
    CHECK_ERROR(send(NULL), BAD, "`record` is NULL");
    CHECK_ERROR(ottla_producer_send_wait(producer, NULL, 0, NULL), BAD, "`record` is NULL");
    ottla_record_t record = good;
    record.size = 3;
    CHECK_ERROR(send(&record), BAD, "`record.size` is 3");
    record = good;
    record.partition = -2;
    CHECK_ERROR(send(&record), OTTLA_ERR_INVALID_PARTITION, "partition");
    record = good;
    record.timestamp = INT64_MIN;
    CHECK_ERROR(send(&record), OTTLA_ERR_INVALID_TIMESTAMP, "none before it");
    ottla_result_t told;
    ottla_error_t *error = ottla_producer_send_many(producer, &record, 1, &told);
    CHECK(told.code == OTTLA_ERR_INVALID_TIMESTAMP && told.outcome == OTTLA_OUTCOME_NOT_SENT);
    CHECK(ottla_error_topic(told.error) && !strcmp(ottla_error_topic(told.error), "edges"));
    ottla_error_free(error);
    record = good;
    record.key.len = 5;
    CHECK_ERROR(send(&record), BAD, "`record.key` is NULL, but its length is 5");
    record = good;
    record.value.len = SIZE_MAX;
    CHECK_ERROR(send(&record), OTTLA_ERR_RECORD_TOO_LARGE, "`record.value`");
    record = good;
    record.key = OTTLA_BYTES("k", SIZE_MAX / 4);
    CHECK_ERROR(send(&record), OTTLA_ERR_RECORD_TOO_LARGE, "`record.key`");
    record = good;
    record.headers_len = 2;
    CHECK_ERROR(send(&record), BAD, "`record.headers` is NULL, but its length is 2");
    record.headers = headers;
    record.headers_len = SIZE_MAX;
    CHECK_ERROR(send(&record), BAD, "`record.headers` has the length");
    record.headers_len = 9;
    headers[8].key = NULL;
    CHECK_ERROR(send(&record), BAD, "`record.headers[8].key` is NULL");
    record.headers_len = 1;
    headers[0].key = not_utf8;
    CHECK_ERROR(send(&record), BAD, "`record.headers[0].key` is not UTF-8");
    headers[0].key = "h";
    headers[0].value.len = SIZE_MAX;
    CHECK_ERROR(send(&record), OTTLA_ERR_RECORD_TOO_LARGE, "`record.headers[0].value`");
    ottla_result_t result;
    CHECK_ERROR(ottla_producer_send_many(producer, NULL, 1, &result), BAD, "`records` is NULL");
    CHECK_ERROR(ottla_producer_send_many(producer, &good, SIZE_MAX, NULL), BAD, "`records` has");
    CHECK_OK(ottla_producer_send_many(producer, NULL, 0, NULL));
    CHECK_OK(ottla_producer_send_many(producer, NULL, 0, &result));
    CHECK_OK(ottla_consumer_pause(consumer, NULL, 0));
}

static void nothing_of_that_was_sent(void)
{
    ottla_delivery_t at;
    ottla_header_t headers[9];
    ottla_record_t record = record_of("edges", "v");
    for (int index = 0; index < 9; index++) headers[index] = (ottla_header_t){"", {"", 0}};
    record.key = OTTLA_BYTES("", 0);
    record.headers = headers;
    record.headers_len = 9;
    CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, &at));
    CHECK(at.offset == 0);
}

static void odd_header_names_arrive_as_they_are(void)
{
    const char *const odd[] = {"", "new\nline", long_text, "\xc3\xa4", "a=b;c"};
    enum { ODD = sizeof odd / sizeof *odd };
    ottla_header_t headers[ODD];
    ottla_header_view_t seen[ODD];
    ottla_record_t record = record_of("names", "v");
    const char *topic = record.topic;
    for (int index = 0; index < ODD; index++) {
        headers[index] = (ottla_header_t){odd[index], {odd[index], strlen(odd[index])}};
    }
    record.headers = headers;
    record.headers_len = ODD;
    CHECK_OK(ottla_producer_send_wait(producer, &record, SOON, NULL));
    /* A group's name is as free. */
    ottla_consumer_t *reader = ottla_consumer_new(
        options_of(broker, "start=earliest;group.id=gr\xc3\xbc\xc3\x9f" "e, and more"), NULL);
    CHECK_OK(ottla_consumer_subscribe(reader, &topic, 1));
    ottla_batch_t *batch = next_batch(reader);
    CHECK(batch && ottla_batch_headers(batch, 0, seen, ODD) == ODD);
    for (int index = 0; index < ODD; index++) {
        CHECK(bytes_are(seen[index].key, odd[index]) && bytes_are(seen[index].value, odd[index]));
    }
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(reader, SOON));
    ottla_consumer_free(reader);
}

int main(void)
{
    static const struct test tests[] = {
        {"every handle may be NULL", every_handle_may_be_null},
        {"odd options are refused", odd_options_are_refused},
        {"odd topics are refused", odd_topics_are_refused},
        {"odd records are refused", odd_records_are_refused},
        {"nothing of that was sent", nothing_of_that_was_sent},
        {"odd header names arrive as they are", odd_header_names_arrive_as_they_are},
    };
    memset(long_text, 'a', sizeof long_text - 1);
    broker = ottla_broker_start(NULL, NULL);
    ottla_error_free(ottla_broker_create_topic(broker, "edges", 1));
    producer = ottla_producer_new(options_of(broker, ""), NULL);
    consumer = ottla_consumer_new(options_of(broker, "group.id=edges"), NULL);
    int status = RUN(tests);
    ottla_consumer_free(consumer);
    ottla_producer_free(producer);
    ottla_broker_free(broker);
    return status;
}
