/* Partitions that a program assigns itself, where they begin and end, and how far reading is behind. */
#include "harness.h"

static ottla_broker_t *broker;
static char long_text[40001];

static ottla_consumer_t *consumer_of(const char *options)
{
    char text[192];
    snprintf(text, sizeof text, "start=earliest;auto_commit=false;%s", options);
    return ottla_consumer_new(options_of(broker, text), NULL);
}

static void end(ottla_consumer_t *consumer)
{
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

/* Sends records to partition 0, one a second from 1,000 s on. */
static void fill(const char *topic, int records)
{
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    for (int number = 0; number < records; number++) {
        ottla_record_t record = record_of(topic, "v");
        record.partition = 0;
        record.timestamp = 1000000 + 1000 * number;
        CHECK_OK(ottla_producer_send(producer, &record, NULL));
    }
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

/* A topic of two partitions: ten records in the first, none in the other. */
static void make(const char *topic)
{
    CHECK_OK(ottla_broker_create_topic(broker, topic, 2));
    fill(topic, 10);
}

/* The offset of the first record of the next batch; -1 if none comes. */
static int64_t next_offset(ottla_consumer_t *consumer)
{
    ottla_batch_t *batch = next_batch(consumer);
    int64_t offset = batch ? ottla_batch_get(batch, 0)->offset : -1;
    ottla_batch_free(batch);
    return offset;
}

static void without_a_group_assigned_partitions_are_read_from_where_told(void)
{
    ottla_topic_partition_t first = {"alone", 0}, mine[2];
    const char *topic = "alone";
    make(topic);
    ottla_consumer_t *consumer = consumer_of("max.poll.records=3");
    CHECK_OK(ottla_consumer_assign(consumer, &first, 1));
    CHECK(ottla_consumer_assignment(consumer, mine, 2) == 1 && mine[0].partition == 0);
    CHECK(next_offset(consumer) == 0 && next_offset(consumer) == 3);
    CHECK_OK(ottla_consumer_seek(consumer, "alone", 0, 8));
    CHECK(next_offset(consumer) == 8);
    CHECK_ERROR(ottla_consumer_commit_soon(consumer, NULL), OTTLA_ERR_INVALID_GROUP, "group.id");
    CHECK_ERROR(ottla_consumer_subscribe(consumer, &topic, 1), OTTLA_ERR_INVALID_GROUP, "group.id");
    CHECK_OK(ottla_consumer_assign(consumer, NULL, 0));
    CHECK(ottla_consumer_assignment(consumer, NULL, 0) == 0);
    end(consumer);
}

static void with_a_group_assigned_partitions_are_read_from_what_it_committed(void)
{
    ottla_topic_partition_t first = {"grouped", 0};
    const char *topic = "grouped";
    make(topic);
    ottla_consumer_t *consumer = consumer_of("group.id=grouped;max.poll.records=4");
    CHECK_OK(ottla_consumer_assign(consumer, &first, 1));
    ottla_batch_t *batch = next_batch(consumer);
    CHECK_OK(ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC));
    ottla_batch_free(batch);
    CHECK_ERROR(ottla_consumer_subscribe(consumer, &topic, 1), OTTLA_ERR_INVALID_STATE, "");
    end(consumer);
    consumer = consumer_of("group.id=grouped");
    CHECK_OK(ottla_consumer_assign(consumer, &first, 1));
    CHECK(next_offset(consumer) == 4);
    end(consumer);
}

static void beginnings_and_ends_come_in_the_order_asked_for(void)
{
    ottla_topic_partition_t both[] = {{"ends", 1}, {"ends", 0}};
    int64_t begins[] = {-7, -7}, ends[] = {-7, -7};
    make("ends");
    ottla_consumer_t *consumer = consumer_of("");
    CHECK_OK(ottla_consumer_beginning_offsets(consumer, both, 2, begins, SOON));
    CHECK(begins[0] == 0 && begins[1] == 0);
    CHECK_OK(ottla_consumer_end_offsets(consumer, both, 2, ends, -1));
    CHECK(ends[0] == 0 && ends[1] == 10);
    CHECK_OK(ottla_consumer_end_offsets(consumer, NULL, 0, NULL, SOON));
    end(consumer);
}

static void a_time_stands_for_the_first_record_of_it_or_later(void)
{
    ottla_topic_timestamp_t times[] = {{"times", 0, 1004500}, {"times", 1, 0}};
    ottla_offset_timestamp_t found[2];
    make("times");
    ottla_consumer_t *consumer = consumer_of("");
    CHECK_OK(ottla_consumer_offsets_for_times(consumer, times, 2, found, SOON));
    CHECK(found[0].offset == 5 && found[0].timestamp == 1005000);
    CHECK(found[1].offset == -1 && found[1].timestamp == -1 && found[1].leader_epoch == -1);
    times[0].timestamp = INT64_MAX;
    CHECK_OK(ottla_consumer_offsets_for_times(consumer, times, 1, found, SOON));
    CHECK(found[0].offset == -1);
    times[0].timestamp = -1;
    CHECK_ERROR(ottla_consumer_offsets_for_times(consumer, times, 1, found, SOON),
                OTTLA_ERR_INVALID_ARGUMENT, "-1 is no time");
    end(consumer);
}

static void what_is_not_there_is_told_when_the_time_is_over(void)
{
    ottla_topic_partition_t unknown[] = {{"nowhere", 0}, {"known", 9}, {"known", -1}};
    int64_t offset = -7;
    make("known");
    ottla_consumer_t *consumer = consumer_of("");
    CHECK_ERROR(ottla_consumer_end_offsets(consumer, unknown, 1, &offset, 300), OTTLA_ERR_TIMEOUT,
                "nowhere");
    CHECK_ERROR(ottla_consumer_beginning_offsets(consumer, unknown + 1, 1, &offset, 300),
                OTTLA_ERR_TIMEOUT, "known");
    CHECK_ERROR(ottla_consumer_end_offsets(consumer, unknown + 2, 1, &offset, SOON),
                OTTLA_ERR_INVALID_PARTITION, "-1");
    CHECK_ERROR(ottla_consumer_assign(consumer, unknown + 2, 1), OTTLA_ERR_INVALID_PARTITION, "-1");
    CHECK(offset == -7);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    CHECK_ERROR(ottla_consumer_end_offsets(consumer, unknown, 1, &offset, SOON), OTTLA_ERR_CLOSED,
                "closed");
    CHECK_ERROR(ottla_consumer_assign(consumer, unknown, 1), OTTLA_ERR_CLOSED, "closed");
    ottla_consumer_keep_alive(consumer);
    ottla_consumer_free(consumer);
}

static void a_seek_before_the_end_goes_no_further_than_the_beginning(void)
{
    ottla_topic_partition_t both[] = {{"back", 0}, {"back", 1}};
    int64_t offset = -7;
    make("back");
    ottla_consumer_t *consumer = consumer_of("");
    CHECK_OK(ottla_consumer_assign(consumer, both, 2));
    CHECK_OK(ottla_consumer_seek_before_end(consumer, "back", 0, 3, SOON, &offset));
    CHECK(offset == 7 && next_offset(consumer) == 7);
    CHECK_OK(ottla_consumer_seek_before_end(consumer, "back", 0, UINT64_MAX, SOON, NULL));
    CHECK_OK(ottla_consumer_position(consumer, "back", 0, &offset));
    CHECK(offset == 0);
    CHECK_OK(ottla_consumer_assign(consumer, both + 1, 1));
    CHECK_ERROR(ottla_consumer_seek_before_end(consumer, "back", 0, 3, SOON, &offset),
                OTTLA_ERR_NOT_ASSIGNED, "back-0");
    end(consumer);
}

static void the_lag_falls_to_nothing_as_records_are_read(void)
{
    ottla_topic_partition_t first = {"lag", 0};
    int64_t lag = -7;
    make("lag");
    ottla_consumer_t *consumer = consumer_of("max.poll.records=9");
    CHECK_OK(ottla_consumer_current_lag(consumer, "lag", 0, &lag));
    CHECK(lag == -1);
    CHECK_OK(ottla_consumer_assign(consumer, &first, 1));
    int64_t read = 0;
    while (read < 10) {
        ottla_batch_t *batch = next_batch(consumer);
        CHECK(batch);
        read += (int64_t)ottla_batch_len(batch);
        ottla_batch_free(batch);
        CHECK_OK(ottla_consumer_current_lag(consumer, "lag", 0, &lag));
        CHECK(lag == 10 - read);
    }
    end(consumer);
}

static void a_pattern_reads_topics_that_come_later(void)
{
    ottla_consumer_t *consumer = consumer_of("group.id=pattern;metadata.max.age.ms=200");
    CHECK_ERROR(ottla_consumer_subscribe_pattern(consumer, "("), OTTLA_ERR_INVALID_ARGUMENT,
                "no pattern");
    CHECK_OK(ottla_consumer_subscribe_pattern(consumer, "later-[ab]"));
    static const char *const topics[] = {"later-a", "later-b"};
    make("xlater-a");
    for (int index = 0; index < 2; index++) {
        make(topics[index]);
        ottla_batch_t *batch = next_batch(consumer);
        CHECK(batch && !strcmp(ottla_batch_topic(batch), topics[index]));
        int all = ottla_batch_len(batch) == 10;
        ottla_batch_free(batch);
        CHECK(all);
    }
    end(consumer);
}

static void what_was_committed_is_told_with_what_stands_beside_it(void)
{
    ottla_topic_partition_t both[] = {{"beside", 1}, {"beside", 0}};
    ottla_topic_metadata_t half = {"beside", 0, 0, 4, "half"}, none = {"beside", 1, -1, 0, NULL};
    ottla_topic_metadata_t rows[] = {half, none};
    ottla_error_t *error = NULL;
    make("beside");
    ottla_consumer_t *consumer = consumer_of("group.id=beside");
    ottla_committed_t *found = ottla_consumer_committed(consumer, both, 1, SOON, &error);
    CHECK(found && ottla_committed_get(found, 0)->offset == -1 && !ottla_committed_get(found, 1));
    ottla_committed_free(found);
    CHECK_OK(ottla_consumer_assign(consumer, both, 2));
    CHECK_OK(ottla_consumer_commit_metadata(consumer, rows, 2, OTTLA_COMMIT_SYNC));
    found = ottla_consumer_committed(consumer, both, 2, SOON, &error);
    CHECK(found);
    const ottla_topic_metadata_t *row = ottla_committed_get(found, 0);
    CHECK(row->offset == 0 && row->leader_epoch == -1 && !strcmp(row->metadata, ""));
    row = ottla_committed_get(found, 1);
    CHECK(!strcmp(row->topic, "beside") && row->partition == 0);
    CHECK(row->offset == 4 && row->leader_epoch == 0 && !strcmp(row->metadata, "half"));
    /* A row that was given is one to be taken, too. */
    CHECK_OK(ottla_consumer_commit_metadata(consumer, row, 1, OTTLA_COMMIT_SOON));
    ottla_committed_free(found);
    half.metadata = long_text;
    CHECK_ERROR(ottla_consumer_commit_metadata(consumer, &half, 1, OTTLA_COMMIT_SYNC),
                OTTLA_ERR_INVALID_ARGUMENT, "bytes of metadata");
    half.metadata = "\xff";
    CHECK_ERROR(ottla_consumer_commit_metadata(consumer, &half, 1, OTTLA_COMMIT_SYNC),
                OTTLA_ERR_INVALID_ARGUMENT, "`offsets[0].metadata` is not UTF-8");
    end(consumer);
    consumer = consumer_of("");
    CHECK(!ottla_consumer_committed(consumer, both, 2, SOON, &error));
    CHECK_ERROR(error, OTTLA_ERR_INVALID_GROUP, "group.id");
    end(consumer);
}

static void begin_in(const char *group, int allowed, ottla_consumer_t **begun)
{
    const char *topic = "alive";
    char options[96];
    snprintf(options, sizeof options, "group.id=%s-%d;max.poll.interval.ms=%d", group, allowed,
             allowed);
    *begun = consumer_of(options);
    CHECK_OK(ottla_consumer_subscribe(*begun, &topic, 1));
    CHECK(next_offset(*begun) == 0);
}

static void signs_of_life_keep_what_a_member_has_beyond_its_time(void)
{
    make("alive");
    /* A slow machine may not come to them in time: then with longer ones. */
    for (int allowed = 500; allowed <= 32000; allowed *= 4) {
        ottla_consumer_t *alive, *silent;
        begin_in("alive", allowed, &alive);
        ottla_consumer_keep_alive(alive);
        begin_in("silent", allowed, &silent);
        /* Who has read last and says nothing is late; who has read before it would be too. */
        while (ottla_consumer_assignment(silent, NULL, 0) > 0) {
            ottla_consumer_keep_alive(alive);
        }
        size_t kept = ottla_consumer_assignment(alive, NULL, 0);
        end(alive);
        end(silent);
        if (kept == 2) return;
    }
    CHECK(!"the partitions went all the same");
}

int main(void)
{
    static const struct test tests[] = {
        {"without a group, assigned partitions are read from where told",
         without_a_group_assigned_partitions_are_read_from_where_told},
        {"with a group, assigned partitions are read from what it committed",
         with_a_group_assigned_partitions_are_read_from_what_it_committed},
        {"beginnings and ends come in the order asked for",
         beginnings_and_ends_come_in_the_order_asked_for},
        {"a time stands for the first record of it or later",
         a_time_stands_for_the_first_record_of_it_or_later},
        {"what is not there is told when the time is over",
         what_is_not_there_is_told_when_the_time_is_over},
        {"a seek before the end goes no further than the beginning",
         a_seek_before_the_end_goes_no_further_than_the_beginning},
        {"the lag falls to nothing as records are read",
         the_lag_falls_to_nothing_as_records_are_read},
        {"a pattern reads topics that come later", a_pattern_reads_topics_that_come_later},
        {"what was committed is told with what stands beside it",
         what_was_committed_is_told_with_what_stands_beside_it},
        {"signs of life keep what a member has beyond its time",
         signs_of_life_keep_what_a_member_has_beyond_its_time},
    };
    ottla_error_t *error = NULL;
    memset(long_text, 'x', sizeof long_text - 1);
    broker = ottla_broker_start(NULL, &error);
    if (!broker) {
        printf("no broker: %s\n", ottla_error_message(error));
        return 1;
    }
    int status = RUN(tests);
    ottla_error_free(ottla_broker_stop(broker, SOON));
    ottla_broker_free(broker);
    return status;
}
