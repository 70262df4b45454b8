/* Consumers: sharing partitions, committing, going about, event loops and wake-ups. */
#include <pthread.h>

#include "harness.h"

static ottla_broker_t *broker;

static ottla_consumer_t *consumer_of(const char *topic, const char *group, const char *added)
{
    char text[192];
    snprintf(text, sizeof text, "group.id=%s;start=earliest;auto_commit=false;%s", group, added);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, text), NULL);
    ottla_error_free(ottla_consumer_subscribe(consumer, &topic, 1));
    return consumer;
}

/* Sends records numbered from first on to one partition. */
static void fill(const char *topic, int partition, int first, int records)
{
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    for (int number = first; number < first + records; number++) {
        char value[16];
        snprintf(value, sizeof value, "%d", number);
        ottla_record_t record = record_of(topic, value);
        record.partition = partition;
        CHECK_OK(ottla_producer_send(producer, &record, NULL));
    }
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
}

/* Polls once for a moment, and counts what came by the number in its value. */
static int take(ottla_consumer_t *consumer, int *seen)
{
    ottla_error_t *error = NULL;
    ottla_batch_t *batch = ottla_consumer_poll(consumer, 20, &error);
    int records = (int)ottla_batch_len(batch);
    for (int index = 0; index < records; index++) {
        char value[16] = "";
        ottla_bytes_t bytes = ottla_batch_get(batch, (size_t)index)->value;
        memcpy(value, bytes.ptr, bytes.len < 15 ? bytes.len : 15);
        seen[atoi(value)]++;
    }
    if (batch) error = ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC);
    ottla_error_free(error);
    ottla_batch_free(batch);
    return records;
}

static void a_group_shares_its_partitions(void)
{
    enum { PARTITIONS = 4, COUNT = 400 };
    int seen[COUNT] = {0};
    ottla_topic_partition_t mine[PARTITIONS];
    CHECK_OK(ottla_broker_create_topic(broker, "shared", PARTITIONS));
    ottla_consumer_t *first = consumer_of("shared", "shared", "");
    int64_t deadline = now_ms() + SOON;
    while (ottla_consumer_assignment(first, NULL, 0) < 4 && now_ms() < deadline) take(first, seen);
    CHECK(ottla_consumer_assignment(first, mine, PARTITIONS) == 4);
    for (int index = 0; index < PARTITIONS; index++) {
        CHECK(!strcmp(mine[index].topic, "shared") && mine[index].partition == index);
    }
    ottla_consumer_t *second = consumer_of("shared", "shared", "");
    size_t has_first = 0, has_second = 0;
    while ((has_first != 2 || has_second != 2) && now_ms() < deadline) {
        take(first, seen);
        take(second, seen);
        has_first = ottla_consumer_assignment(first, NULL, 0);
        has_second = ottla_consumer_assignment(second, NULL, 0);
    }
    CHECK(has_first == 2 && has_second == 2);
    for (int index = 0; index < PARTITIONS; index++) fill("shared", index, index * 100, 100);
    int by_first = 0, by_second = 0;
    while (by_first + by_second < COUNT && now_ms() < deadline) {
        by_first += take(first, seen);
        by_second += take(second, seen);
    }
    CHECK(by_first == COUNT / 2 && by_second == COUNT / 2);
    for (int index = 0; index < COUNT; index++) CHECK(seen[index] == 1);
    CHECK_OK(ottla_consumer_close(second, SOON));
    ottla_consumer_free(second);
    while (ottla_consumer_assignment(first, NULL, 0) < 4 && now_ms() < deadline) take(first, seen);
    CHECK(ottla_consumer_assignment(first, NULL, 0) == 4);
    CHECK_OK(ottla_consumer_close(first, SOON));
    ottla_consumer_free(first);
}

/* The first offset that a new member of a group reads, or -1. */
static int64_t begins_at(const char *topic, const char *group)
{
    ottla_consumer_t *consumer = consumer_of(topic, group, "");
    ottla_batch_t *batch = next_batch(consumer);
    int64_t offset = batch ? ottla_batch_get(batch, 0)->offset : -1;
    ottla_batch_free(batch);
    ottla_error_free(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
    return offset;
}

static void a_restart_goes_on_where_was_committed(void)
{
    CHECK_OK(ottla_broker_create_topic(broker, "restart", 1));
    fill("restart", 0, 0, 100);
    ottla_consumer_t *consumer = consumer_of("restart", "sync", "max.poll.records=10");
    ottla_batch_t *batch = next_batch(consumer);
    CHECK(ottla_batch_len(batch) == 10);
    CHECK_OK(ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC));
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
    CHECK(begins_at("restart", "sync") == 10);

    consumer = consumer_of("restart", "soon", "max.poll.records=20");
    batch = next_batch(consumer);
    CHECK_OK(ottla_consumer_commit_soon(consumer, batch));
    ottla_batch_free(batch);
    batch = next_batch(consumer);
    CHECK_OK(ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SOON));
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
    CHECK(begins_at("restart", "soon") == 40);

    consumer = consumer_of("restart", "offsets", "");
    batch = next_batch(consumer);
    ottla_topic_offset_t offset = {"restart", 0, 77};
    CHECK_OK(ottla_consumer_commit_offsets(consumer, &offset, 1, OTTLA_COMMIT_SYNC));
    CHECK_ERROR(ottla_consumer_commit_offsets(consumer, &offset, 1, 42), OTTLA_ERR_INVALID_ARGUMENT,
                "mode");
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
    CHECK(begins_at("restart", "offsets") == 77);
}

static void seek_pause_and_resume(void)
{
    ottla_topic_partition_t partition = {"places", 0};
    int64_t offset = 0;
    CHECK_OK(ottla_broker_create_topic(broker, "places", 1));
    fill("places", 0, 0, 100);
    ottla_consumer_t *consumer = consumer_of("places", "places", "max.poll.records=5");
    ottla_batch_t *batch = next_batch(consumer);
    CHECK(ottla_batch_get(batch, 0)->offset == 0);
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_position(consumer, "places", 0, &offset));
    CHECK(offset == 5);
    CHECK_OK(ottla_consumer_position(consumer, "places", 9, &offset));
    CHECK(offset == -1);
    CHECK_OK(ottla_consumer_seek(consumer, "places", 0, 60));
    batch = next_batch(consumer);
    CHECK(ottla_batch_get(batch, 0)->offset == 60);
    ottla_batch_free(batch);
    CHECK_ERROR(ottla_consumer_seek(consumer, "places", 9, 0), OTTLA_ERR_NOT_ASSIGNED, "places-9");
    CHECK_OK(ottla_consumer_pause(consumer, &partition, 1));
    CHECK(!ottla_consumer_poll(consumer, 50, NULL));
    CHECK_OK(ottla_consumer_resume(consumer, &partition, 1));
    batch = next_batch(consumer);
    CHECK(batch && ottla_batch_get(batch, 0)->offset == 65);
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

static void the_descriptor_is_readable_while_anything_waits(void)
{
    enum { COUNT = 20 };
    CHECK_OK(ottla_broker_create_topic(broker, "loop", 1));
    ottla_consumer_t *consumer = consumer_of("loop", "loop", "max.poll.records=1");
    int fd = ottla_consumer_fd(consumer);
    ottla_error_t *error = NULL;
    for (int round = 0; round < 3; round++) {
        fill("loop", 0, 0, COUNT);
        int read = 0;
        while (read < COUNT) {
            /* One batch for each time it is readable: it stays so while others wait. */
            CHECK(readable(fd, SOON));
            ottla_batch_t *batch = ottla_consumer_poll(consumer, 0, &error);
            CHECK(!error);
            read += (int)ottla_batch_len(batch);
            ottla_batch_free(batch);
        }
        /* A wake may still come for what was taken already; then it is quiet. */
        int64_t deadline = now_ms() + SOON;
        do {
            CHECK(!ottla_consumer_poll(consumer, 0, &error) && !error);
        } while (readable(fd, 0) && now_ms() < deadline);
        CHECK(now_ms() < deadline);
    }
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    CHECK(readable(fd, 0));
    CHECK(!ottla_consumer_poll(consumer, 0, &error));
    CHECK_ERROR(error, OTTLA_ERR_CLOSED, "closed");
    ottla_consumer_free(consumer);
}

static void *wake(void *consumer)
{
    ottla_consumer_wakeup(consumer);
    return NULL;
}

static ottla_consumer_t *volatile in_handler;

static void handle_signal(int number)
{
    (void)number;
    ottla_consumer_wakeup(in_handler);
}

static void *send_signal(void *main_thread)
{
    pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
    return NULL;
}

static void a_poll_without_limit_can_be_woken(void)
{
    pthread_t self = pthread_self(), other;
    ottla_error_t *error = NULL;
    CHECK_OK(ottla_broker_create_topic(broker, "quiet", 1));
    ottla_consumer_t *consumer = consumer_of("quiet", "quiet", "");
    CHECK(!pthread_create(&other, NULL, wake, consumer));
    CHECK(!ottla_consumer_poll(consumer, -1, &error) && !error);
    pthread_join(other, NULL);

    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_signal;
    sigaction(SIGUSR1, &action, NULL);
    in_handler = consumer;
    CHECK(!pthread_create(&other, NULL, send_signal, &self));
    CHECK(!ottla_consumer_poll(consumer, -1, &error) && !error);
    pthread_join(other, NULL);

    /* A wake-up loses no record. */
    fill("quiet", 0, 0, 1);
    ottla_consumer_wakeup(consumer);
    int64_t deadline = now_ms() + SOON;
    ottla_batch_t *batch = NULL;
    while (!batch && now_ms() < deadline && readable(ottla_consumer_fd(consumer), SOON)) {
        batch = ottla_consumer_poll(consumer, 0, &error);
        CHECK(!error);
    }
    CHECK(batch);
    ottla_batch_free(batch);
    ottla_consumer_free(consumer);
}

static void *poll_without_limit(void *consumer)
{
    ottla_error_t *error = NULL;
    ottla_batch_t *batch = ottla_consumer_poll(consumer, -1, &error);
    ottla_batch_free(batch);
    return error;
}

static void records_finished_in_any_order_do_not_come_again(void)
{
    const char *option = "acknowledgement=explicit";
    CHECK_OK(ottla_broker_create_topic(broker, "any-order", 1));
    fill("any-order", 0, 0, 10);
    ottla_consumer_t *consumer = consumer_of("any-order", "workers", option);
    ottla_batch_t *batch = next_batch(consumer);
    CHECK(ottla_batch_len(batch) == 10);
    CHECK_OK(ottla_consumer_acknowledge(consumer, batch, 9, 1));
    CHECK_OK(ottla_consumer_acknowledge(consumer, batch, 2, 3));
    CHECK_ERROR(ottla_consumer_acknowledge(consumer, batch, 9, 2), OTTLA_ERR_INVALID_ARGUMENT,
                "no part 9..11");
    CHECK_ERROR(ottla_consumer_acknowledge(consumer, batch, 0, 0), OTTLA_ERR_INVALID_ARGUMENT,
                "no part 0..0");
    CHECK_OK(ottla_consumer_commit_soon(consumer, NULL));
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);

    consumer = consumer_of("any-order", "workers", option);
    batch = next_batch(consumer);
    CHECK(ottla_batch_len(batch) == 2 && ottla_batch_get(batch, 0)->offset == 0);
    ottla_batch_free(batch);
    batch = next_batch(consumer);
    CHECK(ottla_batch_len(batch) == 4 && ottla_batch_get(batch, 0)->offset == 5);
    ottla_batch_free(batch);
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

static void close_ends_a_poll_in_another_thread(void)
{
    pthread_t other;
    void *error;
    CHECK_OK(ottla_broker_create_topic(broker, "closed", 1));
    ottla_consumer_t *consumer = consumer_of("closed", "closed", "");
    CHECK(!pthread_create(&other, NULL, poll_without_limit, consumer));
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    pthread_join(other, &error);
    CHECK_ERROR(error, OTTLA_ERR_CLOSED, "closed");
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    ottla_consumer_free(consumer);
}

int main(void)
{
    static const struct test tests[] = {
        {"a group shares its partitions", a_group_shares_its_partitions},
        {"a restart goes on where was committed", a_restart_goes_on_where_was_committed},
        {"seek, pause and resume", seek_pause_and_resume},
        {"the descriptor is readable while anything waits",
         the_descriptor_is_readable_while_anything_waits},
        {"a poll without limit can be woken", a_poll_without_limit_can_be_woken},
        {"records finished in any order do not come again",
         records_finished_in_any_order_do_not_come_again},
        {"close ends a poll in another thread", close_ends_a_poll_in_another_thread},
    };
    ottla_error_t *error = NULL;
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
