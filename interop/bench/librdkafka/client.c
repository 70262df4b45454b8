/* librdkafka as a program that a benchmark measures; what it is told and prints: ../README.md. */

#include "rdkafka.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1000, FETCHED = 10000, PATIENCE_MS = 60000 };

static int word_count;
static char **words;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static const char *setting(const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < word_count; i++)
    if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
      return words[i] + length + 1;
  fail(name, "not set");
  return NULL;
}

static double number(const char *name) { return atof(setting(name)); }

static int is(const char *name, const char *value) { return strcmp(setting(name), value) == 0; }

static double seconds_of(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double now(void) { return seconds_of(CLOCK_MONOTONIC); }

static double cpu(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char why[512];
  if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

/* What README.md calls options: `option.NAME=VALUE` go to the client as they are. */
static rd_kafka_conf_t *configuration(void) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  set(conf, "bootstrap.servers", setting("address"));
  /* Errors come by its functions too, and end this program. */
  rd_kafka_conf_set_log_cb(conf, NULL);
  for (int i = 0; i < word_count; i++) {
    char *equals = strchr(words[i], '=');
    if (equals == NULL || strncmp(words[i], "option.", 7) != 0) continue;
    *equals = 0;
    set(conf, words[i] + 7, equals + 1);
    *equals = '=';
  }
  return conf;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
  char why[512];
  rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
  if (rk == NULL) fail("rd_kafka_new", why);
  return rk;
}

static rd_kafka_topic_t *topic_of(rd_kafka_t *rk) {
  return rd_kafka_topic_new(rk, setting("topic"), NULL);
}

/* The values of a file, one behind the other. */
static char *values;
static size_t value_bytes, value_count;

static void read_values(void) {
  FILE *file = fopen(setting("values"), "rb");
  if (file == NULL) fail("values", "cannot be opened");
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  values = malloc(size);
  if (fread(values, 1, size, file) != size) fail("values", "cannot be read");
  fclose(file);
  value_bytes = (size_t)number("bytes");
  value_count = size / value_bytes;
}

static char *value(uint64_t at) { return values + (at % value_count) * value_bytes; }

/* Reports of deliveries are served on a thread of their own, as in any program that sends a lot. */
static volatile int serving = 1;

static void *serve(void *rk) {
  while (serving) rd_kafka_poll(rk, 100);
  return NULL;
}

static uint64_t failed;

static void count_failures(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  (void)rk, (void)opaque;
  if (message->err != 0) failed++;
}

static int32_t partition_of(uint64_t at, int own, uint64_t partitions) {
  return own ? RD_KAFKA_PARTITION_UA : (int32_t)(at % partitions);
}

static void send_one(rd_kafka_topic_t *topic, uint64_t at, int own, uint64_t partitions) {
  while (rd_kafka_produce(topic, partition_of(at, own, partitions), RD_KAFKA_MSG_F_COPY, value(at),
                          value_bytes, NULL, 0, NULL) != 0) {
    if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
      fail("rd_kafka_produce", rd_kafka_err2str(rd_kafka_last_error()));
    usleep(500);
  }
}

static void send_batch(rd_kafka_topic_t *topic, uint64_t at, int own, uint64_t partitions) {
  static rd_kafka_message_t batch[BATCH];
  memset(batch, 0, sizeof batch);
  for (uint64_t i = 0; i < BATCH; i++) {
    batch[i].payload = value(at + i);
    batch[i].len = value_bytes;
    batch[i].partition = partition_of(at + i, own, partitions);
  }
  int flags = RD_KAFKA_MSG_F_COPY | (own ? 0 : RD_KAFKA_MSG_F_PARTITION);
  int sent = rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, flags, batch, BATCH);
  if (sent == BATCH) return;
  for (uint64_t i = 0; i < BATCH; i++) {
    if (batch[i].err == 0) continue;
    if (batch[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
      fail("rd_kafka_produce_batch", rd_kafka_err2str(batch[i].err));
    send_one(topic, at + i, own, partitions);
  }
}

/* Sends for so long and waits for all answers; how many records that were. */
static uint64_t send_for(rd_kafka_t *rk, rd_kafka_topic_t *topic, double seconds) {
  int own = is("spread", "own"), batched = is("call", "batch");
  uint64_t partitions = (uint64_t)number("partitions"), at = 0;
  for (double end = now() + seconds; now() < end; at += BATCH) {
    if (batched)
      send_batch(topic, at, own, partitions);
    else
      for (uint64_t i = 0; i < BATCH; i++) send_one(topic, at + i, own, partitions);
  }
  if (rd_kafka_flush(rk, PATIENCE_MS) != 0) fail("rd_kafka_flush", "records not delivered");
  return at;
}

static void produce(void) {
  read_values();
  rd_kafka_conf_t *conf = configuration();
  rd_kafka_conf_set_dr_msg_cb(conf, count_failures);
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
  rd_kafka_topic_t *topic = topic_of(rk);
  pthread_t server;
  pthread_create(&server, NULL, serve, rk);
  uint64_t warm = send_for(rk, topic, number("warm"));
  double begin = now(), used = cpu();
  uint64_t sent = send_for(rk, topic, number("seconds"));
  double took = now() - begin;
  used = cpu() - used;
  serving = 0;
  pthread_join(server, NULL);
  if (failed != 0) fail("deliveries", "some records failed");
  printf("warm=%llu records=%llu seconds=%.4f cpu=%.4f\n", (unsigned long long)warm,
         (unsigned long long)sent, took, used);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

/* Reads the whole topic once, in a new group; gives the sum of all values' bytes. */
static uint64_t read_all(uint64_t records) {
  static rd_kafka_message_t *fetched[FETCHED];
  static int pass;
  char group[64];
  snprintf(group, sizeof group, "bench-%d-%d-%.0f", (int)getpid(), pass++, now() * 1e6);
  rd_kafka_conf_t *conf = configuration();
  set(conf, "group.id", group);
  rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, conf);
  rd_kafka_poll_set_consumer(rk);
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, setting("topic"), RD_KAFKA_PARTITION_UA);
  if (rd_kafka_subscribe(rk, topics) != 0) fail("rd_kafka_subscribe", setting("topic"));
  rd_kafka_topic_partition_list_destroy(topics);
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
  uint64_t read = 0, bytes = 0;
  double end = now() + PATIENCE_MS / 1000.0;
  while (read < records) {
    if (now() > end) fail("consume", "the topic did not come in time");
    ssize_t count = rd_kafka_consume_batch_queue(queue, 500, fetched, FETCHED);
    for (ssize_t i = 0; i < count; i++) {
      if (fetched[i]->err != 0) fail("consume", rd_kafka_message_errstr(fetched[i]));
      bytes += fetched[i]->len;
      rd_kafka_message_destroy(fetched[i]);
    }
    if (count > 0) read += (uint64_t)count;
  }
  rd_kafka_queue_destroy(queue);
  rd_kafka_consumer_close(rk);
  rd_kafka_destroy(rk);
  return bytes;
}

static void consume(void) {
  uint64_t records = (uint64_t)number("records"), passes = 0, bytes = 0;
  for (double end = now() + number("warm"); now() < end;) read_all(records);
  double begin = now(), used = cpu();
  for (double end = begin + number("seconds"); now() < end; passes++) bytes += read_all(records);
  printf("records=%llu seconds=%.4f cpu=%.4f bytes=%llu\n", (unsigned long long)(passes * records),
         now() - begin, cpu() - used, (unsigned long long)bytes);
}

/* Microseconds from when a record should have been sent to its answer. */
static double *due, *waited;

static void note(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
  (void)rk, (void)opaque;
  size_t at = (size_t)(uintptr_t)message->_private;
  if (message->err != 0) fail("delivery", rd_kafka_err2str(message->err));
  waited[at] = (now() - due[at]) * 1e6;
}

static int by_size(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

/* Sleeps until shortly before the time, and then looks at the clock. */
static void wait_until(double time) {
  double ahead = time - now() - 0.0002;
  if (ahead > 0) usleep((useconds_t)(ahead * 1e6));
  while (now() < time) continue;
}

static void send_at_a_rate(rd_kafka_t *rk, rd_kafka_topic_t *topic, size_t count, double every) {
  double begin = now();
  uint64_t partitions = (uint64_t)number("partitions");
  for (size_t i = 0; i < count; i++) {
    due[i] = begin + (double)i * every;
    wait_until(due[i]);
    if (rd_kafka_produce(topic, (int32_t)(i % partitions), RD_KAFKA_MSG_F_COPY, value(i),
                         value_bytes, NULL, 0, (void *)(uintptr_t)i) != 0)
      fail("rd_kafka_produce", rd_kafka_err2str(rd_kafka_last_error()));
  }
  if (rd_kafka_flush(rk, PATIENCE_MS) != 0) fail("rd_kafka_flush", "records not delivered");
}

static void latency(void) {
  read_values();
  double rate = number("rate");
  size_t warm = (size_t)(number("warm") * rate), count = (size_t)(number("seconds") * rate);
  due = calloc(warm + count, sizeof *due);
  waited = calloc(warm + count, sizeof *waited);
  rd_kafka_conf_t *conf = configuration();
  rd_kafka_conf_set_dr_msg_cb(conf, note);
  rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
  rd_kafka_topic_t *topic = topic_of(rk);
  pthread_t server;
  pthread_create(&server, NULL, serve, rk);
  send_at_a_rate(rk, topic, warm, 1 / rate);
  double begin = now(), used = cpu();
  send_at_a_rate(rk, topic, count, 1 / rate);
  double took = now() - begin;
  used = cpu() - used;
  serving = 0;
  pthread_join(server, NULL);
  qsort(waited, count, sizeof *waited, by_size);
  printf("warm=%zu records=%zu seconds=%.4f cpu=%.4f p50=%.1f p99=%.1f max=%.1f\n", warm, count,
         took, used, waited[count / 2], waited[count * 99 / 100], waited[count - 1]);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(rk);
}

int main(int count, char **arguments) {
  word_count = count;
  words = arguments;
  const char *mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "produce") == 0) produce();
  else if (strcmp(mode, "consume") == 0) consume();
  else if (strcmp(mode, "latency") == 0) latency();
  else fail("usage", "produce|consume|latency NAME=VALUE ...");
  return 0;
}
