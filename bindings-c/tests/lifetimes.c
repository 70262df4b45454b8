/* Who owns what, and until when: any order of freeing, every way a send ends. */
#include "harness.h"

static ottla_broker_t *broker;

static int send_one(ottla_producer_t *producer, const char *topic, ottla_sent_t **sent)
{
    ottla_record_t record = record_of(topic, "value");
    ottla_error_t *error = ottla_producer_send(producer, &record, sent);
    int failed = error != NULL;
    ottla_error_free(error);
    return failed;
}

enum { PRODUCER, SENT, CONSUMER, BATCH, FAULT, KINDS };

static void frees_in_order(const int *order)
{
    const char *topic = "orders";
    ottla_error_t *fault = NULL;
    ottla_sent_t *sent = NULL;
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    char added[96];
    snprintf(added, sizeof added, "start=earliest;group.id=g%d%d%d%d%d", order[0], order[1],
             order[2], order[3], order[4]);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, added), NULL);
    CHECK(!send_one(producer, topic, &sent));
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    ottla_batch_t *batch = next_batch(consumer);
    CHECK(batch);
    const ottla_record_view_t *view = ottla_batch_get(batch, 0);
    CHECK(!ottla_producer_new("nonsense", &fault) && fault);
    for (int step = 0; step < KINDS; step++) {
        CHECK(order[step] == BATCH || !batch || bytes_are(view->value, "value"));
        CHECK(order[step] == FAULT || !fault || *ottla_error_message(fault));
        switch (order[step]) {
        case PRODUCER:
            ottla_producer_free(producer);
            break;
        case SENT:
            ottla_sent_free(sent);
            break;
        case CONSUMER:
            ottla_consumer_free(consumer);
            break;
        case BATCH:
            ottla_batch_free(batch);
            batch = NULL;
            break;
        default:
            ottla_error_free(fault);
            fault = NULL;
        }
    }
}

/* Every kind first and last, and their neighbours in turn: rotations, both ways round. */
static void handles_may_be_freed_in_any_order(void)
{
    for (int first = 0; first < KINDS; first++) {
        int forward[KINDS], backward[KINDS], across[KINDS];
        for (int step = 0; step < KINDS; step++) {
            forward[step] = (first + step) % KINDS;
            backward[step] = (first + KINDS - step) % KINDS;
            across[step] = (first + 2 * step) % KINDS;
        }
        frees_in_order(forward);
        frees_in_order(backward);
        frees_in_order(across);
    }
}

static void a_broker_may_be_freed_before_its_clients(void)
{
    const char *topic = "orders";
    ottla_broker_t *own = ottla_broker_start(NULL, NULL);
    CHECK_OK(ottla_broker_create_topic(own, topic, 1));
    ottla_producer_t *producer = ottla_producer_new(options_of(own, ""), NULL);
    ottla_consumer_t *consumer = ottla_consumer_new(options_of(own, "start=earliest;group=g"), NULL);
    CHECK(!send_one(producer, topic, NULL));
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    ottla_batch_t *batch = next_batch(consumer);
    CHECK(batch);
    ottla_broker_free(own);
    CHECK(bytes_are(ottla_batch_get(batch, 0)->value, "value"));
    int64_t began = now_ms();
    ottla_error_free(ottla_consumer_close(consumer, 100));
    ottla_error_free(ottla_producer_close(producer, 100));
    CHECK(now_ms() - began < SOON);
    ottla_consumer_free(consumer);
    ottla_producer_free(producer);
    ottla_batch_free(batch);
}

static void closed_clients_say_so_and_close_again(void)
{
    const char *topic = "orders";
    ottla_error_t *error = NULL;
    ottla_record_t record = record_of(topic, "value");
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    CHECK(!send_one(producer, topic, NULL));
    CHECK_OK(ottla_producer_close(producer, SOON));
    CHECK_OK(ottla_producer_close(producer, SOON));
    CHECK_ERROR(ottla_producer_send(producer, &record, NULL), OTTLA_ERR_CLOSED, "closed");
    CHECK_ERROR(ottla_producer_send_wait(producer, &record, -1, NULL), OTTLA_ERR_CLOSED, "closed");
    CHECK(ottla_producer_poll(producer, -1) == 0);
    ottla_producer_free(producer);
    producer = ottla_producer_new(options_of(broker, ""), NULL);
    CHECK_OK(ottla_producer_close(producer, -1));
    CHECK_ERROR(ottla_producer_send(producer, &record, NULL), OTTLA_ERR_CLOSED, "closed");
    ottla_producer_free(producer);

    ottla_consumer_t *consumer = ottla_consumer_new(options_of(broker, "group.id=twice"), NULL);
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    CHECK_OK(ottla_consumer_close(consumer, SOON));
    CHECK(!ottla_consumer_poll(consumer, -1, &error));
    CHECK_ERROR(error, OTTLA_ERR_CLOSED, "closed");
    CHECK_ERROR(ottla_consumer_subscribe(consumer, &topic, 1), OTTLA_ERR_CLOSED, "closed");
    ottla_consumer_free(consumer);

    ottla_broker_t *own = ottla_broker_start("num.partitions=2", &error);
    CHECK(own && !error && strlen(ottla_broker_cluster_id(own)) == 22);
    CHECK_OK(ottla_broker_stop(own, SOON));
    CHECK_OK(ottla_broker_stop(own, SOON));
    CHECK_ERROR(ottla_broker_create_topic(own, "late", 1), OTTLA_ERR_CLOSED, "stopped");
    ottla_broker_free(own);
}

/* A record whose parts are all the test's own memory. */
struct owned {
    char *topic, *value, *key, *header_value;
    ottla_header_t *headers;
    ottla_record_t record;
};

static char *copy(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(malloc(size), text, size);
}

static struct owned own_record(const char *topic, size_t value_len)
{
    struct owned owned;
    owned.topic = copy(topic);
    owned.value = calloc(1, value_len + 1);
    owned.key = copy("header");
    owned.header_value = copy("of a header");
    owned.headers = calloc(1, sizeof *owned.headers);
    owned.headers->key = owned.key;
    owned.headers->value = OTTLA_BYTES(owned.header_value, strlen(owned.header_value));
    owned.record = OTTLA_RECORD(owned.topic);
    owned.record.value = OTTLA_BYTES(owned.value, value_len);
    owned.record.headers = owned.headers;
    owned.record.headers_len = 1;
    return owned;
}

/* Exactly one owner in every case: the caller. */
static void free_record(struct owned *owned)
{
    free(owned->topic);
    free(owned->value);
    free(owned->key);
    free(owned->header_value);
    free(owned->headers);
}

static void send_owned(ottla_producer_t *producer, const char *topic, size_t value_len,
                       ottla_error_code_t expected)
{
    struct owned owned = own_record(topic, value_len);
    ottla_sent_t *none = NULL;
    ottla_error_t *error = ottla_producer_send(producer, &owned.record, &none);
    ottla_error_code_t code = ottla_error_code(error);
    if (code != expected) printf("%s: %s\n", ottla_error_name(error), ottla_error_message(error));
    ottla_error_free(error);
    free_record(&owned);
    CHECK(code == expected && (none != NULL) == (code == OTTLA_OK));
    ottla_sent_free(none);
}

static void a_record_is_the_callers_however_its_send_ends(void)
{
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    send_owned(producer, "orders", 10, OTTLA_OK);
    send_owned(producer, "not a topic", 10, OTTLA_ERR_INVALID_TOPIC);
    send_owned(producer, "orders", 2 << 20, OTTLA_ERR_RECORD_TOO_LARGE);
    CHECK_OK(ottla_producer_close(producer, SOON));
    send_owned(producer, "orders", 10, OTTLA_ERR_CLOSED);
    ottla_producer_free(producer);

    /* Its broker is gone, and what it has been sent stays in memory until its delivery timeout. */
    ottla_broker_t *own = ottla_broker_start(NULL, NULL);
    CHECK_OK(ottla_broker_create_topic(own, "orders", 1));
    producer = ottla_producer_new(options_of(own, "buffer.memory=32768;max.block.ms=500"), NULL);
    ottla_record_t first = record_of("orders", "value");
    CHECK(make_known(producer, &first));
    CHECK_OK(ottla_broker_stop(own, SOON));
    ottla_broker_free(own);
    ottla_error_code_t code = OTTLA_OK;
    for (int count = 0; count < 100 && code == OTTLA_OK; count++) {
        struct owned owned = own_record("orders", 1000);
        ottla_error_t *error = ottla_producer_send(producer, &owned.record, NULL);
        code = ottla_error_code(error);
        CHECK(!error || ottla_error_outcome(error) == OTTLA_OUTCOME_NOT_SENT);
        ottla_error_free(error);
        free_record(&owned);
    }
    CHECK(code == OTTLA_ERR_BUFFER_FULL);
    ottla_error_free(ottla_producer_close(producer, 0));
    ottla_producer_free(producer);
}

static void free_inside(const ottla_result_t *results, size_t results_len, void *user)
{
    ottla_producer_t **producer = user;
    (void)results;
    (void)results_len;
    ottla_error_free(ottla_producer_close(*producer, SOON));
    ottla_producer_free(*producer);
    *producer = NULL;
}

static void a_callback_may_close_and_free_its_producer(void)
{
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    CHECK_OK(ottla_producer_on_delivery(producer, free_inside, &producer));
    CHECK(!send_one(producer, "orders", NULL));
    CHECK(ottla_producer_poll(producer, SOON) == 1 && !producer);
}

int main(void)
{
    static const struct test tests[] = {
        {"handles may be freed in any order", handles_may_be_freed_in_any_order},
        {"a broker may be freed before its clients", a_broker_may_be_freed_before_its_clients},
        {"closed clients say so and close again", closed_clients_say_so_and_close_again},
        {"a record is the caller's however its send ends",
         a_record_is_the_callers_however_its_send_ends},
        {"a callback may close and free its producer", a_callback_may_close_and_free_its_producer},
    };
    broker = ottla_broker_start(NULL, NULL);
    ottla_error_free(ottla_broker_create_topic(broker, "orders", 1));
    int status = RUN(tests);
    ottla_error_free(ottla_broker_stop(broker, SOON));
    ottla_broker_free(broker);
    return status;
}
