import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's Java client as a program that a benchmark measures; see README.md here. */
public final class JavaClient {
  private static final int CHUNK = 1000;
  private static final Duration PATIENCE = Duration.ofMinutes(1);
  private static final Map<String, String> SETTINGS = new HashMap<>();

  private static int pass;

  private JavaClient() {}

  public static void main(String[] words) throws Exception {
    for (String word : Arrays.copyOfRange(words, 1, words.length)) {
      int equals = word.indexOf('=');
      SETTINGS.put(word.substring(0, equals), word.substring(equals + 1));
    }
    switch (words[0]) {
      case "produce" -> produce();
      case "consume" -> consume();
      case "latency" -> latency();
      default -> throw new IllegalArgumentException(words[0]);
    }
  }

  private static String setting(String name) {
    String value = SETTINGS.get(name);
    if (value == null) {
      throw new IllegalArgumentException(name + " is not set");
    }
    return value;
  }

  private static double number(String name) {
    return Double.parseDouble(setting(name));
  }

  private static double now() {
    return System.nanoTime() / 1e9;
  }

  /** Seconds that the process has used, the compiler and the collector included. */
  private static double cpu() {
    var system = ManagementFactory.getOperatingSystemMXBean();
    return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
  }

  private static Properties options() {
    Properties options = new Properties();
    options.put("bootstrap.servers", setting("address"));
    SETTINGS.forEach(
        (name, value) -> {
          if (name.startsWith("option.")) {
            options.put(name.substring("option.".length()), value);
          }
        });
    return options;
  }

  private static byte[][] readValues() throws IOException {
    byte[] file = Files.readAllBytes(Path.of(setting("values")));
    int size = (int) number("bytes");
    byte[][] values = new byte[file.length / size][];
    for (int i = 0; i < values.length; i++) {
      values[i] = Arrays.copyOfRange(file, i * size, (i + 1) * size);
    }
    return values;
  }

  /** Makes the records of a topic, one after the other. */
  private record Source(String topic, byte[][] values, int partitions, boolean own) {
    static Source read() throws IOException {
      boolean own = setting("spread").equals("own");
      return new Source(setting("topic"), JavaClient.readValues(), (int) number("partitions"), own);
    }

    ProducerRecord<byte[], byte[]> record(long at) {
      Integer partition = own ? null : (int) (at % partitions);
      return new ProducerRecord<>(topic, partition, null, values[(int) (at % values.length)]);
    }
  }

  private static KafkaProducer<byte[], byte[]> producer() {
    return new KafkaProducer<>(options(), new ByteArraySerializer(), new ByteArraySerializer());
  }

  private static long sendFor(
      KafkaProducer<byte[], byte[]> producer, Source source, double seconds, Callback done) {
    long at = 0;
    double end = now() + seconds;
    while (now() < end) {
      for (int i = 0; i < CHUNK; i++) {
        producer.send(source.record(at++), done);
      }
    }
    producer.flush();
    return at;
  }

  private static void produce() throws IOException {
    Source source = Source.read();
    AtomicLong failed = new AtomicLong();
    Callback done =
        (metadata, error) -> {
          if (error != null) {
            failed.incrementAndGet();
          }
        };
    try (var producer = producer()) {
      long warm = sendFor(producer, source, number("warm"), done);
      double begin = now();
      double used = cpu();
      long sent = sendFor(producer, source, number("seconds"), done);
      double took = now() - begin;
      used = cpu() - used;
      if (failed.get() != 0) {
        throw new IllegalStateException(failed.get() + " records failed");
      }
      System.out.printf(
          "warm=%d records=%d seconds=%.4f cpu=%.4f%n", warm, sent, took, used);
    }
  }

  /** Reads the whole topic once, in a new group; gives the sum of the values' bytes. */
  private static long readAll(long records) {
    Properties options = options();
    String group = "bench-" + ProcessHandle.current().pid() + "-" + pass++ + "-" + System.nanoTime();
    options.put("group.id", group);
    long read = 0;
    long bytes = 0;
    double end = now() + PATIENCE.toSeconds();
    var plain = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<byte[], byte[]>(options, plain, plain)) {
      consumer.subscribe(List.of(setting("topic")));
      while (read < records) {
        if (now() > end) {
          throw new IllegalStateException("the topic did not come in time");
        }
        ConsumerRecords<byte[], byte[]> fetched = consumer.poll(Duration.ofMillis(500));
        for (ConsumerRecord<byte[], byte[]> one : fetched) {
          bytes += one.value().length;
        }
        read += fetched.count();
      }
    }
    return bytes;
  }

  private static void consume() {
    long records = (long) number("records");
    long passes = 0;
    long bytes = 0;
    for (double end = now() + number("warm"); now() < end; ) {
      readAll(records);
    }
    double begin = now();
    double used = cpu();
    for (double end = begin + number("seconds"); now() < end; passes++) {
      bytes += readAll(records);
    }
    System.out.printf(
        "records=%d seconds=%.4f cpu=%.4f bytes=%d%n",
        passes * records, now() - begin, cpu() - used, bytes);
  }

  /** Sleeps until shortly before the time, and then looks at the clock. */
  private static void waitUntil(long due) throws InterruptedException {
    long ahead = due - System.nanoTime() - 200_000;
    if (ahead > 0) {
      Thread.sleep(ahead / 1_000_000, (int) (ahead % 1_000_000));
    }
    while (System.nanoTime() < due) {
      Thread.onSpinWait();
    }
  }

  /** Microseconds from when each record was due to its answer. */
  private static double[] sendAtARate(
      KafkaProducer<byte[], byte[]> producer, Source source, int count, double every)
      throws InterruptedException {
    double[] waited = new double[count];
    long begin = System.nanoTime();
    for (int i = 0; i < count; i++) {
      int at = i;
      long due = begin + (long) (i * every * 1e9);
      waitUntil(due);
      producer.send(
          source.record(i),
          (metadata, error) -> {
            waited[at] = error == null ? (System.nanoTime() - due) / 1e3 : Double.NaN;
          });
    }
    producer.flush();
    return waited;
  }

  private static void latency() throws Exception {
    Source source = Source.read();
    double rate = number("rate");
    int warm = (int) (number("warm") * rate);
    int count = (int) (number("seconds") * rate);
    try (var producer = producer()) {
      sendAtARate(producer, source, warm, 1 / rate);
      double begin = now();
      double used = cpu();
      double[] waited = sendAtARate(producer, source, count, 1 / rate);
      double took = now() - begin;
      used = cpu() - used;
      Arrays.sort(waited);
      if (Double.isNaN(waited[count - 1])) {
        throw new IllegalStateException("some records failed");
      }
      System.out.printf(
          "warm=%d records=%d seconds=%.4f cpu=%.4f p50=%.1f p99=%.1f max=%.1f%n",
          warm, count, took, used, waited[count / 2], waited[count * 99 / 100], waited[count - 1]);
    }
  }
}
